//! What a consumer does with a message, by the result of its call.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, ErrorKind};

/// What a consumer does with a message.
///
/// [`Error::verdict`] gives the verdict for a refusal of idem; a [`Consumer`](super::Consumer) adds those for the
/// handler's own results.
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
    /// The handler returned a business error, which is stored as the answer.
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
    /// The message has no id, or one that is too long.
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

impl Error {
    /// What the consumer of a message does about this refusal.
    ///
    /// | kind | verdict |
    /// | --- | --- |
    /// | `Duplicate`, `NotStored` | [`Acknowledge`](Verdict::Acknowledge): done before |
    /// | `Running`, `TooManyRunning`, `QuotaExceeded`, `ShuttingDown`, `TransactionAborted`, `CommitUnknown`, `Unconfirmed`, `Changed`, a store that cannot be reached | [`Retry`](Verdict::Retry), after [`retry_after`](Self::retry_after) |
    /// | `Unknown`, `Exhausted`, `Mismatch` | [`DeadLetter`](Verdict::DeadLetter): an operator settles it |
    /// | `Undecodable`, `WrongType`, `UnknownRecord`, `TooLarge` | [`DeadLetter`](Verdict::DeadLetter): another version reads it |
    /// | `InvalidKey`, `TokenInvalid`, `TokenExpired`, `Reentered` | [`DeadLetter`](Verdict::DeadLetter): refused again whenever it is repeated |
    /// | `NoEngine`, `InvalidPolicy`, `InvalidStep`, `Unsupported`, `InvalidCursor`, a store that refuses | [`Stop`](Verdict::Stop) |
    ///
    /// ```
    /// use idem_runtime::consumer::{DeadLetterReason, Verdict};
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use idem_runtime::{Engine, Error, store::memory::MemoryStore};
    ///
    /// let engine = Engine::new(MemoryStore::new());
    /// let bill = |cents: u64| engine.operation("bills.collect").key("m-1").fingerprint(&cents);
    /// bill(1_250).run(|_| async { Ok::<_, Error>(()) }).await.unwrap();
    /// let other = bill(9_999).run(|_| async { Ok::<_, Error>(()) }).await.unwrap_err();
    /// assert_eq!(other.verdict(), Verdict::DeadLetter(DeadLetterReason::Mismatch));
    /// # });
    /// ```
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        use DeadLetterReason as Reason;
        match self.kind() {
            ErrorKind::Duplicate { .. } | ErrorKind::NotStored => Verdict::Acknowledge,
            ErrorKind::Unknown { .. } => Verdict::DeadLetter(Reason::Unknown),
            ErrorKind::Exhausted { .. } => Verdict::DeadLetter(Reason::Exhausted),
            ErrorKind::Mismatch => Verdict::DeadLetter(Reason::Mismatch),
            ErrorKind::Undecodable
            | ErrorKind::WrongType
            | ErrorKind::UnknownRecord
            | ErrorKind::TooLarge => Verdict::DeadLetter(Reason::Unreadable),
            ErrorKind::InvalidKey => Verdict::DeadLetter(Reason::InvalidId),
            ErrorKind::TokenInvalid | ErrorKind::TokenExpired | ErrorKind::Reentered => {
                Verdict::DeadLetter(Reason::Refused)
            }
            ErrorKind::NoEngine
            | ErrorKind::InvalidPolicy
            | ErrorKind::InvalidStep
            | ErrorKind::Unsupported
            | ErrorKind::InvalidCursor => Verdict::Stop,
            ErrorKind::Changed => Verdict::Retry(None),
            ErrorKind::Running { .. }
            | ErrorKind::StoreUnavailable
            | ErrorKind::TransactionAborted
            | ErrorKind::CommitUnknown
            | ErrorKind::Unconfirmed
            | ErrorKind::TooManyRunning
            | ErrorKind::QuotaExceeded
            | ErrorKind::ShuttingDown => {
                if self.is_retryable() {
                    Verdict::Retry(self.retry_after())
                } else {
                    Verdict::Stop
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(kind: ErrorKind) -> Verdict {
        Error::new(kind, "bills.collect").verdict()
    }

    #[test]
    fn a_finished_call_is_acknowledged() {
        let retry_after = Duration::from_secs(60);
        let duplicate = ErrorKind::Duplicate { retry_after };
        assert_eq!(verdict(duplicate), Verdict::Acknowledge);
        assert_eq!(verdict(ErrorKind::NotStored), Verdict::Acknowledge);
    }

    #[test]
    fn a_running_call_is_retried_when_its_lease_has_lapsed() {
        let retry_after = Duration::from_secs(7);
        let running = ErrorKind::Running { retry_after };
        assert_eq!(verdict(running), Verdict::Retry(Some(retry_after)));
    }

    #[test]
    fn a_store_that_refuses_stops_the_consumer_and_one_that_is_down_does_not() {
        let down = Error::new(ErrorKind::StoreUnavailable, "bills.collect");
        assert_eq!(down.clone().verdict(), Verdict::Retry(None));
        assert_eq!(down.permanent(true).verdict(), Verdict::Stop);
    }

    #[test]
    fn what_a_person_settles_is_a_dead_letter() {
        let since = std::time::SystemTime::UNIX_EPOCH;
        for (kind, reason) in [
            (ErrorKind::Unknown { since }, DeadLetterReason::Unknown),
            (
                ErrorKind::Exhausted { attempts: 5 },
                DeadLetterReason::Exhausted,
            ),
            (ErrorKind::Mismatch, DeadLetterReason::Mismatch),
            (ErrorKind::Undecodable, DeadLetterReason::Unreadable),
            (ErrorKind::InvalidKey, DeadLetterReason::InvalidId),
            (ErrorKind::Reentered, DeadLetterReason::Refused),
        ] {
            assert_eq!(
                verdict(kind.clone()),
                Verdict::DeadLetter(reason),
                "{kind:?}"
            );
        }
    }
}
