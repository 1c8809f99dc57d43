//! What the path of `reconcile = …` names, and what it is called with.

use std::marker::PhantomData;

/// What can be called with `Args`, each a reference. `Given` is what there is to call it with, for the message.
#[diagnostic::on_unimplemented(
    message = "this reconcile hook does not take `{Given}`",
    label = "it takes something else",
    note = "a hook takes references: to `self` where there is one, then to what takes part in the fingerprint, as it \
            is declared or listed, then `&Context`",
    note = "for other arguments, such as skipped ones, write the call of the hook: `reconcile = find(&order_no, bank)`"
)]
pub trait Asking<Args, Given, By> {
    /// What it returns.
    type Asked;
    /// Calls it.
    fn ask(self, args: Args) -> Self::Asked;
}

/// The way in which functions do it.
#[derive(Debug)]
pub struct Called;

/// A second way, which nothing goes: it lets rustc report this trait, and not the `FnOnce` beneath, whose message says
/// nothing of hooks.
#[derive(Debug)]
pub struct Never;

/// Implemented by nothing.
pub trait NoType {}

impl<F: NoType, Args, Given> Asking<Args, Given, Never> for F {
    type Asked = ();
    fn ask(self, _: Args) {}
}

macro_rules! asking {
    ($($arg:ident)*) => {
        #[diagnostic::do_not_recommend]
        #[allow(non_snake_case, reason = "each argument is called as its type")]
        impl<'a, F, R, Given, $($arg: ?Sized),*> Asking<($(&'a $arg,)*), Given, Called> for F
        where
            F: FnOnce($(&'a $arg),*) -> R,
        {
            type Asked = R;
            fn ask(self, ($($arg,)*): ($(&'a $arg,)*)) -> R {
                self($($arg),*)
            }
        }
    };
}

asking!(A);
asking!(A B);
asking!(A B C);
asking!(A B C D);
asking!(A B C D E);
asking!(A B C D E G);
asking!(A B C D E G H);
asking!(A B C D E G H I);

/// What a hook returns.
#[diagnostic::on_unimplemented(
    message = "a reconcile hook is an `async fn`, and this function returns `{Self}`",
    label = "write `async` before its `fn`"
)]
pub trait Says {
    /// How it comes to say something.
    type Future;
    /// The hook at work.
    fn future(self) -> Self::Future;
}

#[diagnostic::do_not_recommend]
impl<R: Future> Says for R {
    type Future = R;
    fn future(self) -> R {
        self
    }
}

/// The types of what a hook takes and of what it is called with.
#[derive(Debug)]
pub struct Given<Args, G>(PhantomData<fn() -> (Args, G)>);

/// What a hook is called with, for its type. `Args` says how many references a hook takes.
#[must_use]
pub fn given<Args, G>(_: &G) -> Given<Args, G> {
    Given(PhantomData)
}

/// A hook that is called later.
#[derive(Debug)]
pub struct Hook<F, Args, R> {
    hook: F,
    // What is not bounded is not reported a second time.
    ask: fn(F, Args) -> R,
}

/// The hook of a written path.
pub fn hook<F, Args, G, A, R, By>(_: Given<Args, G>, hook: F) -> Hook<F, Args, R>
where
    F: Asking<Args, G, By, Asked = A>,
    A: Says<Future = R>,
{
    let ask = |hook: F, args| hook.ask(args).future();
    Hook { hook, ask }
}

impl<F, Args, R> Hook<F, Args, R> {
    /// Calls it. What is given is coerced into what it takes.
    pub fn ask(self, args: Args) -> R {
        (self.ask)(self.hook, args)
    }
}
