//! The metrics of one operation, and the table of operations.

use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::env::call_end::{CallEnd, CallOutcome, CallResult};
use crate::env::digest_hasher::Spread;
use crate::error::ErrorKind;

/// The upper bound of operations with a label of their own.
///
/// Names that are made at run time would otherwise exhaust the memory of an exporter.
const OPERATIONS: usize = 500;

/// Slots of the table: a power of two, about half of which are taken at most.
const SLOTS: usize = 1024;

/// The label of all other operations.
const OTHER: &str = "other";

/// Metrics that only the operation of a consumer has.
const BROKER_LOST: &str = "idem_broker_lost";
const BROKER_LOSSES: &str = "idem_broker_losses_total";
pub(super) const SUBSCRIPTIONS_LOST: &str = "idem_subscriptions_lost_total";
pub(super) const MESSAGES_SKIPPED: &str = "idem_messages_skipped_total";

/// The metrics of one operation.
pub(super) struct Handles {
    operation: Arc<str>,
    /// `idem_calls_total`, by [`slot_of`].
    ///
    /// The frequent ones are registered with the operation, so that a rate has its first value; the others when there is
    /// one.
    calls: [OnceLock<Counter>; CALLS],
    pub(super) running: Gauge,
    body: Histogram,
    store: Histogram,
    wait: Histogram,
    local_cache_hits: Counter,
    pub(super) unknown_outcomes: Counter,
    pub(super) steps_kept: Counter,
    pub(super) steps_replayed: Counter,
    pub(super) steps_unused: Counter,
    pub(super) renewals: Counter,
    pub(super) renewals_failed: Counter,
    pub(super) leases_lost: Counter,
    pub(super) unprotected: Counter,
    pub(super) unsaved: Counter,
    pub(super) unsettled: Counter,
}

const FREQUENT: [CallOutcome; 7] = [
    CallOutcome::Executed(CallResult::Value),
    CallOutcome::Executed(CallResult::Error),
    CallOutcome::Executed(CallResult::Released),
    CallOutcome::Replayed(CallResult::Value),
    CallOutcome::Replayed(CallResult::Error),
    CallOutcome::Panicked,
    CallOutcome::Cancelled,
];

/// The number of outcomes: five with each result, two without, the refusals.
const CALLS: usize = 5 * 5 + 2 + ErrorKind::WORDS.len();

/// The place of an outcome in [`Handles::calls`].
fn slot_of(outcome: CallOutcome) -> Option<usize> {
    let (first, result) = match outcome {
        CallOutcome::Executed(result) => (0, result),
        CallOutcome::Replayed(result) => (5, result),
        CallOutcome::Reconciled(result) => (10, result),
        CallOutcome::Adopted(result) => (15, result),
        CallOutcome::Unprotected(result) => (20, result),
        CallOutcome::Panicked => return Some(25),
        CallOutcome::Cancelled => return Some(26),
        CallOutcome::Refused(kind) => {
            let word = ErrorKind::WORDS.iter().position(|word| *word == kind);
            return word.map(|word| 27 + word);
        }
    };
    let result = match result {
        CallResult::Value => 0,
        CallResult::Error => 1,
        CallResult::Released => 2,
        CallResult::Unknown => 3,
        CallResult::NotStored => 4,
    };
    Some(first + result)
}

impl Handles {
    fn new(operation: &str) -> Self {
        // One text for all labels.
        let operation = Arc::<str>::from(operation);
        let label = || Arc::clone(&operation);
        let count = |name: &'static str| counter!(name, "operation" => label());
        let step =
            |outcome| counter!("idem_steps_total", "operation" => label(), "outcome" => outcome);
        let renewal =
            |outcome| counter!("idem_renewals_total", "operation" => label(), "outcome" => outcome);
        let handles = Self {
            calls: [const { OnceLock::new() }; CALLS],
            running: gauge!("idem_running_calls", "operation" => label()),
            body: histogram!("idem_body_seconds", "operation" => label()),
            store: histogram!("idem_store_seconds", "operation" => label()),
            wait: histogram!("idem_wait_seconds", "operation" => label()),
            local_cache_hits: count("idem_local_cache_hits_total"),
            unknown_outcomes: count("idem_unknown_outcomes_total"),
            steps_kept: step("kept"),
            steps_replayed: step("replayed"),
            steps_unused: step("unused"),
            renewals: renewal("renewed"),
            renewals_failed: renewal("failed"),
            leases_lost: count("idem_leases_lost_total"),
            unprotected: count("idem_unprotected_total"),
            unsaved: count("idem_unsaved_total"),
            unsettled: count("idem_unsettled_total"),
            operation: Arc::clone(&operation),
        };
        for outcome in FREQUENT {
            handles.calls(outcome, |_| ());
        }
        handles
    }

