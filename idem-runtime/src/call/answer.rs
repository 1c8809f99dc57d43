//! Replays: a finished record becomes the answer of a call, and the answer becomes its output.

use std::time::Duration;

use crate::call::core::Core;
use crate::call::refusal::{is_business_error, other_type, unanswered};
#[cfg(feature = "http")]
use crate::call::replay_count::ReplayCount;
use crate::env::call_end::{CallOutcome, CallResult};
use crate::env::observer::EventKind;
use crate::error::{Error, ErrorKind};
use crate::identity::operation::RecordKey;
use crate::outcome::AnyOutput;
use crate::outcome::codec::Undecodable;
use crate::outcome::stored::StoredAnswer;
use crate::policy::{EffectivePolicy, OnDuplicate};
use crate::record::{OutcomeKind, Record, State};

/// The answer of a call that runs nothing: a replay, or a refusal.
pub(crate) type Answered = Result<StoredAnswer, Error>;

/// The answer or the error that a finished record gives a duplicate.
pub(crate) fn answer(
    core: &Core,
    key: &RecordKey,
    record: Record,
    left: Duration,
    policy: &EffectivePolicy,
    waited: bool,
    local: bool,
) -> Answered {
    let operation = key.operation();
    let no_answer = |record: &Record| {
        let now = core.clock.calendar();
        Err(unanswered(operation, record, left, now, policy.max_run()))
    };
    let age = record.header.age(left);
    if record.header.is_unknown(left) {
        return no_answer(&record);
    }
    let State::Done { outcome, schema } = record.header.state else {
        return Err(operation.error(ErrorKind::UnknownRecord));
    };
    if !policy.reads(&record) {
        return Err(other_type(operation));
    }
    match outcome {
        _ if policy.on_duplicate() == OnDuplicate::Reject => {
            let retry_after = record.header.remaining(left);
            let duplicate = operation.error(ErrorKind::Duplicate { retry_after });
            Err(duplicate.business(is_business_error(outcome, schema)))
        }
        OutcomeKind::Value | OutcomeKind::Error => {
            core.emit(
                key,
                EventKind::Replayed {
                    outcome,
                    age,
                    waited,
                    local,
                },
            );
            let mut stored = core.stored((operation, key.digest()), record, left, waited);
            stored.is_local = local;
            Ok(stored)
        }
        // An unknown outcome has returned above.
        OutcomeKind::Tombstone | OutcomeKind::Unknown => no_answer(&record),
    }
}

/// Replaces the output by the stored answer. Returns the outcome of the call: `how` with the kind of the answer, or a
/// refusal.
pub(super) fn replay(
    core: &Core,
    output: &mut dyn AnyOutput,
    stored: &StoredAnswer,
    how: fn(CallResult) -> CallOutcome,
) -> CallOutcome {
    let read = output.read(stored);
    #[cfg(feature = "http")]
    if read.is_ok() {
        ReplayCount::replayed();
    }
    if let Err(undecodable) = read {
        let error = undecodable_error(output.schemas(), stored, undecodable);
        core.refused(&error);
        let refused = CallOutcome::refused(&error);
        output.refuse(error);
        return refused;
    }
    how(stored.outcome().into())
}

fn undecodable_error(schemas: [u32; 2], stored: &StoredAnswer, error: Undecodable) -> Error {
    let State::Done { outcome, schema } = stored.record.header.state else {
        return stored.operation.error(ErrorKind::UnknownRecord);
    };
    if !matches!(error, Undecodable::Mistyped { .. }) {
        let kind = ErrorKind::Undecodable;
        return stored.operation.error(kind).detail(error.to_string());
    }
    let [value, failure] = schemas;
    let expected = if outcome == OutcomeKind::Error {
        failure
    } else {
        value
    };
    let detail = if schema == expected {
        // The type has the same name; no other difference is recorded.
        format!(
            "{error}: the type has changed under its name, or the record is damaged; deploy a version that reads it, or \
             reset its entry to run the call again"
        )
    } else {
        format!(
            "it was written for a type of another name; stored {outcome:?} of schema {schema:08x}, expected \
             {expected:08x}, {error}"
        )
    };
    stored
        .operation
        .error(ErrorKind::Undecodable)
        .detail(detail)
}
