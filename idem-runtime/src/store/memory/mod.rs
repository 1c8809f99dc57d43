//! Records in the memory of this process, for tests and tools.
//!
//! For tools of one process, and for trying idem out: its promises hold within one process, until that process ends.

mod capacity;
mod expiry;

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;

use bytes::Bytes;

use self::capacity::Capacity;
use self::expiry::Records;
use super::invalidation::Listeners;
use super::read_cache::{Copied, ReadCache, is_final, supersedes};
use super::{
    Admission, AppendReply, ClaimReply, ClaimRequest, CompleteReply, Current, Header, Journal,
    ListReply, ListRequest, Listed, Listener, Owner, ReadReply, Record, RecordKey, ReleaseReply,
    Remains, RenewReply, ResolveReply, State, Store, StoreError, StoreFuture, Unreadable, Watch,
    Watchers, no_position,
};
use crate::env::clock::{Clock, SystemClock};
use crate::env::lock::Lock;
use crate::env::striped::Padded;
use crate::identity::fingerprint::Fingerprint;
use crate::identity::key::KeyDigest;
use crate::record::transition;

/// A store in memory. Clones share the same records.
///
/// It is sharded, bounded by entries and bytes, and expires records exactly. When it is full it refuses new claims; it
/// never drops a record that is alive, because that would run a body twice.
///
/// It replies immediately, without I/O. A call of an engine on it takes part in tokio's cooperative budget all the
/// same: a task that makes one call after the other yields to other tasks.
#[derive(Clone)]
pub struct MemoryStore(Arc<MemoryState>);

/// Configures a [`MemoryStore`].
#[derive(Debug)]
#[must_use]
pub struct MemoryStoreBuilder {
    clock: Arc<dyn Clock>,
    max_entries: usize,
    max_bytes: usize,
}

impl MemoryStoreBuilder {
    /// The maximum number of records; default 1,000,000. A claim above it is refused.
    pub fn max_entries(mut self, max_entries: usize) -> Self {
        self.max_entries = max_entries;
        self
    }

    /// The maximum memory of the records, in bytes; default 1 GiB.
    ///
    /// Bookkeeping is included. A claim above it is refused; an answer of a running body is kept all the same.
    pub fn max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// The clock by which records and leases end; default the machine's.
    ///
    /// Waits and time-outs go by [that of the engine](crate::EngineBuilder::clock), which a test sets to the same: see
    /// [testing](crate::guide::testing).
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Builds the store.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        let capacity = Arc::new(Padded(Capacity::new(self.max_entries, self.max_bytes)));
        MemoryStore(Arc::new(MemoryState {
            shards: std::array::from_fn(|_| Padded(Shard::new(&capacity))),
            start_us: (self.clock.calendar_us()).saturating_sub(micros(self.clock.now())),
            clock: self.clock,
            capacity,
            watchers: Watchers::default(),
            listeners: Listeners::default(),
        }))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

debug_fields!(MemoryStore {
    entries: |it| it.len(),
    bytes: |it| it.bytes()
});

impl MemoryStore {
    /// A store with the default bounds.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Configures bounds and clock.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder {
            clock: Arc::new(SystemClock),
            max_entries: 1_000_000,
            max_bytes: 1 << 30,
        }
    }

    /// The number of records, including expired ones that are not swept yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.capacity.used()[0]
    }

    /// Whether the store has no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that the records take, bookkeeping included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.capacity.used()[1]
    }
}

#[cfg(any(test, feature = "testing"))]
impl MemoryStore {
    /// Stores raw bytes under a key, for tests of unreadable records.
    pub fn plant(&self, key: &RecordKey, bytes: Bytes, life: Duration) {
        let now = self.0.clock.now();
        self.0.records(key).put(key, bytes, now + life);
    }

    /// The raw bytes under a key, readable or not.
    #[must_use]
    pub fn peek(&self, key: &RecordKey) -> Option<Bytes> {
        let (mut records, now) = (self.0.records(key), self.0.clock.now());
        records.live(key, now).map(|slot| slot.bytes.clone())
    }
}

/// Few enough to sweep cheaply, and enough for little contention between threads.
const SHARDS: usize = 32;

struct MemoryState {
    /// In the order of the digests.
    shards: [Padded<Shard>; SHARDS],
    clock: Arc<dyn Clock>,
    /// The calendar time at the clock's zero, in microseconds since 1970.
    start_us: u64,
    /// Padding against false sharing: most calls change it, all read its neighbours.
    capacity: Arc<Padded<Capacity>>,
    watchers: Watchers,
    listeners: Listeners,
}

struct Shard {
    records: Lock<Records>,
    owners: Owners,
}

