//! Records in the memory of this process, for tests and tools.
//!
//! The tools are those of one process. Also for trying idem out. Its promises hold within one process and until that
//! process ends.

mod builder;
mod front;
mod listing;
mod looks;
mod owners;
#[cfg(any(test, feature = "testing"))]
mod plant;
mod shard;
mod used;
mod written;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;

pub use self::builder::MemoryStoreBuilder;
use self::owners::Owners;
use self::shard::Shard;
use self::used::{Change, Room};
use self::written::{encoded, rewritten};
use super::{
    ClaimReply, ClaimRequest, CompleteReply, Current, Header, ListReply, ListRequest, Listener,
    Listeners, Owner, ReadReply, Record, RecordKey, ReleaseReply, Remains, RenewReply,
    ResolveReply, Store, StoreError, StoreErrorKind, StoreFuture, Unreadable, Watch, Watchers,
    front::is_final,
};
use crate::env::clock::Clock;
use crate::env::striped::Padded;
use crate::identity::fingerprint::Fingerprint;
use crate::record::transition;

/// Few enough to sweep cheaply, and enough for little contention between threads.
const SHARDS: usize = 32;

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
pub struct MemoryStore(Arc<Inner>);

struct Inner {
    parts: Vec<Padded<Part>>,
    clock: Arc<dyn Clock>,
    /// The calendar time at the zero of the clock.
    ///
    /// In microseconds since 1970, read when the store was made.
    began_us: u64,
    room: Room,
    watchers: Watchers,
    listeners: Listeners,
}

/// A shard of the records, and the source of their owners.
#[derive(Default)]
struct Part {
    shard: Mutex<Shard>,
    owners: Owners,
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
        MemoryStoreBuilder::new()
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

impl Inner {
    fn part(&self, key: &RecordKey) -> &Part {
        // A digest is as good as random; a caller that chooses digests of one shard contends with itself only.
        &self.parts[usize::from(key.digest().as_bytes()[0]) % SHARDS]
    }

    fn shard(&self, key: &RecordKey) -> MutexGuard<'_, Shard> {
        lock(&self.part(key).shard)
    }

    fn count(&self, shard: &mut Shard, change: Change) {
        self.room.count(&mut shard.untold, change);
    }

    /// Entries and bytes.
    fn used(&self) -> (usize, usize) {
        for part in &self.parts {
            self.room.tell(&mut lock(&part.shard).untold);
        }
        self.room.told()
    }

    /// The time that fences are numbered by. It is derived from one reading of the clock, and steps of the calendar
    /// make no fence lower than those before it.
    fn calendar_us(&self, now: Duration) -> u64 {
        let since = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        self.began_us.saturating_add(since)
    }

    /// An operation that wakes the watchers of the key, if it writes.
    fn settle<T>(
        &self,
        key: &RecordKey,
        decide: impl FnOnce(Option<Current<'_>>) -> (T, Option<(Bytes, Option<Duration>)>),
        unreadable: impl FnOnce(Unreadable) -> T,
    ) -> Result<T, StoreError> {
        let mut written = false;
        let decide = |current: Option<Current<'_>>| {
            let (reply, write) = decide(current);
            written = write.is_some();
            (reply, write)
        };
        let reply = self.operate(key, self.clock.now(), decide, unreadable, false);
        if written {
            self.watchers.wake(key);
        }
        reply
    }

