//! From a function's result to a stored answer, and back.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::answer::{Body, Encoded, Format, How, Replay, Undecodable, Unencodable, schema_of};
use crate::error::Error;
use crate::on_error::OnError;
use crate::record::OutcomeKind;
use crate::stored::Stored;

/// Takes idem's own refusals. Implemented for every `E: From<idem_runtime::Error>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no room for idem's own refusals",
    label = "a duplicate may be refused, and `{Self}` must be able to say so",
    note = "implement `From<idem_runtime::Error>` for `{Self}`, for example with a variant `Idempotency(idem_runtime::Error)`"
)]
#[cfg_attr(
    feature = "axum",
    diagnostic::on_unimplemented(
        note = "the error of an axum handler answers `error.into_response()` for that variant in its own `IntoResponse`"
    )
)]
pub trait FromError {
    #[doc(hidden)]
    fn from_error(error: Error) -> Self;
}

#[diagnostic::do_not_recommend]
impl<E: From<Error>> FromError for E {
    fn from_error(error: Error) -> Self {
        Self::from(error)
    }
}

/// The result of an idempotent function, under an `on_error` policy `P`. Sealed: implemented for
/// `Result<T, E>`.
#[diagnostic::on_unimplemented(
    message = "an idempotent function returns a `Result`, not `{Self}`",
    label = "not a `Result`",
    note = "a call can be refused (still running, other arguments, store down), and an `Err` says so: return `Result<T, E>`"
)]
pub trait Outcome<P>: Sized + Sealed {
    #[doc(hidden)]
    fn encode(&self, on_error: &P, format: &Format) -> Encoded;
    #[doc(hidden)]
    fn decode(outcome: OutcomeKind, body: &Body<'_>) -> Result<Self, Undecodable>;
    #[doc(hidden)]
    fn come_about(&mut self, how: How, attempt: u16, age: Duration);
    #[doc(hidden)]
    #[must_use]
    fn tells_age() -> bool;
    #[doc(hidden)]
    fn refuse(error: Error) -> Self;
    #[doc(hidden)]
    fn succeeded(&self) -> bool;
    #[doc(hidden)]
    #[must_use]
    fn schemas() -> [u32; 2];
}

pub use sealed::Sealed;

mod sealed {
    /// Keeps [`Outcome`](super::Outcome) to `Result`.
    pub trait Sealed {}

    impl<T, E> Sealed for Result<T, E> {}
}

impl<T: Replay, E: FromError, P: OnError<E>> Outcome<P> for Result<T, E> {
    fn encode(&self, on_error: &P, format: &Format) -> Encoded {
        match self {
            Ok(value) => Encoded::value(value, format),
            Err(error) => on_error.encode(error, format),
        }
    }

    fn decode(outcome: OutcomeKind, body: &Body<'_>) -> Result<Self, Undecodable> {
        match outcome {
            OutcomeKind::Value => T::read(body).map(Ok),
            OutcomeKind::Error => P::decode(body).map(Err),
            _ => Err(Undecodable::Mistyped { at: 0 }),
        }
    }

    fn come_about(&mut self, how: How, attempt: u16, age: Duration) {
        if let Ok(value) = self {
            value.come_about(how, attempt, age);
        }
    }

    fn tells_age() -> bool {
        T::tells_age()
    }

    fn refuse(error: Error) -> Self {
        Err(E::from_error(error))
    }

    fn succeeded(&self) -> bool {
        self.is_ok()
    }

    fn schemas() -> [u32; 2] {
        [T::schema(), schema_of(std::any::type_name::<E>())]
    }
}

/// How a result is written and read: function pointers, so that the bounds of the return type are
/// asked for once, where the codec is made.
pub struct Codec<O, P> {
    on_error: P,
    encode: fn(&O, &P, &Format) -> Encoded,
    decode: fn(OutcomeKind, &Body<'_>) -> Result<O, Undecodable>,
    come_about: fn(&mut O, How, u16, Duration),
    tells_age: fn() -> bool,
    refuse: fn(Error) -> O,
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
    succeeded: fn(&O) -> bool,
    schema: fn() -> [u32; 2],
}

impl<O: Outcome<P>, P> Codec<O, P> {
    pub(crate) fn new(on_error: P) -> Self {
        Self {
            on_error,
            encode: O::encode,
            decode: O::decode,
            come_about: O::come_about,
            tells_age: O::tells_age,
            refuse: O::refuse,
            #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
            succeeded: O::succeeded,
            schema: O::schemas,
        }
    }
}

impl<O, P> Codec<O, P> {
    pub(crate) fn encode(&self, output: &O, format: &Format) -> Encoded {
        let encode = || (self.encode)(output, &self.on_error, format);
        // As in `Encoded::store`; here only a classification can have panicked.
        catch_unwind(AssertUnwindSafe(encode)).unwrap_or_else(|_| {
            Encoded::empty(OutcomeKind::Unknown, Some(Unencodable::Unclassified))
        })
    }

    pub(crate) fn decode(&self, stored: &Stored) -> Result<O, Undecodable> {
        let mut output = (self.decode)(stored.outcome(), &stored.open()?)?;
        let attempt = stored.record.header.attempts;
        self.annotate(&mut output, stored.how(), attempt, stored.age());
        Ok(output)
    }

    /// Tells a result how it came about, if its type wants to know: see [`Answer`](crate::Answer).
    pub(crate) fn annotate(&self, output: &mut O, how: How, attempt: u16, age: Duration) {
        (self.come_about)(output, how, attempt, age);
    }

    /// Whether a result can be asked how old it is.
    pub(crate) fn tells_age(&self) -> bool {
        (self.tells_age)()
    }

    pub(crate) fn refuse(&self, error: Error) -> O {
        (self.refuse)(error)
    }

    /// What [`refuse`](Self::refuse) calls, for where the codec has gone elsewhere.
    pub(crate) fn refusal(&self) -> fn(Error) -> O {
        self.refuse
    }

    /// Whether it is a success.
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
    pub(crate) fn succeeded(&self, output: &O) -> bool {
        (self.succeeded)(output)
    }

    /// The tags of the types that this codec writes.
    pub(crate) fn schemas(&self) -> [u32; 2] {
        (self.schema)()
    }
}

impl<O, P> fmt::Debug for Codec<O, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Codec").finish_non_exhaustive()
    }
}
