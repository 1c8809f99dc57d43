//! Calls of one key in this process share one claim and one wait.
//!
//! The first call *leads*: it claims. The others follow: they wait until the leader's claim has led
//! to an answer, which all of them get without asking the store, or until somebody has to ask again;
//! then one of them leads. While the body runs elsewhere nobody leads: a [vigil](crate::lifecycle::remote_wait) asks
//! for all of them.

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

/// Few enough to cost nothing, enough that two threads seldom meet.
const SHARDS: usize = 32;

/// When a call is worth repeating whose answer is being stored.
const STORING: Duration = Duration::from_millis(100);
/// A call may be told what the store was asked for up to this long before the call began: calls that come at
/// once share one claim. A reset by another process may lie in between, so longer than that is too long.
const AT_ONCE: Duration = Duration::from_millis(5);

/// What a claim has led to, for everybody who waited for it.
#[derive(Clone)]
pub(crate) enum Landing {
    /// The finished record.
    Done {
        record: Record,
        /// When the store was asked for it.
        sent: Duration,
        /// How long the store would still keep it, at this moment of the clock.
        left: Duration,
        at: Duration,
        /// Somebody who can find out has just been asked.
        asked: bool,
        /// `left` is exact; else there may be more.
        dated: bool,
    },
    /// A refusal, and the limit under which it was asked for: under another one the store may say
    /// something else.
    Refused {
        error: Error,
        /// When the store was asked; where it gave no reply, when that was clear.
        sent: Duration,
        max_attempts: Option<NonZeroU16>,
    },
    /// There is no record under a former name, where calls begin none.
    Absent,
}

impl Landing {
    /// Whether a call that began at `began` may be told this. The record may have been reset since the store
    /// was asked, and before the call began.
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
    /// Somebody has to ask the store.
    Ask,
    Landed(Landing),
}

/// The lease of a body that runs in this process.
pub(crate) trait LocalLease: Send + Sync {
    /// What is left of it; zero also while its answer is being stored.
    fn remaining(&self) -> Duration;

    /// Whether another process may hold the claim.
    fn is_over(&self) -> bool;
}

enum Phase {
    /// Nobody leads.
    Vacant,
    /// A claim is under way, at the latest until this moment of the clock.
    Asking(Duration),
    /// The body runs in this process.
    Here(Weak<dyn LocalLease>),
    /// The body runs elsewhere, surely until this moment of the clock.
    Elsewhere(Duration),
}

