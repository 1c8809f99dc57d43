// What `#[async_trait]` leaves of a method with a transaction: the body's future does not live for
// `'async_trait`, but for as long as it has the transaction. A type that cannot be written is inferred.
fn pay<'life0, 'life1, 'async_trait>(
    &'life0 self,
    id: u64,
    tx: &'life1 mut impl Sql
) -> Pin<Box<dyn Future<Output = Result<u64, PayError>> + Send + 'async_trait>>
where
    'life0: 'async_trait
{
    ::std::boxed::Box::pin(async move {
        let call = {
            let mut call = ::idem_runtime::__private::Call::new(::idem_runtime::__private::op("payments.pay"));
            call.key(&(id));
            call.fingerprint(1usize);
            #[allow(clippy::used_underscore_binding)]
            ::idem_runtime::__private::arg::<u64>(&mut call, "id", &(id));
            call
        };
        #[allow(clippy::used_underscore_binding)]
        let mut borrowed = ::idem_runtime::__private::borrow_tx(&mut *tx);
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
                    let tx = borrowed.tx();
                    scope
                        .run(::core::pin::pin!(::core::option::Option::Some(async move {
                            let body: Pin<Box<dyn Future<Output = Result<u64, PayError>> + Send + '_>> =
                                (move || { Box::pin(async move { Ok(id) }) })();
                            body.await
                        })))
                        .await
                };
                run.finish(end).await
            }
        }
    })
}
