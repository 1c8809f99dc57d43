// Compared by tokens with what `expand` prints. It stays within 40 lines.
pub async fn pay(req: PayRequest) -> Result<Receipt, PayError> {
    let call = {
        let mut call = ::idem_runtime::__private::Call::new(
            ::idem_runtime::__private::op("payments.pay")
        );
        call.key(&(req.order_no));
        call.fingerprint(1usize);
        #[allow(clippy::used_underscore_binding)]
        ::idem_runtime::__private::arg::<PayRequest>(&mut call, "req", &(req));
        call.ttl(::idem_runtime::__private::Duration::from_millis(86400000u64));
        call
    };
    ::idem_runtime::__private::run(
        call,
        ::idem_runtime::__private::outcome::<
            Result<Receipt, PayError>,
            ::idem_runtime::__private::Classified
        >(::idem_runtime::__private::Classified),
        ::core::pin::pin!(::core::option::Option::Some(async move {
            if let ::core::option::Option::Some(out) =
                ::core::option::Option::None::<Result<Receipt, PayError>>
            {
                #[allow(unreachable_code)]
                return out;
            }
            #[allow(clippy::diverging_sub_expression)]
            let out: Result<Receipt, PayError> = {
                let receipt = charge(&req).await?;
                Ok(receipt)
            };
            #[allow(unreachable_code)]
            out
        }))
    )
    .await
}