    /// Gives the counter of calls of this outcome to `act`.
    fn calls(&self, outcome: CallOutcome, act: impl FnOnce(&Counter)) {
        let registered = || {
            counter!(
                "idem_calls_total",
                "operation" => Arc::clone(&self.operation),
                "outcome" => outcome.as_str(),
                "result" => outcome.result()
            )
        };
        match slot_of(outcome) {
            Some(slot) => act(self.calls[slot].get_or_init(registered)),
            None => act(&registered()),
        }
    }

    /// Counts a call that has ended, and records its times.
    pub(super) fn ended(&self, end: &CallEnd) {
        self.calls(end.outcome, |calls| calls.increment(1));
        if end.local {
            self.local_cache_hits.increment(1);
        }
        if let Some(body) = end.body {
            self.running.decrement(1.0);
            self.body.record(body);
        }
        if let Some(store) = end.store {
            self.store.record(store);
        }
        if let Some(waited) = end.waited {
            self.wait.record(waited);
        }
    }

    /// Counts a dead letter, for a word of a closed set.
    pub(super) fn dead_letter(&self, reason: &str) {
        let (operation, reason) = (Arc::clone(&self.operation), Arc::<str>::from(reason));
        counter!("idem_dead_letters_total", "operation" => operation, "reason" => reason)
            .increment(1);
    }

    /// Registers the metrics of a consumer.
    pub(super) fn consuming(&self) {
        self.broker().increment(0.0);
        for name in [BROKER_LOSSES, SUBSCRIPTIONS_LOST, MESSAGES_SKIPPED] {
            self.count(name, 0);
        }
    }

    pub(super) fn broker_lost(&self) {
        self.broker().increment(1.0);
        self.count(BROKER_LOSSES, 1);
    }

    /// The number of consumers whose broker is lost.
    pub(super) fn broker(&self) -> Gauge {
        gauge!(BROKER_LOST, "operation" => Arc::clone(&self.operation))
    }

    /// Adds to a counter of rare events.
    pub(super) fn count(&self, name: &'static str, by: u64) {
        counter!(name, "operation" => Arc::clone(&self.operation)).increment(by);
    }
}

/// The handles of each operation.
///
/// A hash table whose slots are set once, so that a look-up takes no lock.
pub(super) struct Operations {
    slots: Box<[OnceLock<Box<Handles>>]>,
    spread: Spread,
    taken: AtomicUsize,
    other: OnceLock<Box<Handles>>,
}

impl Default for Operations {
    fn default() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| OnceLock::new()).collect(),
            spread: Spread::default(),
            taken: AtomicUsize::new(0),
            other: OnceLock::new(),
        }
    }
}

impl Operations {
    /// The handles of this operation, registered with the first look-up.
    pub(super) fn get(&self, operation: &str) -> &Handles {
        let mut slot = usize::try_from(self.spread.hash_one(operation) >> 32).unwrap_or(0);
        // Some slot is empty: calls that race here may take a few more than the bound, and not the other half.
        loop {
            slot %= SLOTS;
            let handles = match self.slots[slot].get() {
                Some(handles) => handles,
                None if self.taken.load(Ordering::Relaxed) >= OPERATIONS => {
                    return self.other.get_or_init(|| Box::new(Handles::new(OTHER)));
                }
                None => self.slots[slot].get_or_init(|| {
                    self.taken.fetch_add(1, Ordering::Relaxed);
                    Box::new(Handles::new(operation))
                }),
            };
            if *handles.operation == *operation {
                return handles;
            }
            slot += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_a_slot_of_its_own() {
        let results = [
            CallResult::Value,
            CallResult::Error,
            CallResult::Released,
            CallResult::Unknown,
            CallResult::NotStored,
        ];
        let mut outcomes = vec![CallOutcome::Panicked, CallOutcome::Cancelled];
        outcomes.extend(ErrorKind::WORDS.map(CallOutcome::Refused));
        for result in results {
            outcomes.extend([
                CallOutcome::Executed(result),
                CallOutcome::Replayed(result),
                CallOutcome::Reconciled(result),
                CallOutcome::Adopted(result),
                CallOutcome::Unprotected(result),
            ]);
        }
        let mut slots: Vec<_> = outcomes.into_iter().filter_map(slot_of).collect();
        slots.sort_unstable();
        assert_eq!(slots, (0..CALLS).collect::<Vec<_>>());
    }

    #[test]
    fn operations_beyond_the_bound_share_a_label() {
        let operations = Operations::default();
        for number in 0..OPERATIONS {
            let name = format!("operation-{number}");
            assert_eq!(*operations.get(&name).operation, *name);
        }
        for name in ["one-more", "two-more"] {
            assert_eq!(&*operations.get(name).operation, OTHER);
        }
        assert_eq!(&*operations.get("operation-7").operation, "operation-7");
    }
}
