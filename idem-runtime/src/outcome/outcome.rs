//! From a function's result to a stored answer, and back.

pub(crate) mod class;
pub(crate) mod codec;
pub mod on_error;
pub(crate) mod reconciled;
pub(crate) mod stored;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::error::Error;
use crate::outcome::codec::{Body, Encoded, Format, How, Replay, Undecodable, Unencodable};
use crate::outcome::on_error::OnError;
use crate::outcome::stored::Stored;
use crate::record::OutcomeKind;
use crate::record::transition::Remains;

/// Conversion from idem's own refusals. Implemented for every `E: From<idem_runtime::Error>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no room for idem's own refusals",
    label = "`{Self}` needs `From<idem_runtime::Error>`; one of another crate: an error type of your own around it",
    note = "a duplicate may be refused, and the error says so: for example by a variant `Idempotency(idem_runtime::Error)`",
    note = "a type of another crate or of `std` (`String`, `std::io::Error`) cannot have it: use an error type of your own, which may hold that one"
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
    /// Restricts [`Outcome`](super::Outcome) to `Result`.
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
            OutcomeKind::Value => match T::read(body) {
                Ok(value) => Ok(Ok(value)),
                Err(undecodable) => Err(undecodable),
            },
            OutcomeKind::Error => match P::decode(body) {
                Ok(error) => Ok(Err(error)),
                Err(undecodable) => Err(undecodable),
            },
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
        [T::schema(), P::schema()]
    }
}

/// The output of a call, `None` until it is known. Holds its encoder and decoder, so that the bounds of the return type
/// are needed only where it is constructed.
pub struct Output<O, P> {
    pub(crate) value: Option<O>,
    on_error: P,
    refuse: fn(Error) -> O,
    any: for<'a> fn(&'a mut Self) -> &'a mut (dyn AnyOutput + 'a),
}

/// A type-erased output. The rest of a call uses only this trait, so that it is compiled once and not per function.
pub(crate) trait AnyOutput {
    /// The encoding to store. Without an output nothing is stored.
    fn encode(&self, format: &Format) -> Encoded;
    fn decode(&mut self, outcome: OutcomeKind, body: &Body<'_>) -> Result<(), Undecodable>;
    /// Passes the answer's provenance to a type that records it: see [`Answer`](crate::Answer).
    fn come_about(&mut self, how: How, attempt: u16, age: Duration);
    /// Whether the type exposes its age.
    fn tells_age(&self) -> bool;
    fn refuse(&mut self, error: Error);
    /// Whether the output is a success.
    #[cfg(feature = "_sql")]
    fn succeeded(&self) -> bool;
    /// The schemas of the value and of a kept error; 0 if none is kept.
    fn schemas(&self) -> [u32; 2];
}

// `match` instead of `?`, `map` or closures: this is compiled with each function.
impl<O: Outcome<P>, P> AnyOutput for Output<O, P> {
    fn encode(&self, format: &Format) -> Encoded {
        match &self.value {
            Some(output) => output.encode(&self.on_error, format),
            None => Encoded::Release(Remains::Request),
        }
    }

    fn decode(&mut self, outcome: OutcomeKind, body: &Body<'_>) -> Result<(), Undecodable> {
        match O::decode(outcome, body) {
            Ok(output) => self.value = Some(output),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn come_about(&mut self, how: How, attempt: u16, age: Duration) {
        if let Some(output) = &mut self.value {
            output.come_about(how, attempt, age);
        }
    }

    fn tells_age(&self) -> bool {
        O::tells_age()
    }

    fn refuse(&mut self, error: Error) {
        self.value = Some(O::refuse(error));
    }

    #[cfg(feature = "_sql")]
    fn succeeded(&self) -> bool {
        self.value.as_ref().is_some_and(O::succeeded)
    }

    fn schemas(&self) -> [u32; 2] {
        O::schemas()
    }
}

impl<O: Outcome<P>, P> Output<O, P> {
    pub(crate) fn new(on_error: P) -> Self {
        Self {
            value: None,
            on_error,
            refuse: O::refuse,
            any: Self::erased,
        }
    }

    fn erased<'a>(&'a mut self) -> &'a mut (dyn AnyOutput + 'a) {
        self
    }
}

impl<O, P> Output<O, P> {
    pub(crate) fn any(&mut self) -> &mut dyn AnyOutput {
        (self.any)(self)
    }

    /// Takes the output; panics if there is none.
    pub(crate) fn take(&mut self) -> O {
        match self.value.take() {
            Some(output) => output,
            None => taken(),
        }
    }

    /// The constructor of a refusal, for use after the output was moved elsewhere.
    pub(crate) fn refusal(&self) -> fn(Error) -> O {
        self.refuse
    }
}

#[cold]
fn taken() -> ! {
    panic!("a call is not polled after its output was taken")
}

impl dyn AnyOutput + '_ {
    /// Replaces the output by the stored answer.
    ///
    /// # Errors
    ///
    /// [`Undecodable`], if the stored answer cannot be decoded.
    pub(crate) fn read(&mut self, stored: &Stored) -> Result<(), Undecodable> {
        self.decode(stored.outcome(), &stored.open()?)?;
        let attempt = stored.record.header.attempts;
        self.come_about(stored.how(), attempt, stored.age());
        Ok(())
    }

    /// The encoding to store of an output that the body just returned.
    pub(crate) fn write(&self, format: &Format) -> Encoded {
        // As in `Encoded::store`; here only a classification can have panicked.
        catch_unwind(AssertUnwindSafe(|| self.encode(format))).unwrap_or_else(|_| {
            Encoded::empty(OutcomeKind::Unknown, Some(Unencodable::Unclassified))
        })
    }
}

impl<O, P> fmt::Debug for Output<O, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").finish_non_exhaustive()
    }
}
