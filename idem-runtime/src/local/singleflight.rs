//! Singleflight: calls of one key in this process share one claim and one wait.
//!
//! The first call *leads*: it claims. The others follow: they wait until the leader's claim has led to an answer, which
//! all of them get without a request to the store, or until another claim is needed; then one of them leads. While the
//! body runs in another process there is no leading call: a [remote wait](crate::lifecycle::remote_wait) queries the
//! store for all of them.

mod word;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;

use self::word::{Tell, Word};
use crate::env::digest_hasher::Spread;
use crate::env::striped::Padded;
use crate::error::Error;
use crate::identity::fingerprint::Fingerprint;
use crate::identity::key::KeyDigest;
use crate::record::Record;

/// Few enough to cost nothing, enough that two threads seldom contend.
const SHARDS: usize = 32;

/// Retry delay of a call whose answer is being stored.
const STORING: Duration = Duration::from_millis(100);
/// How long before a call its reply may have been requested: simultaneous calls share one claim. A reset by another
/// process may lie in between, so longer than that is too long.
const AT_ONCE: Duration = Duration::from_millis(5);

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
        /// A reconcile hook has just run for it.
        asked: bool,
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
                began <= sent.saturating_add(AT_ONCE)
            }
            Self::Absent => true,
        }
    }
}

#[derive(Clone)]
pub(crate) enum Signal {
    Wait,
    /// A follower has to claim.
    Ask,
    Landed(SharedOutcome),
}

/// The lease of a body that runs in this process.
pub(crate) trait LocalLease: Send + Sync {
    /// The rest of the lease; zero also while the answer is being stored.
    fn remaining(&self) -> Duration;

    /// Whether another process may hold the claim.
    fn is_over(&self) -> bool;
}

enum Phase {
    /// No call leads.
    Vacant,
    /// A claim is in flight, at the latest until this moment of the clock.
    Asking(Duration),
    /// The body runs in this process.
    Here(Weak<dyn LocalLease>),
    /// The body runs in another process, surely until this moment of the clock.
    Elsewhere(Duration),
}

struct Flight {
    id: u64,
    fingerprint: Fingerprint,
    phase: Phase,
    /// Created for the first follower: most calls have none.
    tell: Option<Tell<Signal>>,
}

impl Flight {
    fn tell(&self, signal: Signal) {
        if let Some(tell) = &self.tell {
            tell.tell(signal);
        }
    }

    fn follow(&mut self) -> watch::Receiver<Signal> {
        let tell = self.tell.get_or_insert_with(|| Tell::new(Signal::Wait));
        tell.follow()
    }

    fn is_watched(&self) -> bool {
        self.tell.as_ref().is_some_and(Tell::is_watched)
    }
}

/// Some of the keys, under one lock. The participants of a flight hold a reference to this shard, and not to all of
/// them: one reference count for all would be contended at every call.
type FlightShard = Padded<Mutex<FlightTable>>;

#[derive(Default)]
struct FlightTable {
    flights: HashMap<KeyDigest, Flight, Spread>,
    next_id: u64,
}

fn lock(shard: &FlightShard) -> MutexGuard<'_, FlightTable> {
    // Nothing panics while the lock is held.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Joins the flight of a key. A claim that begins at `now` has a reply, or is given up, `within` this time.
    pub(crate) fn join(
        &self,
        key: &KeyDigest,
        fingerprint: Fingerprint,
        now: Duration,
        within: Duration,
    ) -> Join {
        let asking = || Phase::Asking(now + within);
        let shard = self.shard(key);
        let mut keys = lock(shard);
        // The id of this call, if it leads.
        keys.next_id += 1;
        let new = |id| Flight {
            id,
            fingerprint,
            phase: asking(),
            tell: None,
        };
        let FlightTable { flights, next_id } = &mut *keys;
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
            Phase::Here(lease) => lease.upgrade().is_none_or(|lease| lease.is_over()),
            Phase::Asking(until) => *until <= now,
            _ => false,
        };
        if is_over {
            flight.tell(Signal::Ask);
            *flight = new(*next_id);
            return Join::Lead(Leader::new(shard, key, flight.id));
        }
        // The answer of a request is that of another one only if both are equal.
        if flight.fingerprint != fingerprint {
            return Join::Alone;
        }
        if let Phase::Vacant = flight.phase {
            flight.phase = asking();
            flight.tell(Signal::Wait);
            return Join::Lead(Leader::new(shard, key, flight.id));
        }
        let (id, told) = (flight.id, flight.follow());
        let again = match &flight.phase {
            // With nothing left, its answer is being stored, and followers wait for that.
            Phase::Here(lease) => lease
                .upgrade()
                .map(|lease| lease.remaining())
                .filter(|left| !left.is_zero()),
            Phase::Asking(until) => Some(until.saturating_sub(now)),
            _ => None,
        };
        Join::Follow(Follower::new(shard, key, id, told), again)
    }

    /// Makes a call that was granted its own claim the leader of the key. Followers of another request claim again.
    pub(crate) fn take_over(
        &self,
        key: &KeyDigest,
        fingerprint: Fingerprint,
        until: Duration,
    ) -> Leader {
        let shard = self.shard(key);
        let mut keys = lock(shard);
        keys.next_id += 1;
        let flight = Flight {
            id: keys.next_id,
            fingerprint,
            phase: Phase::Asking(until),
            tell: None,
        };
        let id = flight.id;
        if let Some(other) = keys.flights.insert(*key, flight) {
            other.tell(Signal::Ask);
        }
        Leader::new(shard, key, id)
    }

    /// Ends the flight of a key whose answer was withdrawn: the reply to an earlier claim is not for calls that
    /// begin later. Followers claim again.
    pub(crate) fn forget(&self, key: &KeyDigest) {
        lock(self.shard(key)).flights.remove(key);
    }

    /// The rest of the lease that a follower waits for, in local knowledge.
    pub(crate) fn lease_left(&self, key: &KeyDigest, now: Duration) -> Option<Duration> {
        match lock(self.shard(key)).flights.get(key)?.phase {
            Phase::Here(ref lease) => {
                let left = lease.upgrade()?.remaining();
                // An answer that is being stored may be there at any moment.
                Some(left.max(STORING))
            }
            Phase::Elsewhere(until) => Some(until.saturating_sub(now)),
            _ => None,
        }
    }
}

