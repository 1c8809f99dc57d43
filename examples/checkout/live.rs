//! What the engine did lately, by what it tells its observer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use idem_runtime::{ErrorKind, Event, EventKind, Observer, OutcomeKind, StderrObserver};

/// How many events are kept.
pub const KEPT: usize = 200;

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Its body ran, and the answer is stored.
    Executed,
    /// It got a stored answer.
    Replayed,
    /// It got neither: another request under the same key, one that still runs, a forged token.
    Refused,
    /// Its body ran and failed, and the key was given back.
    Released,
    /// Nobody knows what came of it.
    Unknown,
    /// Something that an operator should look at. It is no call, and happens beside one.
    Trouble,
}

impl What {
    /// How many there are.
    const COUNT: usize = 6;

    /// How a call ends: in one of these.
    pub const ENDS: [Self; 5] = [
        Self::Executed,
        Self::Replayed,
        Self::Refused,
        Self::Released,
        Self::Unknown,
    ];

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
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
pub struct Seen {
    /// When.
    pub at: SystemTime,
    /// Of what.
    pub operation: String,
    /// The first characters of the digest of the key. The key itself is nobody's business.
    pub digest: String,
    /// What became of the call.
    pub what: What,
    /// More about it.
    pub detail: String,
}

/// The latest events and how many there were. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Live(Arc<Mutex<Log>>);

/// A look at them.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// How many there were of each.
    counts: [u64; What::COUNT],
    /// How many bodies were started.
    pub started: u64,
    /// How many of them have ended.
    pub ended: u64,
    /// The latest ones, the newest first.
    pub latest: VecDeque<Seen>,
}

impl Log {
    /// How many there were.
    #[must_use]
    pub fn count(&self, what: What) -> u64 {
        self.counts[what as usize]
    }
}

impl Live {
    /// What there is now.
    #[must_use]
    pub fn look(&self) -> Log {
        self.log().clone()
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Live {
    fn observe(&self, event: &Event<'_>) {
        // Says what must not go unseen, and is silent otherwise.
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
        EventKind::Completed { outcome, late } => {
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
