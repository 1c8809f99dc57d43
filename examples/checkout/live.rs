//! Recent events of the engine, recorded by its observer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use idem_runtime::{
    ErrorKind, Observer,
    observe::{Event, EventKind, StderrObserver},
    store::OutcomeKind,
};

/// Maximum number of events kept.
pub(crate) const KEPT: usize = 200;

/// The results of calls: the counters of the live page, beside `trouble`.
pub(crate) const RESULTS: [&str; 5] = ["executed", "replayed", "refused", "released", "unknown"];

/// An event that a person may want to see.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: SystemTime,
    pub(crate) operation: String,
    /// First characters of the digest of the key. The key itself stays private.
    pub(crate) digest: String,
    /// One of [`RESULTS`], or `trouble`.
    pub(crate) what: &'static str,
    pub(crate) detail: String,
}

/// The latest events and their counts. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live(Arc<Mutex<Log>>);

/// Snapshot of the events and counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    counts: BTreeMap<&'static str, u64>,
    pub(crate) submitted: u64,
    pub(crate) started: u64,
    pub(crate) ended: u64,
    /// The latest events, newest first.
    pub(crate) latest: VecDeque<Seen>,
}

impl Log {
    pub(crate) fn count(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or_default()
    }
}

impl Live {
    pub(crate) fn look(&self) -> Log {
        self.log().clone()
    }

    /// Counts a form that arrived.
    pub(crate) fn submitted(&self) {
        self.log().submitted += 1;
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Live {
    fn observe(&self, event: &Event<'_>) {
        // Prints the events that need attention, and no others.
        StderrObserver.observe(event);
        let mut log = self.log();
        match event.kind {
            EventKind::Claimed { .. } => log.started += 1,
            EventKind::Completed { .. } | EventKind::Released { .. } | EventKind::Adopted => {
                log.ended += 1;
            }
            _ => {}
        }
        let Some((what, detail)) = read(&event.kind) else {
            return;
        };
        let digest = event.key.map(ToString::to_string).unwrap_or_default();
        *log.counts.entry(what).or_default() += 1;
        log.latest.push_front(Seen {
            at: SystemTime::now(),
            operation: event.operation.to_owned(),
            digest: digest.chars().take(8).collect(),
            what,
            detail,
        });
        log.latest.truncate(KEPT);
    }
}

/// The result that an event is, and its details.
fn read(kind: &EventKind<'_>) -> Option<(&'static str, String)> {
    let (what, detail) = match kind {
        EventKind::Completed { outcome, .. } => match outcome {
            OutcomeKind::Value => ("executed", "its answer is stored".to_owned()),
            OutcomeKind::Error => ("executed", "its refusal is stored".to_owned()),
            _ => ("unknown", "its outcome is unknown".to_owned()),
        },
        EventKind::Replayed { waited, age, .. } => {
            let waited = if *waited {
                "waited for the first one; "
            } else {
                ""
            };
            let detail = format!("{waited}stored {} ms before", age.as_millis());
            ("replayed", detail)
        }
        EventKind::Adopted => ("replayed", "another attempt was first".to_owned()),
        EventKind::Released { .. } => ("released", "a repeat runs".to_owned()),
        EventKind::Refused { error } => {
            let what = match error.kind() {
                ErrorKind::Unknown { .. } | ErrorKind::Exhausted { .. } => "unknown",
                _ => "refused",
            };
            (what, error.to_string())
        }
        EventKind::Unprotected { reason }
        | EventKind::Unsaved { reason }
        | EventKind::LeaseLost { reason }
        | EventKind::Degraded { reason } => ("trouble", (*reason).to_owned()),
        EventKind::Warning { message } => ("trouble", (*message).to_owned()),
        EventKind::Panicked => ("trouble", "the body panicked".to_owned()),
        _ => return None,
    };
    Some((what, detail))
}
