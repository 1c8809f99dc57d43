//! Metrics of calls, by the facade of the crate `metrics`.

mod handles;

use metrics::{
    Counter, Gauge, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
};

use self::handles::{Handles, MESSAGES_SKIPPED, Operations, SUBSCRIPTIONS_LOST};
use super::observer::{Event, EventKind, Observer};
use crate::record::OutcomeKind;

/// The observer for the crate [`metrics`]: counts and times calls.
///
/// [`guide::observing`](crate::guide::observing) has the list of its metrics: their names, labels and units are stable.
/// Labels are the name of the operation, and words of closed sets; never a key. The first 500 operations have a label of
/// their own, and all others share `other`.
///
/// ```
/// use idem_runtime::{Engine, observe::{MetricsObserver, StderrObserver}, store::memory::MemoryStore};
///
/// // The recorder of your exporter is installed before this.
/// let metrics = MetricsObserver::new();
/// let engine = Engine::builder(MemoryStore::new()).observer((metrics, StderrObserver)).build()?;
/// # Ok::<_, idem_runtime::Error>(())
/// ```
///
/// # Cost
///
/// An operation registers its metrics at its first call. After that, an event allocates nothing, takes no lock, and adds
/// to the atomics of the recorder. A call that queries the store reads the clock for its histograms; a call that is
/// answered in this process does not.
pub struct MetricsObserver {
    operations: Operations,
    engine: EngineHandles,
}

/// The metrics of the whole engine.
struct EngineHandles {
    degraded: Gauge,
    clock_steps: Counter,
    warnings: Counter,
}

impl MetricsObserver {
    /// Bounds of histograms in seconds, for exporters that need some.
    ///
    /// From 0.1 ms to 1 min. With `metrics-exporter-prometheus`: `PrometheusBuilder::set_buckets`.
    pub const SECONDS: [f64; 18] = [
        0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
        2.5, 5.0, 10.0, 30.0, 60.0,
    ];

    /// Describes the metrics to the installed recorder.
    ///
    /// A recorder that is installed later never gets those of an operation that was called before.
    #[must_use]
    pub fn new() -> Self {
        describe();
        Self {
            operations: Operations::default(),
            engine: EngineHandles {
                degraded: gauge!("idem_degraded"),
                clock_steps: counter!("idem_clock_steps_total"),
                warnings: counter!("idem_warnings_total"),
            },
        }
    }

    /// Sets `idem_unknown_records`, the store's number of unknown outcomes.
    ///
    /// No call knows it: list them every few minutes, in one process.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use idem_runtime::admin::EntryFilter;
    /// use idem_runtime::{Engine, observe::MetricsObserver, store::memory::MemoryStore};
    ///
    /// let engine = Engine::builder(MemoryStore::new()).observer(MetricsObserver::new()).build()?;
    /// let unknown = engine.entries().state(EntryFilter::Unknown).count().await?;
    /// MetricsObserver::set_unknown_records(unknown);
    /// # Ok::<_, idem_runtime::Error>(()) }).unwrap();
    /// ```
    #[allow(
        clippy::cast_precision_loss,
        reason = "no store holds 2^53 records of an unknown outcome"
    )]
    pub fn set_unknown_records(records: u64) {
        gauge!("idem_unknown_records").set(records as f64);
    }

    fn of(&self, operation: &str) -> &Handles {
        self.operations.get(operation)
    }
}

impl Default for MetricsObserver {
    fn default() -> Self {
        Self::new()
    }
}

debug_fields!(MetricsObserver {});

