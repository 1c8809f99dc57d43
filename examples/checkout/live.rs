//! Recent events of the engine, recorded by its observer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use idem_runtime::{
    ErrorKind, Observer,
    observe::{Event, EventKind, StderrObserver},
    store::OutcomeKind,
};

/// Maximum number of events kept.
pub(crate) const KEPT: usize = 200;

/// Result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The body ran, and the answer is stored.
    Executed,
    /// A stored answer was replayed.
    Replayed,
    /// Neither: another request under the same key, a running call, a forged token.
    Refused,
    /// The body ran and failed, and the key was released.
    Released,
    /// Unknown outcome.
    Unknown,
    /// An event for the operator. It is no call, and happens beside one.
    Trouble,
}

impl What {
    /// Number of variants.
    const COUNT: usize = 6;

    /// The results that end a call.
    pub(crate) const ENDS: [Self; 5] = [
        Self::Executed,
        Self::Replayed,
        Self::Refused,
        Self::Released,
        Self::Unknown,
    ];

    /// Name of the result.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::Replayed => "replayed",
            Self::Refused => "refused",
            Self::Released => "released",
            Self::Unknown => "unknown",
            Self::Trouble => "trouble",
        }
    }
}

/// One event.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Time of the event.
    pub(crate) at: SystemTime,
    /// Operation of the call.
    pub(crate) operation: String,
    /// First characters of the digest of the key. The key itself stays private.
    pub(crate) digest: String,
    /// Result of the call.
    pub(crate) what: What,
    /// Details.
    pub(crate) detail: String,
}

/// The latest events and their counts. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live(Arc<Mutex<Log>>);

/// Snapshot of the events and counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    /// Number of events of each kind.
    counts: [u64; What::COUNT],
    /// Number of bodies that were started.
    pub(crate) started: u64,
    /// Number of bodies that have ended.
    pub(crate) ended: u64,
    /// The latest events, newest first.
    pub(crate) latest: VecDeque<Seen>,
}

impl Log {
    /// Number of events of this kind.
    pub(crate) fn count(&self, what: What) -> u64 {
        self.counts[what as usize]
    }
}

impl Live {
    /// Snapshot of the current state.
    pub(crate) fn look(&self) -> Log {
        self.log().clone()
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Live {
    fn observe(&self, event: &Event<'_>) {
        // Prints the events that need attention, and no others.
        StderrObserver.observe(event);
        match event.kind {
            EventKind::Claimed { .. } => self.log().started += 1,
            EventKind::Completed { .. } | EventKind::Released { .. } | EventKind::Adopted => {
                self.log().ended += 1;
            }
            _ => {}
        }
        let Some((what, detail)) = read(&event.kind) else {
            return;
        };
        let digest = event.key.map(ToString::to_string).unwrap_or_default();
        let seen = Seen {
            at: SystemTime::now(),
            operation: event.operation.to_owned(),
            digest: digest.chars().take(8).collect(),
            what,
            detail,
        };
        let mut log = self.log();
        log.counts[what as usize] += 1;
        log.latest.push_front(seen);
        log.latest.truncate(KEPT);
    }
}

fn read(kind: &EventKind<'_>) -> Option<(What, String)> {
    let (what, detail) = match kind {
        EventKind::Completed { outcome, late, .. } => {
            let late = if *late { ", late" } else { "" };
            match outcome {
                OutcomeKind::Value => (What::Executed, format!("its answer is stored{late}")),
                OutcomeKind::Error => (What::Executed, format!("its refusal is stored{late}")),
                _ => (What::Unknown, "nobody knows what came of it".to_owned()),
            }
        }
        EventKind::Replayed {
            waited: true, age, ..
        } => (
            What::Replayed,
            format!(
                "waited for the first one; stored {} ms before",
                age.as_millis()
            ),
        ),
        EventKind::Replayed { age, .. } => (
            What::Replayed,
            format!("stored {} ms before", age.as_millis()),
        ),
        EventKind::Adopted => (What::Replayed, "another attempt was first".to_owned()),
        EventKind::Released { .. } => (What::Released, "a repeat runs".to_owned()),
        EventKind::Refused { error } => {
            let what = match error.kind() {
                ErrorKind::Unknown { .. } | ErrorKind::Exhausted { .. } => What::Unknown,
                _ => What::Refused,
            };
            (what, error.to_string())
        }
        EventKind::Unprotected { reason }
        | EventKind::Unsaved { reason }
        | EventKind::LeaseLost { reason }
        | EventKind::Degraded { reason } => (What::Trouble, (*reason).to_owned()),
        EventKind::Warning { message } => (What::Trouble, (*message).to_owned()),
        EventKind::Panicked => (What::Trouble, "the body panicked".to_owned()),
        _ => return None,
    };
    Some((what, detail))
}
