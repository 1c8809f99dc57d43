// What `#[async_trait]` leaves of a method, and what becomes of it.
fn pay<'life0, 'async_trait>(
    &'life0 self,
    id: u64
) -> Pin<Box<dyn Future<Output = Result<u64, PayError>> + Send + 'async_trait>>
where
    'life0: 'async_trait
{
    ::std::boxed::Box::pin(async move {
        let call = {
            let mut call = ::idem_runtime::__private::Call::new({
                #[allow(clippy::items_after_statements)]
                fn here() {}
                ::idem_runtime::__private::op_of::<Self, _>("pay", here)
            });
            call.fingerprint(1usize);
            #[allow(clippy::used_underscore_binding)]
            ::idem_runtime::__private::arg::<u64>(&mut call, "id", &(id));
            call
        };
        ::idem_runtime::__private::run(
            call,
            ::idem_runtime::__private::outcome::<
                Result<u64, PayError>,
                ::idem_runtime::__private::Classified
            >(::idem_runtime::__private::Classified),
            ::core::pin::pin!(::core::option::Option::Some(async move {
                let body: Pin<Box<dyn Future<Output = Result<u64, PayError>> + Send + 'async_trait>> =
                    (move || { Box::pin(async move { Ok(id) }) })();
                body.await
            }))
        )
        .await
    })
}
