//! Records in the memory of this process, for tests and tools.
//!
//! For tools of one process, and for trying idem out: its promises hold within one process, until that process ends.

mod capacity;
mod expiry;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use std::{fmt, mem};

use bytes::Bytes;

use self::capacity::{Capacity, SHARDS};
use self::expiry::Records;
use super::read_cache::{Copied, ReadCache, is_final, supersedes};
use super::{
    ClaimReply, ClaimRequest, CompleteReply, Current, HEADER, Header, ListReply, ListRequest,
    Listed, Listener, Listeners, Owner, ReadReply, Record, RecordKey, ReleaseReply, Remains,
    RenewReply, ResolveReply, State, Store, StoreError, StoreFuture, Unreadable, Watch, Watchers,
    no_position,
};
use crate::env::clock::{Clock, SystemClock};
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
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use idem_runtime::{Engine, store::memory::MemoryStore};
///
/// let engine = Engine::new(MemoryStore::new());
/// # drop(engine);
/// # });
/// ```
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
        MemoryStore(Arc::new(MemoryState {
            shards: (0..SHARDS).map(|_| Padded::default()).collect(),
            start_us: (self.clock.calendar_us()).saturating_sub(micros(self.clock.now())),
            clock: self.clock,
            capacity: Capacity::new(self.max_entries, self.max_bytes),
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

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("entries", &self.len())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

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
        self.0.used().0
    }

    /// Whether the store has no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that the records take, bookkeeping included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.used().1
    }
}

#[cfg(any(test, feature = "testing"))]
impl MemoryStore {
    /// Stores raw bytes under a key, for tests of unreadable records.
    pub fn plant(&self, key: &RecordKey, bytes: Bytes, life: Duration) {
        let now = self.0.clock.now();
        let mut records = self.0.records(key);
        records.put(key, bytes, now + life);
        self.0.capacity.update(&mut records.unpublished);
    }

    /// The raw bytes under a key, readable or not.
    #[must_use]
    pub fn peek(&self, key: &RecordKey) -> Option<Bytes> {
        let now = self.0.clock.now();
        let mut records = self.0.records(key);
        records.live(key, now).map(|live| live.slot.bytes.clone())
    }
}

struct MemoryState {
    shards: Vec<Padded<Shard>>,
    clock: Arc<dyn Clock>,
    /// The calendar time at the zero of the clock, in microseconds since 1970, read when the store was made.
    start_us: u64,
    capacity: Capacity,
    watchers: Watchers,
    listeners: Listeners,
}

#[derive(Default)]
struct Shard {
    records: Mutex<Records>,
    owners: Owners,
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, Records> {
        // A panic under the lock can only come from the allocator; the maps stay usable.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

/// The bytes of a write and its new life. `None`: the present life.
type Change = (Bytes, Option<Duration>);

/// What a write of an operation entails.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteEffect {
    /// A new record needs room.
    NeedsRoom,
    WakesWatchers,
    Nothing,
}

impl MemoryState {
    fn shard(&self, key: &RecordKey) -> &Shard {
        // A digest is as good as random; a caller that chooses digests of one shard contends with itself only.
        &self.shards[usize::from(key.digest().as_bytes()[0]) % SHARDS]
    }

    fn records(&self, key: &RecordKey) -> MutexGuard<'_, Records> {
        self.shard(key).lock()
    }

    /// Entries and bytes.
    fn used(&self) -> (usize, usize) {
        for shard in &self.shards {
            self.capacity.publish(&mut shard.lock().unpublished);
        }
        self.capacity.used()
    }

