//! Records in this process: for tests, for tools of one process, and for trying idem out.
//!
//! What it promises holds within one process and until that process ends.

mod builder;
mod front;
#[cfg(any(test, feature = "testing"))]
mod plant;
mod written;

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;

pub use self::builder::MemoryStoreBuilder;
use self::written::{encoded, rewritten};
use super::{
    ClaimReply, ClaimRequest, CompleteReply, Current, Header, Listener, Listeners, Owner,
    ReadReply, Record, RecordKey, ReleaseReply, RenewReply, ResolveReply, Store, StoreError,
    StoreErrorKind, StoreFuture, Unreadable, Watch, Watchers,
};
use crate::clock::Clock;
use crate::transition;

/// Few enough to sweep cheaply, enough that two threads seldom meet.
const SHARDS: usize = 32;
/// What a record costs besides its bytes: key, map entry, expiry entry.
const OVERHEAD_BYTES: usize = 200;

/// A store in memory. Clones share the same records.
///
/// It is sharded, bounded by entries and bytes, and expires records exactly. When it is full it
/// refuses new claims; it never drops a record that is alive, since that would run a body twice.
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
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    clock: Arc<dyn Clock>,
    max_entries: usize,
    max_bytes: usize,
    entries: AtomicUsize,
    bytes: AtomicUsize,
    watchers: Watchers,
    listeners: Listeners,
}

#[derive(Default)]
struct Shard {
    records: HashMap<RecordKey, Slot>,
    /// One entry a record, in the order in which they expire.
    expiry: BTreeMap<(Duration, u64), RecordKey>,
    next_id: u64,
}

struct Slot {
    bytes: Bytes,
    expires: Duration,
    id: u64,
}

impl Slot {
    fn cost(&self) -> usize {
        self.bytes.len() + OVERHEAD_BYTES
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

    /// Sets bounds and clock.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder::new()
    }

    /// Records that are kept, among them expired ones that no operation came across yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.entries.load(Ordering::Relaxed)
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the records take, bookkeeping included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }
}

