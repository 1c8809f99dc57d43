//! Singleflight: calls of one key in this process share one claim and one wait.
//!
//! The first call *leads*: it claims. The others follow: they wait until the leader's claim has led to an answer, which
//! all of them get without a request to the store, or until another claim is needed; then one of them leads. While the
//! body runs in another process there is no leading call: a [remote wait](crate::call::remote_wait) queries the
//! store for all of them.

mod notifier;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;

use self::notifier::{LastSignal, Notifier};
use crate::env::digest_hasher::Spread;
use crate::env::lock::Lock;
use crate::env::striped::Padded;
use crate::error::Error;
use crate::identity::fingerprint::Fingerprint;
use crate::identity::key::KeyDigest;
use crate::record::Record;

/// The number of shards: few enough to cost nothing, enough that two threads seldom contend.
const SHARDS: usize = 32;

/// Retry delay of a call whose answer is being stored.
const STORING: Duration = Duration::from_millis(100);
/// How long before a call a shared reply may have been requested.
///
/// So simultaneous calls share one claim. Not longer, because a reset by another process may lie in between.
const SIMULTANEOUS: Duration = Duration::from_millis(5);

/// The result of a claim, for all calls that waited for it.
#[derive(Clone)]
pub(crate) enum SharedOutcome {
    /// The finished record.
    Done {
        record: Record,
        /// When the request for it was sent to the store.
        sent: Duration,
        /// How long the store would still keep it, at `at`.
        left: Duration,
        at: Duration,
        /// A reconcile hook has just run for the record.
        hook_ran: bool,
        /// `left` is exact; otherwise there may be more.
        dated: bool,
    },
    /// A refusal, and the limit under which the claim was sent: under another limit the store may reply differently.
    Refused {
        error: Error,
        /// When the claim was sent; where it had no reply, when that was clear.
        sent: Duration,
        max_attempts: Option<NonZeroU16>,
    },
    /// There is no record under a former name, where calls begin none.
    Absent,
}

impl SharedOutcome {
    /// Whether this may be returned to a call that began at `began`. The record may have been reset after the request
    /// to the store, and before the call began.
    pub(crate) fn is_for(&self, began: Duration) -> bool {
        match *self {
            Self::Done { sent, .. } | Self::Refused { sent, .. } => {
                began <= sent.saturating_add(SIMULTANEOUS)
            }
            Self::Absent => true,
        }
    }
}

/// A notification from a leader to its followers.
#[derive(Clone)]
pub(crate) enum Signal {
    /// A call leads again: the followers wait on.
    Wait,
    /// A follower has to claim.
    ClaimAgain,
    Outcome(SharedOutcome),
}

/// The lease of a body that runs in this process.
pub(crate) trait LocalLease: Send + Sync {
    /// The rest of the lease; zero also while the answer is being stored.
    fn remaining(&self) -> Duration;

    /// Whether another process may hold the claim.
    fn is_over(&self) -> bool;
}

/// The progress of a flight.
enum FlightPhase {
    /// No call leads.
    Vacant,
    /// A claim is in flight, until this moment at the latest.
    Claiming(Duration),
    /// The body runs in this process.
    Local(Weak<dyn LocalLease>),
    /// The body runs in another process, until this moment at least.
    Remote(Duration),
}

/// The calls of one key that are in progress in this process.
struct Flight {
    id: u64,
    fingerprint: Fingerprint,
    phase: FlightPhase,
    /// Created for the first follower: most calls have none.
    notifier: Option<Notifier<Signal>>,
}

impl Flight {
    fn notify(&self, signal: Signal) {
        if let Some(notifier) = &self.notifier {
            notifier.notify(signal);
        }
    }

    fn follow(&mut self) -> watch::Receiver<Signal> {
        let new = || Notifier::new(Signal::Wait);
        self.notifier.get_or_insert_with(new).follow()
    }

    fn has_followers(&self) -> bool {
        self.notifier.as_ref().is_some_and(Notifier::has_followers)
    }
}

/// Part of the flights, under one lock. The participants of a flight hold a reference to this shard, and not to all of
/// them: one reference count for all would be contended at every call.
type FlightShard = Padded<Lock<FlightTable>>;

#[derive(Default)]
struct FlightTable {
    flights: HashMap<KeyDigest, Flight, Spread>,
    next_id: u64,
}

/// The keys for which calls of an engine are in progress.
pub(crate) struct Flights {
    shards: [Arc<FlightShard>; SHARDS],
}

