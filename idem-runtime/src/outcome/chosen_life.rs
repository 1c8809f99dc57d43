//! The life of an answer that the answer chooses.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::outcome::Sealed;

/// The choice of an answer. The policy of its call bounds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChosenLife {
    /// None: the life is that of the policy.
    #[default]
    Open,
    /// This, where the policy has more.
    For(Duration),
    /// The closure panicked: the life is that of the policy, because a shorter one may run the body again too soon.
    Panicked,
}

impl ChosenLife {
    /// The event of a panic.
    pub(crate) const PANICKED: &str = "the closure that chooses the life of an answer panicked: the answer is kept for \
                                       the whole `ttl`";

    /// Calls the closure. The effect has happened: a panic must not lose the answer.
    pub(crate) fn of<R: IntoLife>(choose: impl FnOnce() -> R) -> Self {
        match catch_unwind(AssertUnwindSafe(|| choose().life())) {
            Ok(Some(life)) => Self::For(life),
            Ok(None) => Self::Open,
            Err(_) => Self::Panicked,
        }
    }
}

/// Return type of a closure that chooses a life.
///
/// Sealed: `Duration`, or an `Option` of it. `None` is the `ttl`.
#[diagnostic::on_unimplemented(
    message = "the life of an answer is a `Duration` or an `Option<Duration>`, not `{Self}`",
    label = "this closure returns another type",
    note = "`None` keeps the answer for the `ttl` of the operation or its engine"
)]
pub trait IntoLife: Sealed {
    #[doc(hidden)]
    fn life(self) -> Option<Duration>;
}

impl Sealed for Duration {}

impl Sealed for Option<Duration> {}

impl IntoLife for Duration {
    fn life(self) -> Option<Duration> {
        Some(self)
    }
}

#[diagnostic::do_not_recommend]
impl IntoLife for Option<Duration> {
    fn life(self) -> Self {
        self
    }
}

/// Chooses the lives of the values among results of type `O`.
#[doc(hidden)]
pub trait LifeOf<O> {
    #[doc(hidden)]
    fn life_of(&self, output: &O) -> ChosenLife;
}

/// A choice of lives that needs no body: none.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a call with `ttl_of` has no `begin`: without a body there is no value that chooses its life",
    label = "the closure of `ttl_of` would never be called",
    note = "leave `ttl_of` out, and give the life to the claim: `claim.complete_for(value, life)`"
)]
pub trait NeedsNoBody {}

impl NeedsNoBody for OpenLife {}

/// Chooses none: every life is that of the policy.
#[derive(Debug)]
pub struct OpenLife;

impl<O> LifeOf<O> for OpenLife {
    fn life_of(&self, _: &O) -> ChosenLife {
        ChosenLife::Open
    }
}

/// Chooses by a closure: see [`CallBuilder::ttl_of`](crate::CallBuilder::ttl_of).
pub struct TtlOf<F, T> {
    choose: F,
    // A type without bounds is not reported a second time.
    call: fn(&F, &T) -> ChosenLife,
}

impl<F: Fn(&T) -> R, R: IntoLife, T> TtlOf<F, T> {
    pub(crate) fn new(choose: F) -> Self {
        let call = |choose: &F, value: &T| ChosenLife::of(|| choose(value));
        Self { choose, call }
    }
}

impl<O: ValueIs<T>, F, T> LifeOf<O> for TtlOf<F, T> {
    fn life_of(&self, output: &O) -> ChosenLife {
        match output.value() {
            Some(value) => (self.call)(&self.choose, value),
            None => ChosenLife::Open,
        }
    }
}

/// A result whose value is a `T`.
///
/// A trait of the result, because otherwise the closure would decide the type of the result, and rustc would report the
/// body.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "the value of `{Self}` is no `{T}`",
    label = "the closure of `ttl_of` takes a reference to the value of the result"
)]
pub trait ValueIs<T> {
    #[doc(hidden)]
    fn value(&self) -> Option<&T>;
}

impl<T, E> ValueIs<T> for Result<T, E> {
    fn value(&self) -> Option<&T> {
        self.as_ref().ok()
    }
}

debug_fields!([F, T] TtlOf<F, T> {});
