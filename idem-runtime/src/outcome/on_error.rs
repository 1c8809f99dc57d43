//! Treatment of a body's error: the values of `on_error`.

use crate::outcome::class::{Class, Classify};
use crate::outcome::codec::{Body, Encoded, Format, Replay, Undecodable};
use crate::record::OutcomeKind;
use crate::record::transition::Remains;

/// `on_error = classify`: the error's [`Classify`] decides.
#[derive(Clone, Debug)]
pub struct Classified;

/// `on_error = release`: every error releases the key.
#[derive(Clone, Debug)]
pub struct Release;

/// `on_error = keep`: every error is an answer.
#[derive(Clone, Debug)]
pub struct Keep;

/// `on_error = unknown`: every error leaves the outcome unknown.
#[derive(Clone, Debug)]
pub struct Unknown;

/// `on_error = path`: a function of the error decides.
#[derive(Clone, Debug)]
pub struct By<F>(pub F);

/// How an error is stored, or that it is not.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not decide about `{E}`",
    label = "`on_error` names this",
    note = "`on_error` takes classify, release, keep, unknown or the path of a `fn(&{E}) -> Class`"
)]
pub trait OnError<E> {
    #[doc(hidden)]
    fn encode(&self, error: &mut E, format: &Format) -> Encoded;
    /// Reads a kept error; one of an earlier version of the function is refused where none is kept.
    #[doc(hidden)]
    fn decode(body: &Body<'_>) -> Result<E, Undecodable> {
        let _ = body;
        Err(Undecodable::Mistyped { at: 0 })
    }
    /// The schema of a kept error; 0 if none is kept.
    #[doc(hidden)]
    #[must_use]
    fn schema() -> u32 {
        0
    }
}

/// An error for `on_error = classify`. A single trait, so that missing bounds produce one compiler error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which of its errors are answers, or cannot be stored as one",
    label = "write `on_error = release`, or derive `Classify`, `Serialize` and `Deserialize` for `{Self}`",
    note = "`#[derive(idem_runtime::Classify)]` takes `#[class(business | system | unknown)]` on each variant; a business \
            error is stored, and a duplicate gets it",
    note = "a type of another crate, such as `anyhow::Error`, has none of these: `on_error = release | unknown`, or an \
            error type of your own that holds it"
)]
#[doc(hidden)]
pub trait ClassifiedError: Classify + Replay {}

#[doc(hidden)]
#[diagnostic::do_not_recommend]
impl<E: Classify + Replay> ClassifiedError for E {}

/// The default treatment of a step's error: [`Classified`], not the `on_error` of its call.
#[derive(Clone, Debug)]
pub struct ClassifiedStep;

/// An error of a step. A single trait, so that missing bounds produce one compiler error.
#[diagnostic::on_unimplemented(
    message = "a step does not inherit `on_error`, and `{Self}` does not say which of its errors are answers, or cannot be \
               stored as one",
    label = "write `.on_error(idem_runtime::on_error::Release)` behind `step(..)`, or derive `Classify`, `Serialize` and \
             `Deserialize` for `{Self}`",
    note = "`step_in_tx` takes an error with these derives only: an error type of your own, which may hold that of another crate"
)]
#[doc(hidden)]
pub trait StepError: Classify + Replay {}

#[doc(hidden)]
#[diagnostic::do_not_recommend]
impl<E: Classify + Replay> StepError for E {}

/// Reads errors as they are kept.
macro_rules! keeps_errors {
    ($error:ident) => {
        fn decode(body: &Body<'_>) -> Result<$error, Undecodable> {
            $error::read(body)
        }

        fn schema() -> u32 {
            $error::schema()
        }
    };
}

impl<E: ClassifiedError> OnError<E> for Classified {
    fn encode(&self, error: &mut E, format: &Format) -> Encoded {
        Encoded::by_class(error.class(), error, format)
    }

    keeps_errors!(E);
}

impl<E: StepError> OnError<E> for ClassifiedStep {
    fn encode(&self, error: &mut E, format: &Format) -> Encoded {
        Encoded::by_class(error.class(), error, format)
    }

    keeps_errors!(E);
}

impl<E> OnError<E> for Release {
    fn encode(&self, _: &mut E, _: &Format) -> Encoded {
        Encoded::Release(Remains::Nothing)
    }
}

impl<E: Replay> OnError<E> for Keep {
    fn encode(&self, error: &mut E, format: &Format) -> Encoded {
        Encoded::by_class(Class::Business, error, format)
    }

    keeps_errors!(E);
}

impl<E> OnError<E> for Unknown {
    fn encode(&self, _: &mut E, _: &Format) -> Encoded {
        Encoded::empty(OutcomeKind::Unknown, None)
    }
}

impl<E: Replay, F: Fn(&E) -> Class> OnError<E> for By<F> {
    fn encode(&self, error: &mut E, format: &Format) -> Encoded {
        Encoded::by_class(self.0(error), error, format)
    }

    keeps_errors!(E);
}
