// Compared by tokens with what `expand` prints: comments and layout are free, a trailing comma is not.
pub async fn pay(
    order: u64,
    req: Pay,
    tenant: &str,
    #[cfg(eu)] vat: u8,
    engine: &Engine
) -> Result<Receipt, PayError> {
    #![allow(unused)]
    let call = {
        let mut call = ::idem_runtime::__private::Call::new(::idem_runtime::__private::op("payments.pay"));
        // Each placeholder by itself: none can be taken for a part of another.
        call.scope(&(::idem_runtime::__private::FormatKey::new("tenant-{}", &[::core::format_args!("{tenant}")])));
        // Fields by reference: the body still owns `req`.
        call.key(&(&(req.merchant), &(order),));
        // As many as follow, in the order of the canonical encoding: by length, then by bytes.
        call.fingerprint(
            2usize + <::core::primitive::usize as ::core::convert::From<::core::primitive::bool>>::from(
                ::core::cfg!(all(eu))
            )
        );
        #[allow(clippy::used_underscore_binding)]
        ::idem_runtime::__private::arg::<Pay>(&mut call, "req", &(req));
        #[cfg(eu)]
        #[allow(clippy::used_underscore_binding)]
        ::idem_runtime::__private::arg::<u8>(&mut call, "vat", &(vat));
        #[allow(clippy::used_underscore_binding)]
        ::idem_runtime::__private::arg::<u64>(&mut call, "order", &(order));
        call.engine(::idem_runtime::__private::engine_of(&(engine)));
        call.ttl(::idem_runtime::__private::Duration::from_millis(86400000u64));
        call.on_duplicate(::idem_runtime::__private::OnDuplicate::Reject);
        call.on_running(::idem_runtime::__private::OnRunning::Wait(
            ::idem_runtime::__private::Duration::from_millis(5000u64)
        ));
        call
    };
    ::idem_runtime::__private::run(
        call,
        // The only place where the bounds of the return type are asked for.
        ::idem_runtime::__private::outcome::<
            Result<Receipt, PayError>,
            ::idem_runtime::__private::By<fn(&PayError) -> ::idem_runtime::__private::Class>
        >(::idem_runtime::__private::By({
            let by: fn(&PayError) -> ::idem_runtime::__private::Class = judge;
            by
        })),
        // In an `Option`, so that the runtime can drop the body before it gives the key back.
        ::core::pin::pin!(::core::option::Option::Some(async move {
            if let ::core::option::Option::Some(out) = ::core::option::Option::None::<Result<Receipt, PayError>> {
                #[allow(unreachable_code)]
                return out;
            }
            #[allow(clippy::diverging_sub_expression)]
            let out: Result<Receipt, PayError> = { go(req).await };
            #[allow(unreachable_code)]
            out
        }))
    )
    .await
}
