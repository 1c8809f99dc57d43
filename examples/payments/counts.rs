//! Counts of the engine's events: the source of the table.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use idem_runtime::{
    ErrorKind, Observer,
    observe::{Event, EventKind, StderrObserver},
    store::OutcomeKind,
};

use super::request::Operation;

/// What the engine did. Each call ends with exactly one of these, the last two excepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    /// The body ran, and its value is stored.
    Executed,
    /// The body ran, and its business error is stored.
    ErrorKept,
    /// The body ran, its outcome is unknown, and that is stored.
    UnknownKept,
    /// The body ran into a system error, and the key was released.
    Released,
    /// A stored value was replayed.
    Replayed,
    /// A stored business error was replayed.
    ErrorReplayed,
    /// The call met the running one, waited for it and got its answer.
    Waited,
    /// The key was used before with other content.
    Mismatched,
    /// Done before, and repeats are refused.
    Duplicate,
    /// The first call is still running.
    Running,
    /// An earlier attempt ended with an unknown outcome.
    Unknown,
    /// Refused for another reason, such as an unavailable store.
    OtherRefusal,
    /// A claim was granted: a body started.
    Claimed,
    /// An unexpected event: an answer not stored, a lost lease, a dropped or panicked body.
    Trouble,
}

/// Counts the events of an engine. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Counts(Arc<Mutex<BTreeMap<(Operation, Seen), u64>>>);

impl Counts {
    /// How often the engine did this for an operation.
    #[must_use]
    pub fn of(&self, operation: Operation, seen: Seen) -> u64 {
        self.lock()
            .get(&(operation, seen))
            .copied()
            .unwrap_or_default()
    }

    /// Number of calls of an operation that ended.
    #[must_use]
    pub fn calls(&self, operation: Operation) -> u64 {
        let counts = self.lock();
        counts
            .range((operation, Seen::Executed)..=(operation, Seen::OtherRefusal))
            .map(|(_, count)| count)
            .sum()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Operation, Seen), u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Counts {
    fn observe(&self, event: &Event<'_>) {
        // Prints the events that need attention, and no others.
        StderrObserver.observe(event);
        let mut operations = Operation::ALL.into_iter();
        let Some(operation) = operations.find(|operation| operation.name() == event.operation)
        else {
            return;
        };
        let seen = match &event.kind {
            EventKind::Claimed { .. } => Seen::Claimed,
            EventKind::Completed { outcome, .. } => match outcome {
                OutcomeKind::Value => Seen::Executed,
                OutcomeKind::Error => Seen::ErrorKept,
                _ => Seen::UnknownKept,
            },
            EventKind::Released { .. } => Seen::Released,
            EventKind::Replayed { waited: true, .. } => Seen::Waited,
            EventKind::Replayed {
                outcome: OutcomeKind::Error,
                ..
            } => Seen::ErrorReplayed,
            EventKind::Replayed { .. } => Seen::Replayed,
            EventKind::Refused { error } => match error.kind() {
                ErrorKind::Mismatch => Seen::Mismatched,
                ErrorKind::Duplicate { .. } => Seen::Duplicate,
                ErrorKind::Running { .. } => Seen::Running,
                ErrorKind::Unknown { .. } | ErrorKind::Exhausted { .. } => Seen::Unknown,
                _ => Seen::OtherRefusal,
            },
            EventKind::KeyDerived { .. } | EventKind::Renewed | EventKind::RenewalFailed { .. } => {
                return;
            }
            _ => Seen::Trouble,
        };
        *self.lock().entry((operation, seen)).or_default() += 1;
    }
}
