//! Counts of the engine's events, and their table.

use std::collections::BTreeMap;
use std::fmt;
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

/// An unexpected event.
const TROUBLE: &str = "TROUBLE";

/// Counts the events of an engine. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts(Arc<Mutex<BTreeMap<(Operation, &'static str), u64>>>);

impl Counts {
    /// How often a row was counted for each operation.
    fn of(&self, row: &'static str) -> [u64; 3] {
        let counts = self.lock();
        let of = |operation| counts.get(&(operation, row)).copied().unwrap_or_default();
        Operation::ALL.map(of)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Operation, &'static str), u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A row per result of a call: its number per operation and the sum.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = "the calls, by idem";
        let [pay, refund, notify, all] = ["pay", "refund", "notify", "all"];
        writeln!(f, "  {head:<30}{pay:>8}{refund:>8}{notify:>8}{all:>8}")?;
        let mut row = |name, [pay, refund, notify]: [u64; 3], note| {
            let all = pay + refund + notify;
            writeln!(
                f,
                "  {name:<30}{pay:>8}{refund:>8}{notify:>8}{all:>8}   {note}"
            )
        };
        let mut calls = [0; 3];
        for (name, note) in ROWS.lines().filter_map(|row| row.split_once(": ")) {
            let counts = self.of(name);
            calls = [0, 1, 2].map(|i| calls[i] + counts[i]);
            row(name, counts, note)?;
        }
        row("calls", calls, "")?;
        let trouble = self.of(TROUBLE);
        if trouble != [0; 3] {
            row(
                TROUBLE,
                trouble,
                "answers not stored, leases lost, bodies dropped",
            )?;
        }
        Ok(())
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