struct Flight {
    id: u64,
    fingerprint: Fingerprint,
    phase: Phase,
    /// Made for the first follower: most calls have none.
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

/// Some of the keys, under one lock. Whoever takes part in a flight holds on to this, and not to all of
/// them: to count that up and down would be for two threads to meet at every call.
type Shard = Padded<Mutex<Keys>>;

#[derive(Default)]
struct Keys {
    flights: HashMap<KeyDigest, Flight, Spread>,
    next_id: u64,
}

fn lock(shard: &Shard) -> MutexGuard<'_, Keys> {
    // Nothing panics while it is held.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The keys that calls of an engine are busy with.
pub(crate) struct Flights {
    shards: [Arc<Shard>; SHARDS],
}

/// How a call takes part.
pub(crate) enum Join {
    /// It claims, and tells the others.
    Lead(Ticket),
    /// It waits to be told, and joins again after this time: when the lease that it waits for, as it is
    /// now, is over, or a claim should have its reply.
    Follow(Follower, Option<Duration>),
    /// It asks for something else under the same key, and claims for itself.
    Alone,
}

impl Flights {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            shards: std::array::from_fn(|_| Arc::default()),
        })
    }

    fn shard(&self, key: &KeyDigest) -> &Arc<Shard> {
        // A digest is as good as random.
        &self.shards[usize::from(key.as_bytes()[0]) % SHARDS]
    }

    /// A claim that begins at `now` has a reply, or is given up, `within` this time.
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
        // Taken by this call, if it leads.
        keys.next_id += 1;
        let new = |id| Flight {
            id,
            fingerprint,
            phase: asking(),
            tell: None,
        };
        let Keys { flights, next_id } = &mut *keys;
        let flight = match flights.entry(*key) {
            Entry::Vacant(entry) => {
                let id = entry.insert(new(*next_id)).id;
                return Join::Lead(Ticket::new(shard, key, id));
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        // A lease that has run out here may be somebody else's: the store knows. A claim that should
        // have its reply by now is in the hands of a call that nobody polls.
        let is_over = match &flight.phase {
            Phase::Here(lease) => lease.upgrade().is_none_or(|lease| lease.is_over()),
            Phase::Asking(until) => *until <= now,
            _ => false,
        };
        if is_over {
            flight.tell(Signal::Ask);
            *flight = new(*next_id);
            return Join::Lead(Ticket::new(shard, key, flight.id));
        }
        // Only of equal requests is the answer of one that of the other.
        if flight.fingerprint != fingerprint {
            return Join::Alone;
        }
        if let Phase::Vacant = flight.phase {
            flight.phase = asking();
            flight.tell(Signal::Wait);
            return Join::Lead(Ticket::new(shard, key, flight.id));
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

    /// Makes a call the leader of the key that asked for itself and was granted the claim. Followers of another request
    /// ask again.
    pub(crate) fn take_over(
        &self,
        key: &KeyDigest,
        fingerprint: Fingerprint,
        until: Duration,
    ) -> Ticket {
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
        Ticket::new(shard, key, id)
    }

    /// The answer of this key was taken back: what a claim says that was sent before is not for calls
    /// that begin after. Those that wait ask again.
    pub(crate) fn forget(&self, key: &KeyDigest) {
        lock(self.shard(key)).flights.remove(key);
    }

    /// What is left of the lease that a follower waits for, as far as this process knows.
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

/// A call that waits for another one of this process.
pub(crate) struct Follower {
    /// Taken when this is dropped.
    told: Option<watch::Receiver<Signal>>,
    shard: Arc<Shard>,
    key: KeyDigest,
    id: u64,
}

impl Follower {
    fn new(shard: &Arc<Shard>, key: &KeyDigest, id: u64, told: watch::Receiver<Signal>) -> Self {
        Self {
            told: Some(told),
            shard: Arc::clone(shard),
            key: *key,
            id,
        }
    }

    /// Waits for the answer. `None`: ask again.
    pub(crate) async fn landing(&mut self) -> Option<Landing> {
        let told = self.told.as_mut()?;
        loop {
            // The end of a flight without a word means the same as being asked to ask.
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
    /// The last one to go of a flight that nobody leads takes it away.
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

/// The duty to tell the followers. Dropped, it makes one of them ask again.
pub(crate) struct Ticket {
    shard: Arc<Shard>,
    key: KeyDigest,
    id: u64,
    /// They were told, once and for all.
    told: AtomicBool,
}

impl Ticket {
    fn new(shard: &Arc<Shard>, key: &KeyDigest, id: u64) -> Self {
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

    /// The body runs elsewhere, surely until `until`.
    pub(crate) fn elsewhere(&self, until: Duration) {
        self.change(|flight| flight.phase = Phase::Elsewhere(until));
    }

    /// The leader waits like everybody else.
    pub(crate) fn follow(&self) -> Option<Follower> {
        let told = self.change(Flight::follow)?;
        Some(Follower::new(&self.shard, &self.key, self.id, told))
    }

    /// Whether anybody waits to be told.
    pub(crate) fn is_watched(&self) -> bool {
        self.change(|flight| flight.is_watched()).unwrap_or(false)
    }

    /// Everybody who waits gets this, unless they were told already. Mostly nobody does, and then it is
    /// not made.
    pub(crate) fn land(&self, landing: impl FnOnce() -> Option<Landing>) {
        if self.told.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(flight) = self.end() else { return };
        if flight.is_watched() {
            flight.tell(landing().map_or(Signal::Ask, Signal::Landed));
        }
    }

    /// The same, from the engine's own thread. `Some`: they are being told, and whoever called this sees
    /// to it.
    pub(crate) fn land_from_afar(mut self, landing: Landing) -> Option<Word<Signal>> {
        *self.told.get_mut() = true;
        let tell = self.end()?.tell?;
        tell.tell_from_afar(Signal::Landed(landing))
    }

    /// One of those who wait asks again, unless they were told already.
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

    /// From here on, who comes leads.
    fn end(&self) -> Option<Flight> {
        let mut keys = lock(&self.shard);
        match keys.flights.entry(self.key) {
            Entry::Occupied(entry) if entry.get().id == self.id => Some(entry.remove()),
            _ => None,
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests;