impl Shard {
    fn new(capacity: &Arc<Padded<Capacity>>) -> Self {
        Self {
            records: Lock::new(Records::new(capacity)),
            owners: Owners::default(),
        }
    }
}

/// The number of first bytes that the digests of a shard have.
const FIRST_BYTES: usize = 256 / SHARDS;

/// The shard of a digest, which is as good as random.
///
/// A caller that chooses digests of one shard contends with itself only.
fn shard_of(digest: &KeyDigest) -> usize {
    usize::from(digest.as_bytes()[0]) / FIRST_BYTES
}

/// The lowest digest of a shard, if there is such a shard.
fn first_digest(shard: usize) -> Option<KeyDigest> {
    let mut digest = [0; 32];
    digest[0] = (shard * FIRST_BYTES).try_into().ok()?;
    Some(KeyDigest::from_bytes(digest))
}

/// Owners of claims, without a system call for each.
///
/// Owners are compared only within the records of this process: a child of a fork has a copy of them, and no other
/// process sees the child's claims. So a secret start and a number that is used once are enough.
struct Owners {
    start: u128,
    used: AtomicU64,
}

impl Default for Owners {
    fn default() -> Self {
        Self {
            start: u128::from_be_bytes(*Owner::random().as_bytes()),
            used: AtomicU64::new(0),
        }
    }
}

impl Owners {
    fn new_owner(&self) -> Owner {
        let number = self.used.fetch_add(1, Ordering::Relaxed);
        // Multiplied by an odd number, so that no two products are the same. The product changes the first bytes,
        // because a log shows those, and they spread the back-off of callers.
        let spread = u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64;
        Owner::from_bytes(self.start.wrapping_add(spread).to_be_bytes())
    }
}

/// The bytes of a write, and how long they are kept.
type Change = (Bytes, Duration);

/// The change by which a record without an answer is stored.
fn with_journal(header: Header, journal: &Journal) -> Change {
    let retain = header.retain;
    (Record::with_journal(header, journal).into_bytes(), retain)
}

/// The same, with the journal of the record that was found.
fn rewritten(header: Header, found: Option<Current<'_>>) -> Change {
    let journal = found.map_or_else(Journal::default, |found| found.record.journal());
    with_journal(header, &journal)
}

/// The consequence of an operation's write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteEffect {
    /// A new record needs room.
    NeedsRoom,
    WakesWatchers,
    Nothing,
}

impl MemoryState {
    fn shard(&self, key: &RecordKey) -> &Shard {
        &self.shards[shard_of(key.digest())]
    }

