// A boxed future in a task of its own, with a hook that gets the receiver, the compared arguments, and the context.
fn pay<'async_trait>(
    self: Arc<Self>,
    id: u64,
    note: &'static str
) -> Pin<Box<dyn Future<Output = Result<u64, PayError>> + Send + 'async_trait>> {
    ::std::boxed::Box::pin(async move {
        let call = {
            let mut call = ::idem_runtime::__private::Call::new(::idem_runtime::__private::op("payments.pay"));
            call.fingerprint(2usize);
            #[allow(clippy::used_underscore_binding)]
            ::idem_runtime::__private::arg::<u64>(&mut call, "id", &(id));
            #[allow(clippy::used_underscore_binding)]
            ::idem_runtime::__private::arg::<&'static str>(&mut call, "note", &(note));
            call.max_attempts(::core::option::Option::None);
            call.reconciles();
            call
        };
        ::idem_runtime::__private::run_in_task(
            call,
            ::idem_runtime::__private::outcome::<Result<u64, PayError>, ::idem_runtime::__private::Classified>(
                ::idem_runtime::__private::Classified
            ),
            async move {
                if let ::core::option::Option::Some(out) = ::core::option::Option::None::<Result<u64, PayError>> {
                    #[allow(unreachable_code)]
                    return out;
                }
                if ::idem_runtime::__private::unsettled() {
                    let cx = ::idem_runtime::__private::context();
                    // It takes four references; the given ones are coerced when it is called.
                    let hook = ::idem_runtime::__private::hook(
                        ::idem_runtime::__private::given::<(&_, &_, &_, &_,), _>(&(&(self), &(id), &*note, &cx,)),
                        Self::find
                    );
                    let hook = async {
                        ::idem_runtime::__private::HookVerdict::verdict(hook.call((&(self), &(id), &*note, &cx,)).await)
                    };
                    if let ::core::option::Option::Some(answer) = ::idem_runtime::__private::reconciled(hook).await {
                        return ::core::result::Result::Ok(answer);
                    }
                }
                // The future itself must not borrow either.
                let body: Pin<Box<dyn Future<Output = Result<u64, PayError>> + Send + 'static>> =
                    (move || { Box::pin(async move { Ok(id) }) })();
                body.await
            }
        )
        .await
    })
}
