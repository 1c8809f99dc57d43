//! Replays: a stored answer becomes the output of a call.

#[cfg(feature = "http")]
use super::replay_count::ReplayCount;
use crate::call::core::Core;
use crate::call::engine::Engine;
use crate::env::call_end::{CallOutcome, CallResult};
use crate::env::observer::EventKind;
use crate::error::{Error, ErrorKind};
use crate::outcome::AnyOutput;
use crate::outcome::codec::Undecodable;
use crate::outcome::stored::StoredAnswer;
use crate::record::{OutcomeKind, State};

/// Replaces the output by the stored answer. Returns the outcome of the call: `how` with the kind of the answer, or a
/// refusal.
pub(super) fn replay(
    engine: &Engine,
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
        engine.core.refused(&error);
        let refused = CallOutcome::refused(&error);
        output.refuse(error);
        return refused;
    }
    how(stored.outcome().into())
}

/// The outcome of a call whose body ran without protection.
pub(super) fn unprotected(output: &dyn AnyOutput) -> CallOutcome {
    CallOutcome::Unprotected(if output.succeeded() {
        CallResult::Value
    } else {
        CallResult::Error
    })
}

fn undecodable_error(schemas: [u32; 2], stored: &StoredAnswer, error: Undecodable) -> Error {
    let State::Done { outcome, schema } = stored.record.header.state else {
        return Error::new(ErrorKind::UnknownRecord, stored.operation.clone());
    };
    if !matches!(error, Undecodable::Mistyped { .. }) {
        let kind = ErrorKind::Undecodable;
        return Error::new(kind, stored.operation.clone()).detail(error.to_string());
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
    Error::new(ErrorKind::Undecodable, stored.operation.clone()).detail(detail)
}

impl Core {
    /// Notifies the observer of a refusal.
    pub(super) fn refused(&self, error: &Error) {
        self.observer.observe(&crate::env::observer::Event {
            operation: error.operation(),
            key: None,
            label: None,
            kind: EventKind::Refused { error },
        });
    }
}