    fn records(&self, key: &RecordKey) -> MutexGuard<'_, Records> {
        self.shard(key).records.lock()
    }

    /// One operation under the shard's lock: reads, lets `decide` choose a write, and writes.
    ///
    /// `decide` gets the time of the operation as well, by this clock.
    fn operate<T>(
        &self,
        key: &RecordKey,
        effect: WriteEffect,
        unreadable: impl FnOnce(Unreadable) -> T,
        decide: impl FnOnce(Option<Current<'_>>, Duration) -> (T, Option<Change>),
    ) -> Result<T, StoreError> {
        let now = self.clock.now();
        let mut records = self.records(key);
        // A few at a time, so that no operation pays for many.
        records.sweep(now, 4);
        let (reply, change) = match records.live(key, now) {
            None => {
                let decided = decide(None, now);
                if decided.1.is_some() && effect == WriteEffect::NeedsRoom {
                    self.make_room(&mut records, now)?;
                }
                decided
            }
            Some(slot) => match Header::decode(&slot.bytes) {
                Err(error) => (unreadable(error), None),
                Ok(header) => {
                    // Moved out of the slot instead of cloned, because most records have no other reader.
                    let record = Record::new(header, mem::take(&mut slot.bytes));
                    let current = Current {
                        record: &record,
                        left: slot.expires.saturating_sub(now),
                    };
                    let decided = decide(Some(current), now);
                    slot.bytes = record.into_bytes();
                    decided
                }
            },
        };
        let written = change.is_some();
        if let Some((bytes, life)) = change {
            records.put(key, bytes, now + life);
        }
        drop(records);
        if written && effect == WriteEffect::WakesWatchers {
            self.watchers.wake(key);
        }
        Ok(reply)
    }

    /// Stores a whole record, as `decide` changes it.
    fn store_record<T>(
        &self,
        key: &RecordKey,
        record: &Bytes,
        unreadable: fn(Unreadable) -> T,
        decide: impl FnOnce(Option<Current<'_>>, &Record) -> (T, Option<Record>),
    ) -> Result<T, StoreError> {
        let own = match Record::decode(record.clone()) {
            Ok(own) => own,
            Err(error) => return Ok(unreadable(error)),
        };
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = decide(current, &own);
            let change = write.map(|record| (record.header.retain, record));
            (
                reply,
                change.map(|(life, record)| (record.into_bytes(), life)),
            )
        };
        self.operate(key, WriteEffect::WakesWatchers, unreadable, decide)
    }

    /// Checks for room for another record; sweeps all shards without it.
    ///
    /// Simultaneous claims in several shards may find the same room.
    fn make_room(&self, locked: &mut Records, now: Duration) -> Result<(), StoreError> {
        if self.capacity.has_room() {
            return Ok(());
        }
        locked.sweep(now, usize::MAX);
        for shard in &self.shards {
            // Locked shards, of which this one is one, are skipped: waiting for one here could deadlock.
            if let Some(mut other) = shard.records.try_lock() {
                other.sweep(now, usize::MAX);
            }
        }
        let has_room = self.capacity.has_room();
        has_room.then_some(()).ok_or_else(|| self.capacity.full())
    }

    fn copy_of(&self, key: &RecordKey) -> Copied {
        let records = self.records(key);
        let slot = records.get(key)?;
        // Nearly every first call returns above, without reading the clock.
        let left = slot.expires.saturating_sub(self.clock.now());
        if left.is_zero() {
            return None;
        }
        Some((Record::decode(slot.bytes.clone()).ok()?, left))
    }

    /// Lists the records of one shard from a digest on, the position.
    fn list(&self, request: &ListRequest) -> Result<ListReply, StoreError> {
        let start = request.after.as_deref().map(str::parse).transpose();
        let start: Option<KeyDigest> = start.map_err(|_| no_position())?;
        let shard = start.as_ref().map_or(0, shard_of);
        let digest = |(key, ..): &(RecordKey, _, _)| *key.digest().as_bytes();
        let now = self.clock.now();
        let records = self.shards[shard].records.lock();
        let requested = records.all_live(now).filter(|(key, _)| {
            key.prefix() == &*request.prefix
                && (request.operation.as_ref()).is_none_or(|of| of == key.operation())
                && (start.as_ref()).is_none_or(|start| key.digest().as_bytes() >= start.as_bytes())
        });
        let matches = requested.filter_map(|(key, slot)| {
            let header = Header::decode(&slot.bytes);
            let left = slot.expires.saturating_sub(now);
            let matches = (header.as_ref()).map_or(true, |header| request.wants(header, left));
            matches.then(|| (key.clone(), header, left))
        });
        let mut matches: Vec<_> = matches.collect();
        drop(records);
        matches.sort_unstable_by_key(digest);
        let mut cut = request.limit.max(1).min(matches.len());
        // Records of one digest belong to one step.
        while cut < matches.len() && digest(&matches[cut]) == digest(&matches[cut - 1]) {
            cut += 1;
        }
        let next = match matches.get(cut) {
            Some((key, ..)) => Some(*key.digest()),
            None => first_digest(shard + 1),
        };
        let mut reply = ListReply {
            next: next.map(|next| next.to_string()),
            ..ListReply::default()
        };
        for (key, header, left) in matches.drain(..cut) {
            match header {
                Ok(header) => reply.found.push(Listed::new(key, header, left)),
                Err(_) => reply.unreadable += 1,
            }
        }
        Ok(reply)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Store for MemoryStore {
    fn new_owner(&self, key: &RecordKey) -> Owner {
        self.0.shard(key).owners.new_owner()
    }

    fn at_hand(&self, key: &RecordKey, asked: Fingerprint) -> Option<(Record, Duration)> {
        let copy = self.0.copy_of(key);
        copy.filter(|(Record { header, .. }, _)| {
            is_final(header) && header.fingerprint.matches(asked)
        })
    }

    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
        admission: &'a Admission,
    ) -> StoreFuture<'a, ClaimReply> {
        admission.sent();
        let decide = |current: Option<Current<'_>>, now| {
            // Fences are numbered by the clock, so that a step of the calendar makes none lower than those before.
            let now_us = self.0.start_us.saturating_add(micros(now));
            let (reply, write) = transition::claim(current, request, now_us);
            (
                reply,
                write.map(|record| (record.into_bytes(), request.retain)),
            )
        };
        let (effect, unreadable) = (WriteEffect::NeedsRoom, ClaimReply::Unreadable);
        StoreFuture::ready(self.0.operate(key, effect, unreadable, decide))
    }

    fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        _: Option<&'a Header>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        let (unreadable, decide) = (CompleteReply::Unreadable, transition::complete);
        StoreFuture::ready(self.0.store_record(key, record, unreadable, decide))
    }

    fn release<'a>(
        &'a self,
        key: &'a RecordKey,
        owner: &'a Owner,
        remains: Remains,
        journals: Option<(&'a Journal, Option<&'a Journal>)>,
    ) -> StoreFuture<'a, ReleaseReply> {
        let decide = |current: Option<Current<'_>>, _| {
            let kept = current.map(|current| current.record.journal());
            let kept = kept.unwrap_or_default();
            let (journal, seen) = journals.unwrap_or((&kept, None));
            let (reply, write) =
                transition::release_with_journal(current, *owner, remains, journal, seen);
            let change = current.zip(write).map(|(current, record)| {
                let life = transition::released_life(&current.record.header, remains);
                (record.into_bytes(), life.unwrap_or(current.left))
            });
            (reply, change)
        };
        let (effect, unreadable) = (WriteEffect::WakesWatchers, ReleaseReply::Unreadable);
        StoreFuture::ready(self.0.operate(key, effect, unreadable, decide))
    }

    fn renew<'a>(&'a self, key: &'a RecordKey, claim: &'a Header) -> StoreFuture<'a, RenewReply> {
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = transition::renew(current, claim);
            (reply, write.map(|header| rewritten(header, current)))
        };
        let (effect, unreadable) = (WriteEffect::Nothing, RenewReply::Unreadable);
        StoreFuture::ready(self.0.operate(key, effect, unreadable, decide))
    }

    fn keeps_journals(&self) -> bool {
        true
    }

    fn append<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: &'a Header,
        journal: &'a Journal,
        _known: usize,
    ) -> StoreFuture<'a, AppendReply> {
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = transition::append(current, claim, journal);
            let change = write.map(|(header, journal)| with_journal(header, &journal));
            (reply, change)
        };
        let (effect, unreadable) = (WriteEffect::Nothing, AppendReply::Unreadable);
        StoreFuture::ready(self.0.operate(key, effect, unreadable, decide))
    }

    fn resolve<'a>(
        &'a self,
        key: &'a RecordKey,
        seen: &'a Header,
        journal: Option<&'a Journal>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, ResolveReply> {
        let decide = |current: Option<Current<'_>>, new: &Record| {
            transition::resolve(current, seen, journal, new)
        };
        let reply = (self.0).store_record(key, record, ResolveReply::Unreadable, decide);
        self.0.listeners.resolved(key);
        StoreFuture::ready(reply)
    }

    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        StoreFuture::ready(Ok(Some(self.0.watchers.watch(key))))
    }

    fn listen(&self, prefix: &Arc<str>, listener: Weak<dyn Listener>) -> bool {
        self.0.listeners.add(prefix, listener);
        true
    }

    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        let decide = |current: Option<Current<'_>>, _| {
            let reply = current.map_or(ReadReply::Absent, |Current { record, left }| {
                let record = record.clone();
                ReadReply::Found { record, left }
            });
            (reply, None)
        };
        let (effect, unreadable) = (WriteEffect::Nothing, ReadReply::Unreadable);
        StoreFuture::ready(self.0.operate(key, effect, unreadable, decide))
    }

    fn list<'a>(&'a self, request: &'a ListRequest) -> StoreFuture<'a, ListReply> {
        StoreFuture::ready(self.0.list(request))
    }
}

