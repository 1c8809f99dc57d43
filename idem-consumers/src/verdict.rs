//! The verdict of a consumer on a message.

use std::fmt;
use std::time::Duration;

use idem_runtime::{Error, ErrorKind};

/// The verdict of a consumer on a message.
///
/// [`Verdict::of`] gives the verdict for a refusal of idem; a [`Consumer`](crate::Consumer) adds those for the handler's
/// own results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The message is done, now or before: acknowledge it.
    Acknowledge,
    /// Give the message back: the broker delivers it again, after this time if it can delay.
    Retry(Option<Duration>),
    /// Move the message to the dead-letter queue: no redelivery would change the result.
    DeadLetter(DeadLetterReason),
    /// Give the message back and stop consuming: no message is at fault, and every other one would fare the same. The
    /// service or its store is to be mended first.
    Stop,
}

/// Why a message became a dead letter.
///
/// The text of it ([`as_str`](Self::as_str)) is stable, and is written to the dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadLetterReason {
    /// The handler returned a business error, the answer of the message.
    Business,
    /// Whether the effect happened is unknown. An operator resolves or resets the record, and sends the message again.
    Unknown,
    /// Every allowed attempt failed or was abandoned.
    Exhausted,
    /// Another message with other content has this id.
    Mismatch,
    /// The stored record cannot be read by this version. The body was not run.
    Unreadable,
    /// The payload cannot be decoded as the handler's message. The handler was not run.
    InvalidPayload,
    /// The id of the message is missing or too long.
    InvalidId,
    /// The call is refused whenever it is made: it calls itself, or its one-time token is invalid.
    Refused,
}

impl DeadLetterReason {
    /// One word, such as `exhausted`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Business => "business",
            Self::Unknown => "unknown",
            Self::Exhausted => "exhausted",
            Self::Mismatch => "mismatch",
            Self::Unreadable => "unreadable",
            Self::InvalidPayload => "invalid-payload",
            Self::InvalidId => "invalid-id",
            Self::Refused => "refused",
        }
    }
}

