// The body gets the caller's transaction back, under the name that it knows, for as long as it runs.
async fn pay(order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, PayError> {
    let call = {
        let mut call = ::idem_runtime::__private::Call::new(::idem_runtime::__private::op("payments.pay"));
        call.fingerprint(1usize);
        #[allow(clippy::used_underscore_binding)]
        ::idem_runtime::__private::arg::<u64>(&mut call, "order", &(order));
        call.ttl(::idem_runtime::__private::FOREVER);
        call.error_ttl(::idem_runtime::__private::FOREVER);
        call
    };
    // The only place where a transaction is asked for.
    #[allow(clippy::used_underscore_binding)]
    let mut borrowed = ::idem_runtime::__private::borrow_tx::<PgTransaction<'_>>(&mut *tx);
    let run = ::idem_runtime::__private::begin_in_tx(
        call,
        ::idem_runtime::__private::outcome::<Result<u64, PayError>, ::idem_runtime::__private::Classified>(::idem_runtime::__private::Classified),
        &mut borrowed
    )
    .await;
    match run {
        ::idem_runtime::__private::InTx::Answered(out) => out,
        ::idem_runtime::__private::InTx::Run(mut run) => {
            let end = {
                let (scope, borrowed) = run.split();
                #[allow(unused_variables, clippy::shadow_unrelated)]
                let mut tx = borrowed.tx();
                scope
                    .run(::core::pin::pin!(::core::option::Option::Some(async move {
                        if let ::core::option::Option::Some(out) = ::core::option::Option::None::<Result<u64, PayError>> {
                            #[allow(unreachable_code)]
                            return out;
                        }
                        #[allow(clippy::diverging_sub_expression)]
                        let out: Result<u64, PayError> = { go(&mut tx).await };
                        #[allow(unreachable_code)]
                        out
                    })))
                    .await
            };
            run.finish(end).await
        }
    }
}
