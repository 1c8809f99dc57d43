//! Maps records and replies to answers and errors of a caller.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::call::core::Core;
use crate::call::ending::is_business_error;
use crate::env::observer::EventKind;
use crate::error::{Error, ErrorKind};
use crate::identity::key::KeyDigest;
use crate::identity::operation::{Operation, RecordKey};
use crate::outcome::stored::StoredAnswer;
use crate::policy::{EffectivePolicy, OnDuplicate};
use crate::record::transition::ClaimReply;
use crate::record::unknown_cause::Cause;
use crate::record::{OutcomeKind, Record, State};
use crate::store::ReadReply;

impl Core {
    /// The answer or the error that a finished record gives a duplicate.
    pub(crate) fn answer(
        &self,
        key: &RecordKey,
        record: Record,
        left: Duration,
        policy: &EffectivePolicy,
        waited: bool,
        local: bool,
    ) -> Result<StoredAnswer, Error> {
        let operation = key.operation();
        let refuse = |kind| Err(Error::new(kind, operation.clone()));
        let age = record.header.age(left);
        if record.header.is_unknown(left) {
            return Err(self.unanswered(operation, &record, left));
        }
        let State::Done { outcome, .. } = record.header.state else {
            return refuse(ErrorKind::UnknownRecord);
        };
        if !policy.reads(&record) {
            return Err(other_type(operation));
        }
        match outcome {
            _ if policy.on_duplicate() == OnDuplicate::Reject => {
                let retry_after = record.header.remaining(left);
                refuse(ErrorKind::Duplicate { retry_after })
            }
            OutcomeKind::Value | OutcomeKind::Error => {
                self.emit(
                    key,
                    EventKind::Replayed {
                        outcome,
                        age,
                        waited,
                        local,
                    },
                );
                let mut stored = self.stored((operation, key.digest()), record, left, waited);
                stored.is_local = local;
                Ok(stored)
            }
            // An unknown outcome has returned above.
            OutcomeKind::Tombstone | OutcomeKind::Unknown => {
                Err(self.unanswered(operation, &record, left))
            }
        }
    }

    /// An answer as a caller of this operation and digest reads it.
    pub(crate) fn stored(
        &self,
        (operation, digest): (&Operation, &KeyDigest),
        record: Record,
        left: Duration,
        waited: bool,
    ) -> StoredAnswer {
        StoredAnswer::new(self.formats.mine(), operation, digest, record, left, waited)
    }

    /// The error of a finished record without an answer.
    pub(crate) fn unanswered(
        &self,
        operation: &Operation,
        record: &Record,
        left: Duration,
    ) -> Error {
        let header = &record.header;
        if !header.is_unknown(left) {
            let business = matches!(header.state, State::Done { outcome, schema, .. } if is_business_error(outcome, schema));
            return Error::new(ErrorKind::NotStored, operation.clone()).business(business);
        }
        let cause = match header.state {
            State::Done { schema, .. } => Cause::of(schema),
            _ => Some(Cause::Undecided),
        };
        self.unknown(operation, header.attempts, cause, header.age(left))
    }

    /// The error of an unknown outcome of this age.
    pub(crate) fn unknown(
        &self,
        operation: &Operation,
        attempt: u16,
        cause: Option<Cause>,
        age: Duration,
    ) -> Error {
        let since = (self.clock.calendar().checked_sub(age))
            // A clock before 1970 is wrong, and such a time could not be serialized.
            .map_or(SystemTime::UNIX_EPOCH, |since| {
                since.max(SystemTime::UNIX_EPOCH)
            });
        let detail = match cause {
            Some(cause) => format!("attempt {attempt} {cause}"),
            None => format!("attempt {attempt}"),
        };
        Error::new(ErrorKind::Unknown { since }, operation.clone()).detail(detail)
    }
}

/// The error of a reply with neither a grant nor an answer.
pub(crate) fn refusal(operation: &Operation, reply: &ClaimReply) -> Error {
    let kind = match reply {
        ClaimReply::Mismatch => ErrorKind::Mismatch,
        ClaimReply::OtherType => return other_type(operation),
        ClaimReply::Exhausted { attempts } => ErrorKind::Exhausted {
            attempts: (*attempts).into(),
        },
        ClaimReply::Running { lease_left } => ErrorKind::Running {
            retry_after: *lease_left,
        },
        ClaimReply::Absent => ErrorKind::Running {
            retry_after: Duration::ZERO,
        },
        ClaimReply::Unreadable(error) => {
            return Error::new(ErrorKind::UnknownRecord, operation.clone()).because(*error);
        }
        _ => ErrorKind::UnknownRecord,
    };
    Error::new(kind, operation.clone())
}

/// The error of a record whose function has answers of another type.
pub(crate) fn other_type(operation: &Operation) -> Error {
    Error::new(ErrorKind::WrongType, operation.clone()).detail(
        "nothing was run; two functions have this `op`: give each its own. Or the type got another name, or became \
         another: if it reads what was stored before, write `on_other_type = accept`",
    )
}

impl Core {
    /// The error of a call with an expired token; `None`: a record has appeared since, so the call claims again.
    pub(crate) async fn expired(self: &Arc<Self>, key: &RecordKey) -> Option<Error> {
        let operation = key.operation();
        let found = match self.patiently(operation, || self.read(key)).await {
            Ok(ReadReply::Found { record, left }) => (record, left),
            Ok(_) => return Some(Error::new(ErrorKind::TokenExpired, operation.clone())),
            Err(error) => return Some(error),
        };
        let (header, left) = (found.0.header, found.1);
        match header.state {
            State::Released => Some(Error::new(ErrorKind::TokenExpired, operation.clone())),
            // An expired-token error would make the client request a new token, and repeat an effect that may have
            // happened.
            State::Pending { .. } | State::Reconciling { .. } if header.lapsed(left) => {
                let error = self.unknown(operation, header.attempts, None, header.age(left));
                Some(error.detail(format!(
                    "attempt {} was abandoned, and its token has expired since",
                    header.attempts
                )))
            }
            _ => None,
        }
    }
}
