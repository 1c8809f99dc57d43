//! The hook of `reconcile = …` and its arguments.

use std::marker::PhantomData;

/// A hook that takes `Args`, each a reference. `Given` lists the available arguments, for the message.
#[diagnostic::on_unimplemented(
    message = "this reconcile hook does not take `{Given}`",
    label = "it takes other arguments",
    note = "a hook takes references: to `self` where there is one, then to the arguments of the fingerprint, as declared \
            or listed, then `&Context`",
    note = "for other arguments, such as skipped ones, write the call of the hook: `reconcile = find(&order_no, bank)`"
)]
pub trait HookFn<Args, Given, By> {
    /// The return type of the hook.
    type Returned;
    /// Calls the hook.
    fn call(self, args: Args) -> Self::Returned;
}

/// Marks the implementation for functions.
#[derive(Debug)]
pub struct Called;

/// Marks a second implementation, which no type uses: with it rustc reports this trait, and not the `FnOnce`
/// beneath, whose message does not mention hooks.
#[derive(Debug)]
pub struct Never;

/// Implemented by no type.
pub trait NoType {}

impl<F: NoType, Args, Given> HookFn<Args, Given, Never> for F {
    type Returned = ();
    fn call(self, _: Args) {}
}

macro_rules! hook_fn {
    ($($arg:ident)*) => {
        #[diagnostic::do_not_recommend]
        #[allow(non_snake_case, reason = "each argument is called as its type")]
        impl<'a, F, R, Given, $($arg: ?Sized),*> HookFn<($(&'a $arg,)*), Given, Called> for F
        where
            F: FnOnce($(&'a $arg),*) -> R,
        {
            type Returned = R;
            fn call(self, ($($arg,)*): ($(&'a $arg,)*)) -> R {
                self($($arg),*)
            }
        }
    };
}

hook_fn!(A);
hook_fn!(A B);
hook_fn!(A B C);
hook_fn!(A B C D);
hook_fn!(A B C D E);
hook_fn!(A B C D E G);
hook_fn!(A B C D E G H);
hook_fn!(A B C D E G H I);

/// The return value of a hook.
#[diagnostic::on_unimplemented(
    message = "a reconcile hook is an `async fn`, and this function returns `{Self}`",
    label = "write `async` before its `fn`"
)]
pub trait IntoHookFuture {
    /// The future of the verdict.
    type Future;
    /// Returns the future of the verdict.
    fn future(self) -> Self::Future;
}

#[diagnostic::do_not_recommend]
impl<R: Future> IntoHookFuture for R {
    type Future = R;
    fn future(self) -> R {
        self
    }
}

/// The types of a hook's parameters and of its given arguments.
#[derive(Debug)]
pub struct Given<Args, G>(PhantomData<fn() -> (Args, G)>);

/// Captures the type of the given arguments. `Args` sets how many references a hook takes.
#[must_use]
pub fn given<Args, G>(_: &G) -> Given<Args, G> {
    Given(PhantomData)
}

/// A hook that is called later.
#[derive(Debug)]
pub struct HookCall<F, Args, R> {
    hook: F,
    // A type without bounds is not reported a second time.
    call: fn(F, Args) -> R,
}

/// Creates the hook of a written path.
pub fn hook<F, Args, G, A, R, By>(_: Given<Args, G>, hook: F) -> HookCall<F, Args, R>
where
    F: HookFn<Args, G, By, Returned = A>,
    A: IntoHookFuture<Future = R>,
{
    let call = |hook: F, args| hook.call(args).future();
    HookCall { hook, call }
}

impl<F, Args, R> HookCall<F, Args, R> {
    /// Calls the hook. The given arguments are coerced to its parameters.
    pub fn call(self, args: Args) -> R {
        (self.call)(self.hook, args)
    }
}
