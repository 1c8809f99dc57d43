//! Counts of records by operation and state.

use std::collections::BTreeMap;
use std::time::Duration;

use idem_runtime::admin::{Entry, EntryState};
use idem_runtime::store::OutcomeKind;
use serde_json::{Value, json};

use crate::state::is_exhausted;
use crate::text::millis;

/// The most operations that are counted apart: names may be made of data by mistake.
const MOST_OPERATIONS: usize = 1_000;
/// The name of the others.
const OTHERS: &str = "(other operations)";

/// The counts of an operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) running: u64,
    pub(crate) abandoned: u64,
    /// Abandoned or released ones without an attempt left; counted there as well.
    pub(crate) exhausted: u64,
    pub(crate) released: u64,
    pub(crate) values: u64,
    pub(crate) errors: u64,
    pub(crate) not_stored: u64,
    pub(crate) unknown: u64,
    /// The age of the oldest record that is running, abandoned, exhausted or unknown.
    pub(crate) oldest_unfinished: Option<Duration>,
    pub(crate) oldest: Option<Duration>,
}

impl Counts {
    pub(crate) fn all(&self) -> u64 {
        self.running
            + self.abandoned
            + self.released
            + self.values
            + self.errors
            + self.not_stored
            + self.unknown
    }

    fn add(&mut self, entry: &Entry, max_attempts: u16) {
        let (age, state) = (entry.age(), entry.state());
        let is_exhausted = is_exhausted(entry, max_attempts);
        self.exhausted += u64::from(is_exhausted);
        let (count, is_unfinished) = match state {
            EntryState::Running { .. } => (&mut self.running, true),
            EntryState::Abandoned => (&mut self.abandoned, true),
            EntryState::Released => (&mut self.released, is_exhausted),
            EntryState::Answered(OutcomeKind::Error) => (&mut self.errors, false),
            EntryState::Answered(_) => (&mut self.values, false),
            EntryState::NotStored => (&mut self.not_stored, false),
            // And what a later version may add: an operator should look at it.
            _ => (&mut self.unknown, true),
        };
        *count += 1;
        self.oldest = self.oldest.max(Some(age));
        if is_unfinished {
            self.oldest_unfinished = self.oldest_unfinished.max(Some(age));
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "records": self.all(),
            "running": self.running,
            "abandoned": self.abandoned,
            "exhausted": self.exhausted,
            "released": self.released,
            "values": self.values,
            "errors": self.errors,
            "not_stored": self.not_stored,
            "unknown": self.unknown,
            "oldest_unfinished_ms": self.oldest_unfinished.map(millis),
            "oldest_ms": self.oldest.map(millis),
        })
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            running: self.running + other.running,
            abandoned: self.abandoned + other.abandoned,
            exhausted: self.exhausted + other.exhausted,
            released: self.released + other.released,
            values: self.values + other.values,
            errors: self.errors + other.errors,
            not_stored: self.not_stored + other.not_stored,
            unknown: self.unknown + other.unknown,
            oldest_unfinished: self.oldest_unfinished.max(other.oldest_unfinished),
            oldest: self.oldest.max(other.oldest),
        }
    }
}

/// The counts of each operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    operations: BTreeMap<String, Counts>,
    pub(crate) unreadable: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, entry: &Entry, max_attempts: u16) {
        let operation = entry.operation();
        if let Some(counts) = self.operations.get_mut(operation) {
            return counts.add(entry, max_attempts);
        }
        let name = if self.operations.len() < MOST_OPERATIONS {
            operation
        } else {
            OTHERS
        };
        let counts = self.operations.entry(name.to_owned()).or_default();
        counts.add(entry, max_attempts);
    }

    pub(crate) fn operations(&self) -> impl ExactSizeIterator<Item = (&String, &Counts)> {
        self.operations.iter()
    }

    pub(crate) fn total(&self) -> Counts {
        let counts = self.operations.values();
        counts.fold(Counts::default(), |sum, counts| sum.plus(counts))
    }
}
