// Every argument that is handed on as it is, and a hook that is called as it is written.
async fn pay(order: u64) -> Result<u64, PayError> {
    let call = {
        let mut call = ::idem_runtime::__private::Call::new(::idem_runtime::__private::op("payments.pay"));
        call.public();
        call.fingerprint(1usize);
        #[allow(clippy::used_underscore_binding)]
        ::idem_runtime::__private::arg::<u64>(&mut call, "order", &(order));
        call.ttl(::idem_runtime::__private::Duration::from_millis(604800000u64));
        call.error_ttl({
            let time: ::idem_runtime::__private::Duration = HOUR;
            time
        });
        call.lease(::idem_runtime::__private::Duration::from_millis(10000u64));
        call.max_run(::idem_runtime::__private::Duration::from_millis(900000u64));
        call.on_duplicate(::idem_runtime::__private::OnDuplicate::Replay);
        call.on_cancel(::idem_runtime::__private::OnCancel::Unknown);
        call.on_panic(::idem_runtime::__private::OnPanic::Release);
        call.on_lease_lost(::idem_runtime::__private::OnLeaseLost::Continue);
        call.on_unconfirmed(::idem_runtime::__private::OnUnconfirmed::WithinLease);
        call.on_outage(::idem_runtime::__private::OnOutage::Fail);
        call.on_other_type(::idem_runtime::__private::OnOtherType::Accept);
        call.on_running(::idem_runtime::__private::OnRunning::Reject);
        call.max_attempts(::idem_runtime::__private::NonZeroU16::new(7u16));
        call.count_errors(true);
        call.reconciles();
        call.label(&::core::format_args!("order {order:>8}"));
        call
    };
    ::idem_runtime::__private::run(
        call,
        ::idem_runtime::__private::outcome::<
            Result<u64, PayError>,
            ::idem_runtime::__private::Classified
        >(::idem_runtime::__private::Classified),
        ::core::pin::pin!(::core::option::Option::Some(async move {
            if let ::core::option::Option::Some(out) = ::core::option::Option::None::<Result<u64, PayError>> {
                #[allow(unreachable_code)]
                return out;
            }
            if ::idem_runtime::__private::unsettled() {
                let hook = async { ::idem_runtime::__private::HookVerdict::verdict(bank.find(order).await) };
                if let ::core::option::Option::Some(answer) = ::idem_runtime::__private::reconciled(hook).await {
                    return ::core::result::Result::Ok(answer);
                }
            }
            #[allow(clippy::diverging_sub_expression)]
            let out: Result<u64, PayError> = { Ok(order) };
            #[allow(unreachable_code)]
            out
        }))
    )
    .await
}