/// The role of a call.
pub(crate) enum Join {
    /// It claims, and notifies the followers.
    Lead(Leader),
    /// It waits for a notification, and joins again after this time: when the current lease of the flight is over, or
    /// a claim should have its reply.
    Follow(Follower, Option<Duration>),
    /// It has another request under the same key, and claims for itself.
    Alone,
}

impl Flights {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            shards: std::array::from_fn(|_| Arc::default()),
        })
    }

    fn shard(&self, key: &KeyDigest) -> &Arc<FlightShard> {
        // A digest is as good as random.
        &self.shards[usize::from(key.as_bytes()[0]) % SHARDS]
    }

    /// Joins the flight of a key.
    ///
    /// A claim that begins at `now` has a reply, or is given up, `within` this time.
    pub(crate) fn join(
        &self,
        key: &KeyDigest,
        fingerprint: Fingerprint,
        now: Duration,
        within: Duration,
    ) -> Join {
        let claiming = || FlightPhase::Claiming(now + within);
        let shard = self.shard(key);
        let mut table = shard.lock();
        // The id of this call, if it leads.
        table.next_id += 1;
        let new = |id| Flight {
            id,
            fingerprint,
            phase: claiming(),
            notifier: None,
        };
        let FlightTable { flights, next_id } = &mut *table;
        let flight = match flights.entry(*key) {
            Entry::Vacant(entry) => {
                let id = entry.insert(new(*next_id)).id;
                return Join::Lead(Leader::new(shard, key, id));
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        // A lease that has run out here may have another owner: the store knows. A claim without a reply by now belongs
        // to a call that is not being polled.
        let is_over = match &flight.phase {
            FlightPhase::Local(lease) => lease.upgrade().is_none_or(|lease| lease.is_over()),
            FlightPhase::Claiming(until) => *until <= now,
            _ => false,
        };
        if is_over {
            flight.notify(Signal::ClaimAgain);
            *flight = new(*next_id);
            return Join::Lead(Leader::new(shard, key, flight.id));
        }
        // The answer of a request is that of another one only if both are equal.
        if flight.fingerprint != fingerprint {
            return Join::Alone;
        }
        if let FlightPhase::Vacant = flight.phase {
            flight.phase = claiming();
            flight.notify(Signal::Wait);
            return Join::Lead(Leader::new(shard, key, flight.id));
        }
        let (id, receiver) = (flight.id, flight.follow());
        let again = match &flight.phase {
            // With nothing left, its answer is being stored, and followers wait for that.
            FlightPhase::Local(lease) => lease
                .upgrade()
                .map(|lease| lease.remaining())
                .filter(|left| !left.is_zero()),
            FlightPhase::Claiming(until) => Some(until.saturating_sub(now)),
            _ => None,
        };
        Join::Follow(Follower::new(shard, key, id, receiver), again)
    }

    /// Makes a call with a claim of its own the leader.
    ///
    /// Followers of another request claim again.
    pub(crate) fn take_over(
        &self,
        key: &KeyDigest,
        fingerprint: Fingerprint,
        until: Duration,
    ) -> Leader {
        let shard = self.shard(key);
        let mut table = shard.lock();
        table.next_id += 1;
        let flight = Flight {
            id: table.next_id,
            fingerprint,
            phase: FlightPhase::Claiming(until),
            notifier: None,
        };
        let id = flight.id;
        if let Some(other) = table.flights.insert(*key, flight) {
            other.notify(Signal::ClaimAgain);
        }
        Leader::new(shard, key, id)
    }

    /// Ends the flight of a key whose answer was withdrawn.
    ///
    /// The reply to an earlier claim is not for calls that begin later. Followers claim again.
    pub(crate) fn forget(&self, key: &KeyDigest) {
        self.shard(key).lock().flights.remove(key);
    }

    /// The rest of a follower's lease, in local knowledge.
    pub(crate) fn lease_left(&self, key: &KeyDigest, now: Duration) -> Option<Duration> {
        match self.shard(key).lock().flights.get(key)?.phase {
            FlightPhase::Local(ref lease) => {
                let left = lease.upgrade()?.remaining();
                // An answer that is being stored may be there at any moment.
                Some(left.max(STORING))
            }
            FlightPhase::Remote(until) => Some(until.saturating_sub(now)),
            _ => None,
        }
    }
}

/// A call that waits for another call of this process.
pub(crate) struct Follower {
    /// Taken when this is dropped.
    receiver: Option<watch::Receiver<Signal>>,
    shard: Arc<FlightShard>,
    key: KeyDigest,
    id: u64,
}

impl Follower {
    fn new(
        shard: &Arc<FlightShard>,
        key: &KeyDigest,
        id: u64,
        receiver: watch::Receiver<Signal>,
    ) -> Self {
        Self {
            receiver: Some(receiver),
            shard: Arc::clone(shard),
            key: *key,
            id,
        }
    }

    /// Waits for the answer. `None`: claim again.
    pub(crate) async fn outcome(&mut self) -> Option<SharedOutcome> {
        let receiver = self.receiver.as_mut()?;
        loop {
            // The end of a flight without a signal means the same as `ClaimAgain`.
            receiver.changed().await.ok()?;
            match &*receiver.borrow_and_update() {
                Signal::Wait => {}
                Signal::ClaimAgain => return None,
                Signal::Outcome(outcome) => return Some(outcome.clone()),
            }
        }
    }
}

impl Drop for Follower {
    /// The last follower of a flight without a leader removes the flight.
    fn drop(&mut self) {
        let mut table = self.shard.lock();
        self.receiver = None;
        if let Entry::Occupied(entry) = table.flights.entry(self.key) {
            let flight = entry.get();
            if flight.id == self.id
                && matches!(flight.phase, FlightPhase::Vacant)
                && !flight.has_followers()
            {
                entry.remove();
            }
        }
    }
}

/// The leader of a flight, which notifies the followers. When it is dropped, one of them claims again.
pub(crate) struct Leader {
    shard: Arc<FlightShard>,
    key: KeyDigest,
    id: u64,
    /// The followers have their last signal.
    notified: AtomicBool,
}

impl Leader {
    fn new(shard: &Arc<FlightShard>, key: &KeyDigest, id: u64) -> Self {
        Self {
            shard: Arc::clone(shard),
            key: *key,
            id,
            notified: AtomicBool::new(false),
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Flight) -> T) -> Option<T> {
        let mut table = self.shard.lock();
        let flight = table.flights.get_mut(&self.key);
        flight.filter(|flight| flight.id == self.id).map(change)
    }

    /// Records that the body runs in this process.
    pub(crate) fn set_local(&self, lease: Weak<dyn LocalLease>) {
        self.change(|flight| flight.phase = FlightPhase::Local(lease));
    }

    /// Records that the body runs in another process, surely until `until`.
    pub(crate) fn set_remote(&self, until: Duration) {
        self.change(|flight| flight.phase = FlightPhase::Remote(until));
    }

    /// Makes the leader wait as a follower.
    pub(crate) fn follow(&self) -> Option<Follower> {
        let receiver = self.change(Flight::follow)?;
        Some(Follower::new(&self.shard, &self.key, self.id, receiver))
    }

    /// Whether a follower waits.
    pub(crate) fn has_followers(&self) -> bool {
        self.change(|flight| flight.has_followers())
            .unwrap_or(false)
    }

    /// Notifies all followers of the outcome, unless they were notified.
    ///
    /// Usually there are none, and then `outcome` is not called.
    pub(crate) fn notify(&self, outcome: impl FnOnce() -> Option<SharedOutcome>) {
        if self.notified.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(flight) = self.end() else { return };
        if flight.has_followers() {
            flight.notify(outcome().map_or(Signal::ClaimAgain, Signal::Outcome));
        }
    }

    /// Notifies all followers from the engine's own thread.
    ///
    /// `Some`: the notification is under way, and the caller completes it.
    pub(crate) fn notify_last(mut self, outcome: SharedOutcome) -> Option<LastSignal<Signal>> {
        *self.notified.get_mut() = true;
        let notifier = self.end()?.notifier?;
        notifier.notify_last(Signal::Outcome(outcome))
    }

    /// Makes the followers join again, unless they were notified.
    ///
    /// One of them leads then.
    pub(crate) fn resign(&self) {
        if self.notified.load(Ordering::Acquire) || self.notified.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut table = self.shard.lock();
        if let Entry::Occupied(mut entry) = table.flights.entry(self.key)
            && entry.get().id == self.id
        {
            let flight = entry.get_mut();
            if flight.has_followers() {
                flight.phase = FlightPhase::Vacant;
                flight.notify(Signal::ClaimAgain);
            } else {
                entry.remove();
            }
        }
    }

    /// Ends the flight: from here on, the next call leads.
    fn end(&self) -> Option<Flight> {
        let mut table = self.shard.lock();
        match table.flights.entry(self.key) {
            Entry::Occupied(entry) if entry.get().id == self.id => Some(entry.remove()),
            _ => None,
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.resign();
    }
}

#[cfg(test)]
mod tests;