impl fmt::Display for DeadLetterReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Verdict {
    /// The pause before the next delivery of a returned message.
    pub(super) fn delay(self) -> Duration {
        match self {
            Self::Retry(after) => after.unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }

    /// The verdict on a message whose call was refused.
    ///
    /// | kind | verdict |
    /// | --- | --- |
    /// | `Duplicate`, `NotStored` | [`Acknowledge`](Self::Acknowledge): done before |
    /// | `Duplicate`, `NotStored` [of a business error](Error::is_of_business_error) | [`DeadLetter`](Self::DeadLetter): as the error itself |
    /// | `Running`, `TooManyRunning`, `QuotaExceeded`, `ShuttingDown`, `TransactionAborted`, `CommitUnknown`, `Unconfirmed`, `Changed`, a store that cannot be reached | [`Retry`](Self::Retry), after [`Error::retry_after`] |
    /// | `Unknown`, `Exhausted`, `Mismatch` | [`DeadLetter`](Self::DeadLetter): an operator settles it |
    /// | `Undecodable`, `WrongType`, `UnknownRecord`, `TooLarge` | [`DeadLetter`](Self::DeadLetter): another version reads it |
    /// | `InvalidKey`, `TokenInvalid`, `TokenExpired`, `Reentered` | [`DeadLetter`](Self::DeadLetter): refused again whenever it is repeated |
    /// | `NoEngine`, `InvalidPolicy`, `InvalidStep`, `Unsupported`, `InvalidCursor`, a store that refuses | [`Stop`](Self::Stop) |
    /// | a kind of a newer version | [`Retry`](Self::Retry) if the error [is retryable](Error::is_retryable), else [`Stop`](Self::Stop) |
    ///
    /// [Here](crate#a-loop-of-your-own) is an example.
    #[must_use]
    pub fn of(refusal: &Error) -> Self {
        use DeadLetterReason as Reason;
        match refusal.kind() {
            ErrorKind::Duplicate { .. } | ErrorKind::NotStored
                if refusal.is_of_business_error() =>
            {
                Self::DeadLetter(Reason::Business)
            }
            ErrorKind::Duplicate { .. } | ErrorKind::NotStored => Self::Acknowledge,
            ErrorKind::Unknown { .. } => Self::DeadLetter(Reason::Unknown),
            ErrorKind::Exhausted { .. } => Self::DeadLetter(Reason::Exhausted),
            ErrorKind::Mismatch => Self::DeadLetter(Reason::Mismatch),
            ErrorKind::Undecodable
            | ErrorKind::WrongType
            | ErrorKind::UnknownRecord
            | ErrorKind::TooLarge => Self::DeadLetter(Reason::Unreadable),
            ErrorKind::InvalidKey => Self::DeadLetter(Reason::InvalidId),
            ErrorKind::TokenInvalid | ErrorKind::TokenExpired | ErrorKind::Reentered => {
                Self::DeadLetter(Reason::Refused)
            }
            ErrorKind::NoEngine
            | ErrorKind::InvalidPolicy
            | ErrorKind::InvalidStep
            | ErrorKind::Unsupported
            | ErrorKind::InvalidCursor => Self::Stop,
            ErrorKind::Changed => Self::Retry(None),
            // `Running`, `StoreUnavailable` and others, which the error itself knows to pass or not.
            _ if refusal.is_retryable() => Self::Retry(refusal.retry_after()),
            _ => Self::Stop,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The verdict on an error of this kind. `permanent`: it fails again until its cause is mended.
    fn verdict(kind: &ErrorKind, permanent: bool) -> Verdict {
        let error = json!({ "kind": kind, "operation": "bills.collect", "permanent": permanent });
        Verdict::of(&serde_json::from_value(error).expect("an error is read from its own form"))
    }

    /// Finds a kind with another verdict: a message that is lost, or retried for ever.
    #[test]
    fn a_refusal_has_the_verdict_of_its_kind() {
        use DeadLetterReason as Reason;
        let (since, dead) = (std::time::SystemTime::UNIX_EPOCH, Verdict::DeadLetter);
        let retry_after = Duration::from_secs(7);
        let after = Verdict::Retry(Some(retry_after));
        for (kind, expected) in [
            (ErrorKind::Duplicate { retry_after }, Verdict::Acknowledge),
            (ErrorKind::NotStored, Verdict::Acknowledge),
            (ErrorKind::Running { retry_after }, after),
            (ErrorKind::StoreUnavailable, Verdict::Retry(None)),
            (ErrorKind::TransactionAborted, Verdict::Retry(None)),
            (ErrorKind::CommitUnknown, Verdict::Retry(None)),
            (ErrorKind::Unconfirmed, Verdict::Retry(None)),
            (ErrorKind::ShuttingDown, Verdict::Retry(None)),
            (ErrorKind::Changed, Verdict::Retry(None)),
            (ErrorKind::Unknown { since }, dead(Reason::Unknown)),
            (
                ErrorKind::Exhausted { attempts: 5 },
                dead(Reason::Exhausted),
            ),
            (ErrorKind::Mismatch, dead(Reason::Mismatch)),
            (ErrorKind::Undecodable, dead(Reason::Unreadable)),
            (ErrorKind::InvalidKey, dead(Reason::InvalidId)),
            (ErrorKind::TokenExpired, dead(Reason::Refused)),
            (ErrorKind::Reentered, dead(Reason::Refused)),
            (ErrorKind::NoEngine, Verdict::Stop),
            (ErrorKind::InvalidPolicy, Verdict::Stop),
        ] {
            assert_eq!(verdict(&kind, false), expected, "{kind:?}");
        }
        // A store that refuses, and is not down.
        assert_eq!(verdict(&ErrorKind::StoreUnavailable, true), Verdict::Stop);
    }
}