/// A call that waits for another call of this process.
pub(crate) struct Follower {
    /// Taken when this is dropped.
    told: Option<watch::Receiver<Signal>>,
    shard: Arc<FlightShard>,
    key: KeyDigest,
    id: u64,
}

impl Follower {
    fn new(
        shard: &Arc<FlightShard>,
        key: &KeyDigest,
        id: u64,
        told: watch::Receiver<Signal>,
    ) -> Self {
        Self {
            told: Some(told),
            shard: Arc::clone(shard),
            key: *key,
            id,
        }
    }

    /// Waits for the answer. `None`: claim again.
    pub(crate) async fn landing(&mut self) -> Option<SharedOutcome> {
        let told = self.told.as_mut()?;
        loop {
            // The end of a flight without a signal means the same as `Ask`.
            told.changed().await.ok()?;
            match &*told.borrow_and_update() {
                Signal::Wait => {}
                Signal::Ask => return None,
                Signal::Landed(landing) => return Some(landing.clone()),
            }
        }
    }
}

impl Drop for Follower {
    /// The last follower of a flight without a leader removes the flight.
    fn drop(&mut self) {
        let mut keys = lock(&self.shard);
        self.told = None;
        if let Entry::Occupied(entry) = keys.flights.entry(self.key) {
            let flight = entry.get();
            if flight.id == self.id && matches!(flight.phase, Phase::Vacant) && !flight.is_watched()
            {
                entry.remove();
            }
        }
    }
}

/// The leader's duty to notify the followers. When it is dropped, one of them claims again.
pub(crate) struct Leader {
    shard: Arc<FlightShard>,
    key: KeyDigest,
    id: u64,
    /// The followers were notified, once and for all.
    told: AtomicBool,
}

impl Leader {
    fn new(shard: &Arc<FlightShard>, key: &KeyDigest, id: u64) -> Self {
        Self {
            shard: Arc::clone(shard),
            key: *key,
            id,
            told: AtomicBool::new(false),
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Flight) -> T) -> Option<T> {
        let mut keys = lock(&self.shard);
        let flight = keys.flights.get_mut(&self.key);
        flight.filter(|flight| flight.id == self.id).map(change)
    }

    /// The body runs here.
    pub(crate) fn here(&self, lease: Weak<dyn LocalLease>) {
        self.change(|flight| flight.phase = Phase::Here(lease));
    }

    /// The body runs in another process, surely until `until`.
    pub(crate) fn elsewhere(&self, until: Duration) {
        self.change(|flight| flight.phase = Phase::Elsewhere(until));
    }

    /// Makes the leader wait as a follower.
    pub(crate) fn follow(&self) -> Option<Follower> {
        let told = self.change(Flight::follow)?;
        Some(Follower::new(&self.shard, &self.key, self.id, told))
    }

    /// Whether a follower waits.
    pub(crate) fn is_watched(&self) -> bool {
        self.change(|flight| flight.is_watched()).unwrap_or(false)
    }

    /// Notifies all followers of this result, unless they were notified already. Usually there are none, and then it is
    /// not made.
    pub(crate) fn land(&self, landing: impl FnOnce() -> Option<SharedOutcome>) {
        if self.told.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(flight) = self.end() else { return };
        if flight.is_watched() {
            flight.tell(landing().map_or(Signal::Ask, Signal::Landed));
        }
    }

    /// The same, from the engine's own thread. `Some`: the notification is under way, and the caller completes it.
    pub(crate) fn land_from_afar(mut self, landing: SharedOutcome) -> Option<Word<Signal>> {
        *self.told.get_mut() = true;
        let tell = self.end()?.tell?;
        tell.tell_from_afar(Signal::Landed(landing))
    }

    /// Makes one of the followers claim again, unless they were notified already.
    pub(crate) fn give_up(&self) {
        if self.told.load(Ordering::Acquire) || self.told.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut keys = lock(&self.shard);
        if let Entry::Occupied(mut entry) = keys.flights.entry(self.key)
            && entry.get().id == self.id
        {
            let flight = entry.get_mut();
            if flight.is_watched() {
                flight.phase = Phase::Vacant;
                flight.tell(Signal::Ask);
            } else {
                entry.remove();
            }
        }
    }

    /// Ends the flight: from here on, the next call leads.
    fn end(&self) -> Option<Flight> {
        let mut keys = lock(&self.shard);
        match keys.flights.entry(self.key) {
            Entry::Occupied(entry) if entry.get().id == self.id => Some(entry.remove()),
            _ => None,
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests;