impl Inner {
    fn shard(&self, key: &RecordKey) -> MutexGuard<'_, Shard> {
        let hash = self.hasher.hash_one(key.digest());
        let index =
            usize::try_from(hash % SHARDS as u64).expect("smaller than the number of shards");
        // A panic inside the lock can only come from the allocator; the maps stay usable.
        self.shards[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops what has expired in this shard, at most so many records.
    fn sweep(&self, shard: &mut Shard, now: Duration, most: usize) {
        for _ in 0..most {
            match shard.expiry.first_key_value() {
                Some((&(expires, id), _)) if expires <= now => {
                    let key = shard.expiry.remove(&(expires, id));
                    let slot = key.and_then(|key| shard.records.remove(&key));
                    self.forget(slot.as_ref());
                }
                _ => return,
            }
        }
    }

    fn forget(&self, slot: Option<&Slot>) {
        if let Some(slot) = slot {
            self.entries.fetch_sub(1, Ordering::Relaxed);
            self.bytes.fetch_sub(slot.cost(), Ordering::Relaxed);
        }
    }

    fn put(&self, shard: &mut Shard, key: &RecordKey, bytes: Bytes, expires: Duration) {
        shard.next_id += 1;
        let slot = Slot {
            bytes,
            expires,
            id: shard.next_id,
        };
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(slot.cost(), Ordering::Relaxed);
        shard.expiry.insert((expires, slot.id), key.clone());
        let old = shard.records.insert(key.clone(), slot);
        if let Some(old) = &old {
            shard.expiry.remove(&(old.expires, old.id));
        }
        self.forget(old.as_ref());
    }

    /// An operation that ends the wait of whoever waits for the key, if it writes.
    fn settle<T>(
        &self,
        key: &RecordKey,
        decide: impl FnOnce(Option<Current<'_>>) -> (T, Option<(Bytes, Option<Duration>)>),
        unreadable: impl FnOnce(Unreadable) -> T,
    ) -> Result<T, StoreError> {
        let mut written = false;
        let decide = |current: Option<Current<'_>>, _| {
            let (reply, write) = decide(current);
            written = write.is_some();
            (reply, write)
        };
        let reply = self.operate(key, decide, unreadable, false);
        if written {
            self.watchers.wake(key);
        }
        reply
    }

    /// One operation: reads, lets `decide` say what to write, writes; all under the shard's lock.
    fn operate<T>(
        &self,
        key: &RecordKey,
        decide: impl FnOnce(Option<Current<'_>>, u64) -> (T, Option<(Bytes, Option<Duration>)>),
        unreadable: impl FnOnce(Unreadable) -> T,
        claims: bool,
    ) -> Result<T, StoreError> {
        let now = self.clock.now();
        let mut shard = self.shard(key);
        // A few at a time, so that no operation pays for many.
        self.sweep(&mut shard, now, 4);
        let found = match shard.records.get(key) {
            Some(slot) if slot.expires > now => Some((slot.bytes.clone(), slot.expires)),
            _ => None,
        };
        let record = match found {
            None => None,
            Some((bytes, expires)) => match Record::decode(bytes) {
                Ok(record) => Some((record, expires)),
                Err(error) => return Ok(unreadable(error)),
            },
        };
        let current = record.as_ref().map(|(record, expires)| Current {
            record,
            left: expires.saturating_sub(now),
        });
        let is_new = current.is_none();
        let (reply, write) = decide(current, self.clock.calendar_us());
        if let Some((bytes, life)) = write {
            if claims && is_new {
                self.room(&mut shard, now)?;
            }
            let expires = match (life, &record) {
                (Some(life), _) => now + life,
                (None, Some((_, expires))) => *expires,
                (None, None) => now,
            };
            self.put(&mut shard, key, bytes, expires);
        }
        Ok(reply)
    }

    fn used(&self) -> (usize, usize) {
        (
            self.entries.load(Ordering::Relaxed),
            self.bytes.load(Ordering::Relaxed),
        )
    }

    /// Whether there is room for another record. `shard` is the one that is locked already.
    fn room(&self, shard: &mut Shard, now: Duration) -> Result<(), StoreError> {
        let room = |(entries, bytes)| entries < self.max_entries && bytes < self.max_bytes;
        if room(self.used()) {
            return Ok(());
        }
        // What has expired takes no room, in whichever shard it is. Shards that are in use are
        // passed over: to wait for one here could be a deadlock.
        self.sweep(shard, now, usize::MAX);
        for other in &self.shards {
            if let Ok(mut other) = other.try_lock() {
                self.sweep(&mut other, now, usize::MAX);
            }
        }
        let (entries, bytes) = self.used();
        if room((entries, bytes)) {
            return Ok(());
        }
        Err(StoreError::new(
            StoreErrorKind::Full,
            format!(
                "the memory store is full ({entries} of {} records, {bytes} of {} bytes); raise \
                 its bounds, shorten ttl, or use a store with more room",
                self.max_entries, self.max_bytes
            ),
        ))
    }
}

impl Store for MemoryStore {
    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
    ) -> StoreFuture<'a, ClaimReply> {
        StoreFuture::ready(self.0.operate(
            key,
            |current, now_us| {
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
        count: bool,
    ) -> StoreFuture<'a, ReleaseReply> {
        StoreFuture::ready(self.0.settle(
            key,
            |current| {
                let (reply, write) = transition::release(current, *owner, count);
                (reply, write.map(|header| (encoded(&header), None)))
            },
            ReleaseReply::Unreadable,
        ))
    }

    fn renew<'a>(&'a self, key: &'a RecordKey, claim: &'a Header) -> StoreFuture<'a, RenewReply> {
        StoreFuture::ready(self.0.operate(
            key,
            |current, _| {
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
            |current, _| match current {
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
}