    /// One operation under the shard's lock: reads, lets `decide` choose a write, and writes.
    ///
    /// `decide` gets the time of the operation as well, by this clock.
    fn operate<T>(
        &self,
        key: &RecordKey,
        effect: WriteEffect,
        decide: impl FnOnce(Option<Current<'_>>, Duration) -> (T, Option<Change>),
        unreadable: impl FnOnce(Unreadable) -> T,
    ) -> Result<T, StoreError> {
        let now = self.clock.now();
        let mut records = self.records(key);
        // A few at a time, so that no operation pays for many.
        records.sweep(now, 4);
        let (reply, written) = match records.live(key, now) {
            None => {
                let (reply, change) = decide(None, now);
                let written = change.is_some();
                if let Some((bytes, life)) = change {
                    if effect == WriteEffect::NeedsRoom {
                        self.make_room(&mut records, now)?;
                    }
                    records.put(key, bytes, now + life.unwrap_or_default());
                }
                (reply, written)
            }
            Some(live) => match Header::decode(&live.slot.bytes) {
                Err(error) => (unreadable(error), false),
                Ok(header) => {
                    // Moved out of the slot instead of cloned, because most records have no other reader.
                    let record = Record::new(header, mem::take(&mut live.slot.bytes));
                    let expires = live.slot.expires;
                    let current = Current {
                        record: &record,
                        left: expires.saturating_sub(now),
                    };
                    let (reply, change) = decide(Some(current), now);
                    live.slot.bytes = record.into_bytes();
                    let written = change.is_some();
                    if let Some((bytes, life)) = change {
                        live.replace(bytes, life.map_or(expires, |life| now + life));
                    }
                    (reply, written)
                }
            },
        };
        self.capacity.update(&mut records.unpublished);
        drop(records);
        if written && effect == WriteEffect::WakesWatchers {
            self.watchers.wake(key);
        }
        Ok(reply)
    }

    /// Checks for room for another record, and removes expired ones of all shards if there is none.
    fn make_room(&self, locked: &mut Records, now: Duration) -> Result<(), StoreError> {
        if self.capacity.has_room(SHARDS) {
            return Ok(());
        }
        let clear = |records: &mut Records| {
            records.sweep(now, usize::MAX);
            self.capacity.publish(&mut records.unpublished);
        };
        clear(locked);
        // Locked shards are skipped, because waiting for one here could deadlock.
        let mut skipped = 0_usize;
        for shard in &self.shards {
            match shard.records.try_lock() {
                Ok(mut other) => clear(&mut other),
                Err(_) => skipped += 1,
            }
        }
        // The shard of this claim is one of them.
        if self.capacity.has_room(skipped.saturating_sub(1)) {
            return Ok(());
        }
        Err(self.capacity.full())
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

    /// Lists records by shard, in the order of their digests.
    fn list(&self, request: &ListRequest) -> Result<ListReply, StoreError> {
        let start = request.after.as_deref().map(parse_position);
        let (shard, behind) = start.unwrap_or(Ok((0, None)))?;
        let digest = |(key, ..): &(RecordKey, _, _)| *key.digest().as_bytes();
        let mut matches = self.matches(request, shard, behind);
        matches.sort_unstable_by_key(digest);
        let mut cut = request.limit.max(1).min(matches.len());
        // Records of one digest belong to one step.
        while cut < matches.len() && digest(&matches[cut]) == digest(&matches[cut - 1]) {
            cut += 1;
        }
        let mut reply = ListReply::default();
        if cut < matches.len() {
            reply.next = Some(format!("{shard}.{}", matches[cut - 1].0.digest()));
        } else if shard + 1 < SHARDS {
            reply.next = Some((shard + 1).to_string());
        }
        for (key, header, left) in matches.drain(..cut) {
            match header {
                Ok(header) => reply.found.push(Listed::new(key, header, left)),
                Err(_) => reply.unreadable += 1,
            }
        }
        Ok(reply)
    }

    /// The records of a shard that match the request, or are unreadable, with the time that they are kept.
    fn matches(
        &self,
        request: &ListRequest,
        shard: usize,
        behind: Option<KeyDigest>,
    ) -> Vec<(RecordKey, Result<Header, Unreadable>, Duration)> {
        let now = self.clock.now();
        let records = self.shards[shard].lock();
        let requested = records.all_live(now).filter(|(key, _)| {
            key.prefix() == &*request.prefix
                && (request.operation.as_ref()).is_none_or(|of| of == key.operation())
                && behind.is_none_or(|behind| key.digest().as_bytes() > behind.as_bytes())
        });
        let matches = requested.filter_map(|(key, slot)| {
            let (header, left) = (
                Header::decode(&slot.bytes),
                slot.expires.saturating_sub(now),
            );
            let matches = (header.as_ref()).map_or(true, |header| request.wants(header, left));
            matches.then(|| (key.clone(), header, left))
        });
        matches.collect()
    }
}

/// The start of a step of a listing: behind a digest of a shard, or at the start of one.
fn parse_position(text: &str) -> Result<(usize, Option<KeyDigest>), StoreError> {
    let (shard, behind) = text.split_once('.').unzip();
    let shard = shard.unwrap_or(text).parse().ok();
    match (shard, behind.map(str::parse).transpose()) {
        (Some(shard), Ok(behind)) if shard < SHARDS => Ok((shard, behind)),
        _ => Err(no_position()),
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn encoded(header: &Header) -> Bytes {
    Bytes::copy_from_slice(&header.encode())
}

/// `record` with the header `new`, cloned cheaply if the header stays the same.
fn rewritten(record: &Bytes, old: &Header, new: &Header) -> Bytes {
    if old == new {
        return record.clone();
    }
    let mut bytes = record.to_vec();
    bytes[..HEADER].copy_from_slice(&new.encode());
    bytes.into()
}

impl Store for MemoryStore {
    fn new_owner(&self, key: &RecordKey) -> Owner {
        self.0.shard(key).owners.new_owner()
    }

    fn at_hand(&self, key: &RecordKey, asked: Fingerprint) -> Option<(Record, Duration)> {
        let (record, left) = self.0.copy_of(key)?;
        let answers = is_final(&record.header) && record.header.fingerprint.matches(asked);
        answers.then_some((record, left))
    }

    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
    ) -> StoreFuture<'a, ClaimReply> {
        StoreFuture::ready(self.0.operate(
            key,
            WriteEffect::NeedsRoom,
            |current, now| {
                // Fences are numbered by the clock, so that a step of the calendar makes none lower than those before.
                let now_us = self.0.start_us.saturating_add(micros(now));
                let (reply, write) = transition::claim(current, request, now_us);
                (reply, write.map(|h| (encoded(&h), Some(h.retain))))
            },
            ClaimReply::Unreadable,
        ))
    }

    fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        let done = match Header::decode(record) {
            Ok(done) => done,
            Err(error) => return StoreFuture::ready(Ok(CompleteReply::Unreadable(error))),
        };
        StoreFuture::ready(self.0.operate(
            key,
            WriteEffect::WakesWatchers,
            |current, _| {
                let (reply, write) = transition::complete(current, &done);
                let write =
                    write.map(|header| (rewritten(record, &done, &header), Some(header.retain)));
                (reply, write)
            },
            CompleteReply::Unreadable,
        ))
    }

    fn release<'a>(
        &'a self,
        key: &'a RecordKey,
        owner: &'a Owner,
        remains: Remains,
    ) -> StoreFuture<'a, ReleaseReply> {
        StoreFuture::ready(self.0.operate(
            key,
            WriteEffect::WakesWatchers,
            |current, _| {
                let (reply, write) = transition::release(current, *owner, remains);
                let write = current.zip(write).map(|(current, header)| {
                    let life = transition::released_life(&current.record.header, remains);
                    (encoded(&header), life)
                });
                (reply, write)
            },
            ReleaseReply::Unreadable,
        ))
    }

    fn renew<'a>(&'a self, key: &'a RecordKey, claim: &'a Header) -> StoreFuture<'a, RenewReply> {
        StoreFuture::ready(self.0.operate(
            key,
            WriteEffect::Nothing,
            |current, _| {
                let (reply, write) = transition::renew(current, claim);
                (reply, write.map(|h| (encoded(&h), Some(h.retain))))
            },
            RenewReply::Unreadable,
        ))
    }

    fn resolve<'a>(
        &'a self,
        key: &'a RecordKey,
        seen: &'a Header,
        record: &'a Bytes,
    ) -> StoreFuture<'a, ResolveReply> {
        let new = match Header::decode(record) {
            Ok(new) => new,
            Err(error) => return StoreFuture::ready(Ok(ResolveReply::Unreadable(error))),
        };
        let reply = self.0.operate(
            key,
            WriteEffect::WakesWatchers,
            |current, _| {
                let (reply, write) = transition::resolve(current, seen, &new);
                let write =
                    write.map(|header| (rewritten(record, &new, &header), Some(header.retain)));
                (reply, write)
            },
            ResolveReply::Unreadable,
        );
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
        StoreFuture::ready(self.0.operate(
            key,
            WriteEffect::Nothing,
            |current, _| match current {
                None => (ReadReply::Absent, None),
                Some(Current { record, left }) => {
                    let record = record.clone();
                    (ReadReply::Found { record, left }, None)
                }
            },
            ReadReply::Unreadable,
        ))
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
        // A full cache makes no more copies until others have expired.
        let kept = self.0.operate(
            key,
            WriteEffect::NeedsRoom,
            |current, _| match current {
                Some(there) if !supersedes(&header, &there.record.header) => ((), None),
                _ => ((), Some((copy.clone(), Some(left)))),
            },
            |_| (),
        );
        if let State::Done { .. } = header.state {
            self.0.watchers.wake(key);
        }
        StoreFuture::ready(kept)
    }

    fn forget<'a>(&'a self, key: &'a RecordKey, owner: Option<&'a Owner>) -> StoreFuture<'a, ()> {
        let mut records = self.0.records(key);
        if let Some(live) = records.live(key, self.0.clock.now())
            && let Ok(there) = Header::decode(&live.slot.bytes)
            && owner.is_none_or(|owner| there.owner == *owner)
        {
            records.remove(key);
            self.0.capacity.update(&mut records.unpublished);
        }
        drop(records);
        self.0.watchers.wake(key);
        StoreFuture::ready(Ok(()))
    }

    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        StoreFuture::ready(Ok(Some(self.0.watchers.watch(key))))
    }

    fn is_shared(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