    /// One operation under the shard's lock: reads, lets `decide` choose a write, and writes.
    fn operate<T>(
        &self,
        key: &RecordKey,
        now: Duration,
        decide: impl FnOnce(Option<Current<'_>>) -> (T, Option<(Bytes, Option<Duration>)>),
        unreadable: impl FnOnce(Unreadable) -> T,
        claims: bool,
    ) -> Result<T, StoreError> {
        let mut shard = self.shard(key);
        // A few at a time, so that no operation pays for many.
        let gone = shard.sweep(now, 4);
        self.count(&mut shard, gone);
        let Some(slot) = shard.alive(key, now) else {
            let (reply, write) = decide(None);
            if let Some((bytes, life)) = write {
                if claims {
                    self.room(&mut shard, now)?;
                }
                let change = shard.put(key, bytes, now + life.unwrap_or_default());
                self.count(&mut shard, change);
            }
            return Ok(reply);
        };
        let header = match Header::decode(&slot.bytes) {
            Ok(header) => header,
            Err(error) => return Ok(unreadable(error)),
        };
        // Moved out of the slot instead of cloned, because most records have no other reader.
        let record = Record::new(header, std::mem::take(&mut slot.bytes));
        let left = slot.expires.saturating_sub(now);
        let (reply, write) = decide(Some(Current {
            record: &record,
            left,
        }));
        slot.bytes = record.into_bytes();
        if let Some((bytes, life)) = write {
            let expires = life.map_or(slot.expires, |life| now + life);
            let change = slot.replace(bytes, expires);
            if slot.is_due_sooner() {
                shard.look_sooner(key);
            }
            self.count(&mut shard, change);
        }
        Ok(reply)
    }

    /// Checks for room for another record. `shard` is the one that is locked already.
    fn room(&self, shard: &mut Shard, now: Duration) -> Result<(), StoreError> {
        if self.room.is_left(SHARDS) {
            return Ok(());
        }
        // Expired records of any part free room. Locked parts are skipped, because waiting for one here could deadlock.
        let mut silent = 0_usize;
        self.clear(shard, now);
        for part in &self.parts {
            match part.shard.try_lock() {
                Ok(mut other) => self.clear(&mut other, now),
                Err(_) => silent += 1,
            }
        }
        // One of them is `shard`.
        if self.room.is_left(silent.saturating_sub(1)) {
            return Ok(());
        }
        let (entries, bytes) = self.room.told();
        let (max_entries, max_bytes) = (self.room.max_entries, self.room.max_bytes);
        Err(StoreError::new(
            StoreErrorKind::Full,
            format!(
                "the memory store is full ({entries} of {max_entries} records, {bytes} of {max_bytes} bytes); \
                 raise its bounds, shorten ttl, or use a store with more room"
            ),
        ))
    }

    /// Drops the expired records of a shard, and publishes every change of its counts.
    fn clear(&self, shard: &mut Shard, now: Duration) {
        let gone = shard.sweep(now, usize::MAX);
        shard.untold.add(gone);
        self.room.tell(&mut shard.untold);
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // A panic under the lock can only come from the allocator; the maps stay usable.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store for MemoryStore {
    fn new_owner(&self, key: &RecordKey) -> Owner {
        self.0.part(key).owners.new_owner()
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
        let now = self.0.clock.now();
        StoreFuture::ready(self.0.operate(
            key,
            now,
            |current| {
                let now_us = self.0.calendar_us(now);
                let (reply, write) = transition::claim(current, request, now_us);
                (reply, write.map(|h| (encoded(&h), Some(h.retain))))
            },
            ClaimReply::Unreadable,
            true,
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
        StoreFuture::ready(self.0.settle(
            key,
            |current| {
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
        StoreFuture::ready(self.0.settle(
            key,
            |current| {
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
            self.0.clock.now(),
            |current| {
                let (reply, write) = transition::renew(current, claim);
                (reply, write.map(|h| (encoded(&h), Some(h.retain))))
            },
            RenewReply::Unreadable,
            false,
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
        let reply = self.0.settle(
            key,
            |current| {
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
            self.0.clock.now(),
            |current| match current {
                None => (ReadReply::Absent, None),
                Some(Current { record, left }) => {
                    let record = record.clone();
                    (ReadReply::Found { record, left }, None)
                }
            },
            ReadReply::Unreadable,
            false,
        ))
    }

    fn list<'a>(&'a self, request: &'a ListRequest) -> StoreFuture<'a, ListReply> {
        StoreFuture::ready(self.0.list(request))
    }
}

#[cfg(test)]
mod tests;
