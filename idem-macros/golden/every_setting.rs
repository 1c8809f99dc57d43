// Every argument that is handed on as it is, and a hook that is called as it is written.
async fn pay(order: u64) -> Result<u64, PayError> {
    let call = {
        let mut inputs = ::idem_runtime::__private::Inputs::new(::idem_runtime::__private::op("payments.pay"));
        inputs.fingerprint(1usize);
        #[allow(clippy::used_underscore_binding)]
        ::idem_runtime::__private::arg::<u64>(&mut inputs, "order", &(order));
        ::idem_runtime::__private::Call::new(
            inputs,
            ::idem_runtime::__private::engine(),
            ::idem_runtime::__private::outcome::<Result<u64, PayError>, ::idem_runtime::__private::Classified>(
                ::idem_runtime::__private::Classified
            )
        )
        .ttl(::idem_runtime::__private::Duration::from_millis(604800000u64))
        .error_ttl(HOUR)
        .lease(::idem_runtime::__private::Duration::from_millis(10000u64))
        .max_run(::idem_runtime::__private::Duration::from_millis(900000u64))
        .on_duplicate(::idem_runtime::__private::OnDuplicate::Replay)
        .on_cancel(::idem_runtime::__private::OnCancel::Unknown)
        .on_panic(::idem_runtime::__private::OnPanic::Release)
        .on_lease_lost(::idem_runtime::__private::OnLeaseLost::Continue)
        .on_outage(::idem_runtime::__private::OnOutage::Fail)
        .on_running(::idem_runtime::__private::OnRunning::Reject)
        .max_attempts(7u16)
        .count_errors(true)
        .reconciles()
    };
    ::idem_runtime::__private::run(
        call,
        ::core::pin::pin!(::core::option::Option::Some(async move {
            if let ::core::option::Option::Some(out) = ::core::option::Option::None::<Result<u64, PayError>> {
                #[allow(unreachable_code)]
                return out;
            }
            if ::idem_runtime::__private::unsettled() {
                let hook = async { ::idem_runtime::__private::Verdict::verdict(bank.find(order).await) };
                if let ::core::option::Option::Some(landed) = ::idem_runtime::__private::reconciled(hook).await {
                    return ::core::result::Result::Ok(landed);
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
