//! Not covered by semver: the names that expansions of `#[idempotent]` and the crates beside this one use.

pub use core::num::NonZeroU16;
pub use core::time::Duration;

pub use crate::call::context::context;
pub use crate::call::reconcile::{
    Called, Given, HookCall, HookFn, IntoHookFuture, Never, NoType, given, hook, reconciled,
    unsettled,
};
pub use crate::call::{
    BodySlot, BorrowedTx, Call, InTx, Run, TxEnd, TxRun, TxScope, arg, begin_in_tx, borrow_tx,
    entry, run, run_in_task,
};
pub use crate::env::catch_unwind::unwind;
#[cfg(feature = "_certificates")]
pub use crate::env::certificates::Certificates;
pub use crate::env::credentials::ProviderError;
pub use crate::env::lock::Lock;
pub use crate::identity::call_id::{Inputs, KeyInScope, KeyOfSubject};
pub use crate::identity::canonical::CanonicalError;
pub use crate::identity::fingerprint::{Digest, FingerprintBuilder, FingerprintError};
pub use crate::identity::key::{DEFAULT_MAX_KEY_BYTES, FormatKey, KeyBuilder, KeyError, KeyPart};
pub use crate::identity::operation::Operation;
pub use crate::outcome::class::Class;
pub use crate::outcome::codec::{
    Body, Encoded, EncodedAnswer, Format, Sink, Undecodable, Unencodable,
};
pub use crate::outcome::on_error::{By, Classified, Keep, Release, Unknown};
pub use crate::outcome::reconciled::HookVerdict;
pub use crate::outcome::{Output, Sealed};
pub use crate::policy::{
    OnCancel, OnDuplicate, OnLeaseLost, OnOtherType, OnOutage, OnPanic, OnRunning, OnUnconfirmed,
};
pub use crate::record::FOREVER;

use crate::call::engine::{Engine, HasEngine};
use crate::outcome::Outcome;
use crate::outcome::chosen_life::{IntoLife, OpenLife, TtlOf, ValueIs};

/// The `ttl` of a path: of a constant, or by mistake of a function.
#[must_use]
pub fn ttl<T: Ttl<T>>(ttl: T) -> Duration {
    ttl.ttl()
}

/// The type of a `ttl` that is a path: `Duration`.
///
/// The parameter is the type itself, because otherwise rustc advises to call a function without an answer.
#[diagnostic::on_unimplemented(
    message = "`ttl` takes a text, such as \"24h\", a `Duration` or a closure, not `{Self}`",
    label = "not a `Duration`",
    note = "a function goes in a closure: `ttl = |answer| life(answer)`"
)]
pub trait Ttl<T> {
    fn ttl(self) -> Duration;
}

impl Ttl<Self> for Duration {
    fn ttl(self) -> Self {
        self
    }
}

/// The operation of a written name.
#[must_use]
pub fn op(name: &'static str) -> Operation {
    Operation::new(name)
}

/// The operation of a method without a written name: type and method, and the trait if there is one,
/// since two traits may give one type methods of one name. `here` is an item inside the method.
#[must_use]
pub fn op_of<S: ?Sized, F>(function: &'static str, here: F) -> Operation {
    let inherent = Operation::of_method::<S>(function);
    let path = op_at(here);
    let ty = std::any::type_name::<S>();
    let of_trait = path
        .as_str()
        .strip_prefix('<')
        .and_then(|rest| rest.strip_prefix(ty));
    if path == inherent || of_trait.is_some_and(|rest| rest.starts_with(" as ")) {
        return path;
    }
    // The path of a default method has no type, that of a generic type has `_` for its parameters.
    Operation::new(format!("{path} of {ty}"))
}

/// The operation of a function without a receiver: the path of an item inside it, less that item.
#[must_use]
pub fn op_at<F>(_: F) -> Operation {
    let path = std::any::type_name::<F>();
    let (mut name, _) = path.rsplit_once("::").unwrap_or((path, ""));
    while let Some(outer) = name.strip_suffix("::{{closure}}") {
        name = outer;
    }
    Operation::new(name)
}

/// The engine of `engine = …`. A function, so that the compiler reports another type where it is written.
#[must_use]
pub fn engine_of<H: HasEngine + ?Sized>(holder: &H) -> Engine {
    holder.engine()
}

/// The only place at which the return type's bounds are asked for.
#[must_use]
pub fn outcome<O: Outcome<P>, P>(on_error: P) -> Output<O, (P, OpenLife)> {
    Output::new(on_error, OpenLife)
}

/// As [`outcome`], with the closure of `ttl`, whose type it fixes.
#[must_use]
pub fn outcome_with<O, P, V, R, F>(on_error: P, ttl: F) -> Output<O, (P, TtlOf<F, V>)>
where
    O: OutcomeOf<P, V>,
    R: IntoLife,
    F: Fn(&V) -> R,
{
    Output::new(on_error, TtlOf::new(ttl))
}

/// An outcome with a value of type `V`. One bound, so that another return type is one error.
#[diagnostic::on_unimplemented(
    message = "an idempotent function returns a `Result`, not `{Self}`",
    label = "not a `Result`",
    note = "a call can be refused (still running, other arguments, store down), which needs an `Err`: return `Result<T, E>`"
)]
pub trait OutcomeOf<P, V>: Outcome<P> + ValueIs<V> {}

impl<T, E, P> OutcomeOf<P, T> for Result<T, E> where Self: Outcome<P> {}
