// The closure follows the error policy; its parameter has its type from the return type.
async fn ask(pair: Pair) -> Result<Quote, QuoteError> {
    let call = {
        let mut call = ::idem_runtime::__private::Call::new(::idem_runtime::__private::op("quotes.ask"));
        call.key(&(pair));
        call.fingerprint(1usize);
        #[allow(clippy::used_underscore_binding)]
        ::idem_runtime::__private::arg::<Pair>(&mut call, "pair", &(pair));
        call.ttl(::idem_runtime::__private::Duration::from_millis(604800000u64));
        call
    };
    ::idem_runtime::__private::run(
        call,
        {
            #[allow(clippy::redundant_closure, clippy::redundant_closure_for_method_calls)]
            let output = ::idem_runtime::__private::outcome_with::<
                Result<Quote, QuoteError>,
                ::idem_runtime::__private::By<fn(&QuoteError) -> ::idem_runtime::__private::Class>,
                _,
                _,
                _
            >(
                ::idem_runtime::__private::By({
                    let by: fn(&QuoteError) -> ::idem_runtime::__private::Class = judge;
                    by
                }),
                |quote| quote.valid_for
            );
            output
        },
        ::core::pin::pin!(::core::option::Option::Some(async move {
            if let ::core::option::Option::Some(out) = ::core::option::Option::None::<Result<Quote, QuoteError>> {
                #[allow(unreachable_code)]
                return out;
            }
            #[allow(clippy::diverging_sub_expression)]
            let out: Result<Quote, QuoteError> = { rates(pair).await };
            #[allow(unreachable_code)]
            out
        }))
    )
    .await
}
