//! The result of an idempotent function.

use std::time::Duration;

use super::codec::{Body, Encoded, Format, Replay, Undecodable};
use super::on_error::OnError;
use super::provenance::AnswerSource;
use crate::error::Error;
use crate::record::OutcomeKind;

/// Conversion from idem's own refusals. Implemented for every `E: From<idem_runtime::Error>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no room for idem's own refusals",
    label = "`{Self}` needs `From<idem_runtime::Error>`; one of another crate: an error type of your own around it",
    note = "a duplicate may be refused, and the error type needs a value for that: for example a variant `Idempotency(idem_runtime::Error)`",
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
    note = "a call can be refused (still running, other arguments, store down), which needs an `Err`: return `Result<T, E>`"
)]
pub trait Outcome<P>: Sized + Sealed {
    #[doc(hidden)]
    fn encode(&mut self, on_error: &P, format: &Format) -> Encoded;
    #[doc(hidden)]
    fn decode(outcome: OutcomeKind, body: &Body<'_>) -> Result<Self, Undecodable>;
    #[doc(hidden)]
    fn set_provenance(&mut self, how: AnswerSource, attempt: u16, age: Duration);
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
    /// Restricts [`Outcome`](super::Outcome) and chosen lives to their types.
    pub trait Sealed {}

    impl<T, E> Sealed for Result<T, E> {}
}

impl<T: Replay, E: FromError, P: OnError<E>> Outcome<P> for Result<T, E> {
    fn encode(&mut self, on_error: &P, format: &Format) -> Encoded {
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

    fn set_provenance(&mut self, how: AnswerSource, attempt: u16, age: Duration) {
        if let Ok(value) = self {
            value.set_provenance(how, attempt, age);
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
