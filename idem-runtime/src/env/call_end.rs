//! The end of a call, for observers.

use std::time::Duration;

use crate::error::Error;
use crate::record::OutcomeKind;

/// How a call ended, and the times that its parts took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallEnd {
    /// How it ended.
    pub outcome: CallOutcome,
    /// The number of the attempt with the answer or the body.
    ///
    /// 0: there is none, or it is not known.
    pub attempt: u16,
    /// Whether the answer came from the [local cache](crate::cache::LocalCache).
    pub local: bool,
    /// The time of its body; `None`: it did not run.
    pub body: Option<Duration>,
    /// The time of its requests to the store.
    ///
    /// With retries and the pauses between them, for the claim or the stored answer, and for the answer of its body.
    /// Steps count as time of the body. `None`: an answer was at hand in this process, or the call was refused without
    /// the store.
    pub store: Option<Duration>,
    /// The time for which it waited for the body of another call; `None`: it did not wait.
    pub waited: Option<Duration>,
}

impl CallEnd {
    /// The end of a call without times.
    pub(crate) const fn new(outcome: CallOutcome, attempt: u16) -> Self {
        Self {
            outcome,
            attempt,
            local: false,
            body: None,
            store: None,
            waited: None,
        }
    }
}

/// The outcome of a call for its caller. More may come; match with a `_` arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallOutcome {
    /// The body of this call ran, and its result is the answer.
    Executed(CallResult),
    /// Its reconcile hook found the answer of an earlier attempt.
    Reconciled(CallResult),
    /// The call got a stored answer, or that of its leader.
    Replayed(CallResult),
    /// Another attempt's answer counts, although the body ran or was granted.
    Adopted(CallResult),
    /// The body ran without protection.
    Unprotected(CallResult),
    /// The call was refused. The word is that of the [kind](crate::ErrorKind::as_str) of the error.
    Refused(&'static str),
    /// The body panicked.
    Panicked,
    /// The caller dropped the call before its body had ended.
    Cancelled,
}

/// The result of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallResult {
    /// A value.
    Value,
    /// A business error, which is kept as the answer. Without protection: any error.
    Error,
    /// A system error: the key is released, and the next call runs the body.
    Released,
    /// Whether the effect happened is unknown.
    Unknown,
    /// It happened, and the answer cannot be stored.
    NotStored,
}

impl CallOutcome {
    /// One word for the outcome, such as `replayed`: stable, for labels of metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Executed(_) => "executed",
            Self::Reconciled(_) => "reconciled",
            Self::Replayed(_) => "replayed",
            Self::Adopted(_) => "adopted",
            Self::Unprotected(_) => "unprotected",
            Self::Refused(_) => "refused",
            Self::Panicked => "panicked",
            Self::Cancelled => "cancelled",
        }
    }

    /// One word for the result: that of [`CallResult`], or of the error of a refusal. Stable, for labels of metrics.
    #[must_use]
    pub const fn result(self) -> &'static str {
        match self {
            Self::Executed(result)
            | Self::Reconciled(result)
            | Self::Replayed(result)
            | Self::Adopted(result)
            | Self::Unprotected(result) => result.as_str(),
            Self::Refused(kind) => kind,
            Self::Panicked | Self::Cancelled => "none",
        }
    }

    pub(crate) fn refused(error: &Error) -> Self {
        Self::Refused(error.kind().as_str())
    }
}

impl CallResult {
    /// One word for the result, such as `value`: stable, for labels of metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::Error => "error",
            Self::Released => "released",
            Self::Unknown => "unknown",
            Self::NotStored => "not-stored",
        }
    }
}

impl From<OutcomeKind> for CallResult {
    fn from(outcome: OutcomeKind) -> Self {
        match outcome {
            OutcomeKind::Value => Self::Value,
            OutcomeKind::Error => Self::Error,
            OutcomeKind::Unknown => Self::Unknown,
            OutcomeKind::Tombstone => Self::NotStored,
        }
    }
}
