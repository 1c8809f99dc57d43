//! Errors of calls that get neither a claim nor an answer. Pure.

use std::time::{Duration, SystemTime};

use crate::error::{Error, ErrorKind};
use crate::identity::operation::Operation;
use crate::record::transition::ClaimReply;
use crate::record::unknown_cause::Cause;
use crate::record::{OutcomeKind, Record, State};
use crate::store::{StoreError, StoreErrorKind};

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
            return operation.error(ErrorKind::UnknownRecord).because(*error);
        }
        _ => ErrorKind::UnknownRecord,
    };
    operation.error(kind)
}

/// The error of a record whose function has answers of another type.
pub(crate) fn other_type(operation: &Operation) -> Error {
    operation.error(ErrorKind::WrongType).detail(
        "nothing was run; two functions have this `op`: give each its own. Or the type got another name, or became \
         another: if it reads what was stored before, write `on_other_type = accept`",
    )
}

/// Retry delay of a call whose answer is being streamed.
const STREAMING: Duration = Duration::from_secs(2);

/// The error of a finished record without an answer.
///
/// A stream is recorded for `max_run` at most.
pub(crate) fn unanswered(
    operation: &Operation,
    record: &Record,
    left: Duration,
    now: SystemTime,
    max_run: Duration,
) -> Error {
    let header = &record.header;
    if !header.is_unknown(left) {
        let business = matches!(header.state, State::Done { outcome, schema, .. } if is_business_error(outcome, schema));
        return operation.error(ErrorKind::NotStored).business(business);
    }
    let cause = match header.state {
        State::Done { schema, .. } => Cause::of(schema),
        _ => Some(Cause::Undecided),
    };
    let age = header.age(left);
    let may_stream = cause == Some(Cause::Streaming) && age < max_run;
    unknown(operation, header.attempts, cause, (now, age))
        .worth_repeating(may_stream.then_some(STREAMING))
}

/// The error of an unknown outcome of this age.
pub(crate) fn unknown(
    operation: &Operation,
    attempt: u16,
    cause: Option<Cause>,
    (now, age): (SystemTime, Duration),
) -> Error {
    let since = (now.checked_sub(age))
        // A clock before 1970 is wrong, and such a time could not be serialized.
        .map_or(SystemTime::UNIX_EPOCH, |since| {
            since.max(SystemTime::UNIX_EPOCH)
        });
    let detail = match cause {
        Some(cause) => format!("attempt {attempt} {cause}"),
        None => format!("attempt {attempt}"),
    };
    operation.error(ErrorKind::Unknown { since }).detail(detail)
}

/// Whether a business error, even an unstored one, ended the body: see
/// [`EncodedAnswer`](crate::outcome::codec::EncodedAnswer).
pub(crate) fn is_business_error(outcome: OutcomeKind, schema: u32) -> bool {
    outcome == OutcomeKind::Error || outcome == OutcomeKind::Tombstone && schema != 0
}

/// The error of a call whose claim failed with a store error.
pub(crate) fn unavailable(operation: &Operation, error: StoreError) -> Error {
    let kind = match error.kind() {
        StoreErrorKind::TooLarge => ErrorKind::TooLarge,
        StoreErrorKind::Unsupported => ErrorKind::Unsupported,
        StoreErrorKind::InvalidCursor => ErrorKind::InvalidCursor,
        _ => ErrorKind::StoreUnavailable,
    };
    let (permanent, retry_after) = (!error.is_transient(), error.retry_after());
    operation
        .error(kind)
        .permanent(permanent)
        .worth_repeating(retry_after)
        .because(error)
}
