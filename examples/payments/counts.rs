//! Counts of the engine's events: the source of the table.

use std::ops::Index;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use idem_runtime::{
    ErrorKind, Observer,
    observe::{Event, EventKind, StderrObserver},
    store::OutcomeKind,
};

use super::request::Operation;

/// Result of a call, by the engine's events. Each call has exactly one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

impl Seen {
    const COUNT: usize = Self::OtherRefusal as usize + 1;
    /// All variants.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Executed,
        Self::ErrorKept,
        Self::UnknownKept,
        Self::Released,
        Self::Replayed,
        Self::ErrorReplayed,
        Self::Waited,
        Self::Mismatched,
        Self::Duplicate,
        Self::Running,
        Self::Unknown,
        Self::OtherRefusal,
    ];
}

/// Counts the events of an engine. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Counts(Arc<[Cells; 3]>);

#[derive(Debug, Default)]
struct Cells {
    seen: [AtomicU64; Seen::COUNT],
    claimed: AtomicU64,
    trouble: AtomicU64,
}

/// The counts of one operation, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    seen: [u64; Seen::COUNT],
    /// Number of granted claims: bodies that started.
    pub claimed: u64,
    /// Unexpected events: an answer not stored, a lost lease, a dropped or panicked body.
    pub trouble: u64,
}

impl Index<Seen> for Tally {
    type Output = u64;

    fn index(&self, seen: Seen) -> &u64 {
        &self.seen[seen as usize]
    }
}

impl Tally {
    /// Number of calls that ended.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.seen.iter().sum()
    }

    /// Number of bodies that ended.
    #[must_use]
    pub fn bodies(&self) -> u64 {
        let ran = [
            Seen::Executed,
            Seen::ErrorKept,
            Seen::UnknownKept,
            Seen::Released,
        ];
        ran.iter().map(|seen| self[*seen]).sum()
    }
}

impl Counts {
    /// Counts of this operation.
    #[must_use]
    pub fn of(&self, operation: Operation) -> Tally {
        let cells = &self.0[operation as usize];
        Tally {
            seen: std::array::from_fn(|i| cells.seen[i].load(Ordering::Relaxed)),
            claimed: cells.claimed.load(Ordering::Relaxed),
            trouble: cells.trouble.load(Ordering::Relaxed),
        }
    }
}

impl Observer for Counts {
    fn observe(&self, event: &Event<'_>) {
        // Prints the events that need attention, and no others.
        StderrObserver.observe(event);
        let Some(operation) = Operation::ALL
            .into_iter()
            .find(|operation| operation.name() == event.operation)
        else {
            return;
        };
        let cells = &self.0[operation as usize];
        let seen = match &event.kind {
            EventKind::Claimed { .. } => {
                cells.claimed.fetch_add(1, Ordering::Relaxed);
                return;
            }
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
            EventKind::Renewed | EventKind::RenewalFailed { .. } => return,
            _ => {
                cells.trouble.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        cells.seen[seen as usize].fetch_add(1, Ordering::Relaxed);
    }
}
