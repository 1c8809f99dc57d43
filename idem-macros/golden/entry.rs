// Compared by tokens with what `expand` prints: comments and layout are free, a trailing comma is not.
#[expect(dead_code)]
#[inline]
pub async fn pay(mut req: PayRequest, bank: &Bank) -> Result<Receipt, PayError> {
    let call = {
        let mut call = ::idem_runtime::__private::Call::new(
            ::idem_runtime::__private::op("payments.pay")
        );
        call.key(&(req.order_no));
        call.fingerprint(1usize);
        #[allow(clippy::used_underscore_binding)]
        ::idem_runtime::__private::arg::<PayRequest>(&mut call, "req", &(req));
        call.label(&(redacted(&req.order_no, 4)));
        call
    };
    ::idem_runtime::__private::run(
        call,
        ::idem_runtime::__private::outcome::<
            Result<Receipt, PayError>,
            ::idem_runtime::__private::Release
        >(::idem_runtime::__private::Release),
        ::core::pin::pin!(::core::option::Option::Some(async move {
            if let ::core::option::Option::Some(out) =
                ::core::option::Option::None::<Result<Receipt, PayError>>
            {
                #[allow(unreachable_code)]
                return out;
            }
            #[allow(clippy::diverging_sub_expression)]
            let out: Result<Receipt, PayError> = { bank.pay(req).await };
            #[allow(unreachable_code)]
            out
        }))
    )
    .await
}

// The same arguments, of which the same call is made, without its label.
#[allow(dead_code)]
#[doc = "The stored entry of a call of `pay` with these arguments, or `None`.\n\n# Errors\n\nThose of `idem_runtime::CallBuilder::entry`."]
#[allow(unused_mut, unused_variables, clippy::missing_errors_doc, clippy::needless_pass_by_ref_mut)]
pub async fn pay_entry(
    mut req: PayRequest,
    bank: &Bank
) -> ::core::result::Result<
    ::core::option::Option<::idem_runtime::admin::Entry>,
    ::idem_runtime::Error
> {
    let call = {
        let mut call = ::idem_runtime::__private::Call::new(
            ::idem_runtime::__private::op("payments.pay")
        );
        call.key(&(req.order_no));
        call.fingerprint(1usize);
        #[allow(clippy::used_underscore_binding)]
        ::idem_runtime::__private::arg::<PayRequest>(&mut call, "req", &(req));
        call
    };
    ::idem_runtime::__private::entry(call).await
}