impl Observer for MetricsObserver {
    fn observe(&self, event: &Event<'_>) {
        let handles = || self.of(event.operation);
        match &event.kind {
            EventKind::Ended { end } => handles().ended(end),
            EventKind::BodyStarted => handles().running.increment(1.0),
            EventKind::Completed {
                outcome: OutcomeKind::Unknown,
                ..
            } => handles().unknown_outcomes.increment(1),
            EventKind::StepKept { .. } => handles().steps_kept.increment(1),
            EventKind::StepReplayed { .. } => handles().steps_replayed.increment(1),
            EventKind::StepUnused { .. } => handles().steps_unused.increment(1),
            EventKind::Renewed => handles().renewals.increment(1),
            EventKind::RenewalFailed { .. } => handles().renewals_failed.increment(1),
            EventKind::LeaseLost { .. } => handles().leases_lost.increment(1),
            EventKind::Unprotected { .. } => handles().unprotected.increment(1),
            EventKind::Unsaved { .. } => handles().unsaved.increment(1),
            EventKind::DeadLetter { reason, .. } => handles().dead_letter(reason),
            EventKind::Unsettled { .. } => handles().unsettled.increment(1),
            EventKind::Consuming { .. } => handles().consuming(),
            EventKind::BrokerLost { .. } => handles().broker_lost(),
            EventKind::BrokerRegained { .. } | EventKind::BrokerLeft { .. } => {
                handles().broker().decrement(1.0);
            }
            EventKind::SubscriptionLost { .. } => handles().count(SUBSCRIPTIONS_LOST, 1),
            EventKind::MessageSkipped { .. } => handles().count(MESSAGES_SKIPPED, 1),
            EventKind::Degraded { .. } => self.engine.degraded.set(1.0),
            EventKind::Restored => self.engine.degraded.set(0.0),
            EventKind::ClockStepped { .. } => self.engine.clock_steps.increment(1),
            EventKind::Warning { .. } => self.engine.warnings.increment(1),
            // Parts of a call whose end is counted, or of no use as a number.
            EventKind::Claimed { .. }
            | EventKind::Replayed { .. }
            | EventKind::Refused { .. }
            | EventKind::Completed { .. }
            | EventKind::KeyDerived { .. }
            | EventKind::Reconciling { .. }
            | EventKind::Reconciled { .. }
            | EventKind::Resolved { .. }
            | EventKind::Adopted
            | EventKind::Released { .. }
            | EventKind::Dropped
            | EventKind::Panicked
            | EventKind::FormerDigestKey => {}
        }
    }

    fn wants_calls(&self) -> bool {
        true
    }
}

/// Counters, each with its text. Two spaces part them.
const COUNTERS: &str = "\
idem_calls_total  Calls that have ended, by outcome and result.
idem_local_cache_hits_total  Calls that were answered by the local cache.
idem_unknown_outcomes_total  Outcomes that were stored as unknown.
idem_steps_total  Steps whose result was stored, replayed, or not asked for.
idem_renewals_total  Lease renewals, by whether the store has confirmed them.
idem_leases_lost_total  Leases that were lost while their body ran.
idem_unprotected_total  Bodies that ran without protection.
idem_unsaved_total  Answers that were returned before they were stored, or are not stored.
idem_dead_letters_total  Messages that a consumer moved to the dead-letter queue.
idem_unsettled_total  Verdicts of a consumer that its broker did not take.
idem_broker_losses_total  How often a consumer lost its broker.
idem_subscriptions_lost_total  Subscriptions of a consumer that its broker has lost.
idem_messages_skipped_total  Unsettled messages of a consumer that its broker has removed.
idem_clock_steps_total  Steps of the clock of the store's server.
idem_warnings_total  Warnings of the engine and its store.";

const GAUGES: &str = "\
idem_running_calls  Calls whose body has started and which have not ended.
idem_unknown_records  Records of an unknown outcome in the store, at the last listing.
idem_broker_lost  Consumers whose broker is lost.
idem_degraded  1 while the fast one of two layered stores is not used.";

const HISTOGRAMS: &str = "\
idem_body_seconds  Time of bodies.
idem_store_seconds  Time of a call's requests to the store.
idem_wait_seconds  Time for which a call waited for the body of another call.";

/// Describes every metric to the recorder.
fn describe() {
    let each = |list: &'static str| list.lines().filter_map(|line| line.split_once("  "));
    for (name, text) in each(COUNTERS) {
        describe_counter!(name, Unit::Count, text);
    }
    for (name, text) in each(GAUGES) {
        describe_gauge!(name, Unit::Count, text);
    }
    for (name, text) in each(HISTOGRAMS) {
        describe_histogram!(name, Unit::Seconds, text);
    }
}