/// A memory store in front of another: a cache of one process.
impl ReadCache for MemoryStore {
    fn look<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Copied> {
        StoreFuture::ready(Ok(self.0.copy_of(key)))
    }

    fn keep<'a>(
        &'a self,
        key: &'a RecordKey,
        copy: &'a Bytes,
        left: Duration,
    ) -> StoreFuture<'a, ()> {
        let Ok(header) = Header::decode(copy) else {
            return StoreFuture::ready(Ok(()));
        };
        let decide = |current: Option<Current<'_>>, _| {
            let replaces = |there: Current<'_>| supersedes(&header, &there.record.header);
            let kept = current.is_none_or(replaces);
            ((), kept.then(|| (copy.clone(), left)))
        };
        // A full cache makes no more copies until others have expired.
        let kept = self.0.operate(key, WriteEffect::NeedsRoom, |_| (), decide);
        if let State::Done { .. } = header.state {
            self.0.watchers.wake(key);
        }
        StoreFuture::ready(kept)
    }

    fn forget<'a>(&'a self, key: &'a RecordKey, owner: Option<&'a Owner>) -> StoreFuture<'a, ()> {
        let mut records = self.0.records(key);
        if let Some(slot) = records.live(key, self.0.clock.now())
            && let Ok(there) = Header::decode(&slot.bytes)
            && owner.is_none_or(|owner| there.owner == *owner)
        {
            records.remove(key);
        }
        drop(records);
        self.0.watchers.wake(key);
        StoreFuture::ready(Ok(()))
    }

    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        Store::watch(self, key)
    }

    fn is_shared(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
