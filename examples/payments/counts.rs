//! Counts of the engine's events: the source of the table.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use idem_runtime::{
    ErrorKind, Observer,
    observe::{Event, EventKind, StderrObserver},
    store::OutcomeKind,
};

use crate::request::Operation;

/// The rows of the table: each call ends with exactly one of them.
const ROWS: &str = "\
executed: the body ran, and its answer is stored
business errors kept: the body ran and said no; that is an answer too
system errors, key given back: nothing is stored; calling again runs the body
unknown outcome kept: the gateway fell silent: nothing runs again
replayed: the stored receipt; the body did not run
business errors replayed: the stored error; the body did not run
waited: met the running call, and got its answer
mismatched: the same id with another content
refused, done before: `notify` has `on_duplicate = reject`
refused, still running: told when to call again
refused, outcome unknown: a person has to look
refused, other: the store is down, say";

/// An unexpected event: an answer not stored, a lost lease, a dropped or panicked body.
pub(crate) const TROUBLE: &str = "TROUBLE";

/// Each row's name and its meaning.
pub(crate) fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
    ROWS.lines().filter_map(|row| row.split_once(": "))
}

/// Counts the events of an engine. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts(Arc<Mutex<BTreeMap<(Operation, &'static str), u64>>>);

impl Counts {
    /// How often a row was counted for an operation.
    pub(crate) fn of(&self, operation: Operation, row: &'static str) -> u64 {
        let counts = self.lock();
        counts.get(&(operation, row)).copied().unwrap_or_default()
    }

    /// Number of calls of an operation that ended.
    pub(crate) fn calls(&self, operation: Operation) -> u64 {
        rows().map(|(row, _)| self.of(operation, row)).sum()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Operation, &'static str), u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Counts {
    fn observe(&self, event: &Event<'_>) {
        // Prints the events that need attention, and no others.
        StderrObserver.observe(event);
        let mut operations = Operation::ALL.into_iter();
        let of_event = operations.find(|operation| operation.name() == event.operation);
        if let (Some(operation), Some(row)) = (of_event, row_of(&event.kind)) {
            *self.lock().entry((operation, row)).or_default() += 1;
        }
    }
}

fn row_of(kind: &EventKind<'_>) -> Option<&'static str> {
    Some(match kind {
        EventKind::Completed { outcome, .. } => match outcome {
            OutcomeKind::Value => "executed",
            OutcomeKind::Error => "business errors kept",
            _ => "unknown outcome kept",
        },
        EventKind::Released { .. } => "system errors, key given back",
        EventKind::Replayed { waited: true, .. } => "waited",
        EventKind::Replayed { outcome, .. } => match outcome {
            OutcomeKind::Error => "business errors replayed",
            _ => "replayed",
        },
        EventKind::Refused { error } => match error.kind() {
            ErrorKind::Mismatch => "mismatched",
            ErrorKind::Duplicate { .. } => "refused, done before",
            ErrorKind::Running { .. } => "refused, still running",
            ErrorKind::Unknown { .. } | ErrorKind::Exhausted { .. } => "refused, outcome unknown",
            _ => "refused, other",
        },
        EventKind::Claimed { .. }
        | EventKind::KeyDerived { .. }
        | EventKind::Renewed
        | EventKind::RenewalFailed { .. } => {
            return None;
        }
        _ => TROUBLE,
    })
}
