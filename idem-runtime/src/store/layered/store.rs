//! The layered store, and its operations.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;

use super::epochs;
use super::layers::Layers;
use super::stats::LayeredStats;
use crate::env::moment::Moment;
use crate::env::observer::{Event, EventKind, Observer};
#[cfg(feature = "_sql")]
use crate::identity::fingerprint::Fingerprint;
use crate::record::AnswerTypes;
#[cfg(feature = "_sql")]
use crate::store::Record;
use crate::store::read_cache::{ReadCache, is_final};
use crate::store::{
    Admission, AppendReply, ClaimReply, ClaimRequest, CompleteReply, Header, Journal, ListReply,
    ListRequest, Listener, Needs, Owner, ReadReply, RecordKey, ReleaseReply, Remains, RenewReply,
    ResolveReply, Store, StoreError, StoreFuture, Watch,
};

/// A fast store in front of a durable one. Clones share one state.
///
/// The durable store decides every claim and keeps every answer. The fast one has copies of finished answers, made
/// after the durable store has acknowledged them; replays come from there, without a request to the durable store.
/// Calls that wait for another call read there as well, and are notified there of its completion. So the fast store can
/// reply "done already" or "wait", and nothing else: if it is down, empty, stale or cut off, that costs time, and never
/// a second run or another answer.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use idem_runtime::{Engine, Error, store::layered::LayeredStore, store::memory::MemoryStore};
///
/// // In production a Redis in front of a database.
/// let (fast, durable) = (MemoryStore::new(), MemoryStore::new());
/// let store = LayeredStore::new(fast, durable);
/// let engine = Engine::new(store.clone());
/// for _ in 0..3 {
///     let call = engine.operation("orders.place").key(&"o-7").fingerprint(&1250);
///     let receipt = call.run(|_| async { Ok::<_, Error>(1250) }).await?;
///     assert_eq!(receipt, 1250);
/// }
/// assert_eq!(store.stats().hits, 2);
/// # Ok(()) }
/// ```
///
/// # Costs and savings of the fast store
///
/// - A replay is one request to the fast store (two for an answer of more than 8 KiB) and none to the durable one.
/// - A first call queries the fast store once, for `patience` (50 ms) at most, before it claims. Its answer is copied
///   in the background: no call waits for that.
/// - Of many processes that wait for a call, about one a second reads the durable store.
/// - After 5 failures in a row the fast store is not queried for 1 s, then 2 s, up to 30 s, except by a probe in the
///   background that detects its return. Observers receive [`Degraded`](crate::observe::EventKind::Degraded) and
///   [`Restored`](crate::observe::EventKind::Restored); [`LayeredStore::stats`] counts.
///
/// # Copies
///
/// A copy is the record, byte by byte, under a name of its own, `{prefix}:+{epoch}:…`, which no engine can have as its
/// prefix: the fast store may be the store of other engines as well. A copy expires 5 s before the answer
/// does. Unknown outcomes are not copied, nor are answers that are larger than the fast store accepts.
///
/// # Write access to the fast store
///
/// A replay is answered from a copy, without a request to the durable store. So a client that can write to the fast
/// store can give answers: callers get a planted or changed copy as the answer, also for a key that never ran. A copy
/// starts no body and ends no claim. Give the engine [keys](crate::EngineBuilder::encrypt): a copy is then an answer
/// only if it was sealed with them for this very record, and an operator with write access to the cache can forge
/// nothing. Without keys the fast store must be as well guarded as the database, and an engine reports that in a
/// [`Warning`](crate::observe::EventKind::Warning) when it is built, unless the fast store is in the memory of the process. A
/// seal does not prevent two things: a copy can be deleted, which costs time, and a sealed answer that was removed by a
/// reset can be put back from a saved copy of it.
///
/// # Resets
///
/// Only [`Entry::reset`](crate::admin::Entry::reset) removes an answer. It begins a new *epoch*, a number in the durable store
/// that is part of the name of each copy, which makes all copies of the prefix void: also those in a snapshot that the
/// fast store restores, and in caches of other processes. A process answers from copies only while its last reading of
/// the epoch is within [`trust`](super::LayeredStoreBuilder::trust) (1 s), and a reset waits that long before it changes
/// anything: so no caller gets the old answer after a caller may have got a new one. When the durable store stops
/// replying, copies are therefore trusted that long. A reset that the durable store executes 5 s after its request or
/// later is the exception: old copies may answer until `Entry::reset` returns, and if its process ends before that, until
/// they expire or [`LayeredStore::forget`] removes them.
///
/// # A fast store that is down when the process starts
///
/// [`LazyStore`](super::LazyStore) connects in the background.
#[derive(Clone, Debug)]
pub struct LayeredStore(pub(super) Arc<Layers>);

impl LayeredStore {
    /// A store whose answers are replayed from `fast`, and kept by `durable`.
    #[must_use]
    pub fn new(fast: impl ReadCache, durable: impl Store) -> Self {
        Self::builder(fast, durable).build()
    }

    /// Counters, for metrics.
    #[must_use]
    pub fn stats(&self) -> LayeredStats {
        self.0.counters.read(self.0.breaker.is_open())
    }

    /// Removes the copy of a key.
    ///
    /// For a record that was changed past this store. Caches of other processes are not reached: reset the key through
    /// an engine for that.
    ///
    /// # Errors
    ///
    /// Those of the fast store.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the copy may or may not have been removed.
    pub async fn forget(&self, key: &RecordKey) -> Result<(), StoreError> {
        match self.0.copy_key(key).copy {
            Some(copy) => self.0.fast.forget(&copy, None).await,
            None => Ok(()),
        }
    }
}

impl Store for LayeredStore {
    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
        admission: &'a Admission,
    ) -> StoreFuture<'a, ClaimReply> {
        StoreFuture::pending(async move {
            let copy_key = self.0.copy_key(key);
            // A claim that reconciles an unknown outcome gets a known one as any other claim does.
            if request.needs != Needs::Verdict
                && let Some((record, left)) = self.0.finished(&copy_key, request.fingerprint).await
            {
                return Ok(ClaimReply::Done { record, left });
            }
            let since = Moment::now();
            let reply = self.0.durable.claim(key, request, admission).await?;
            if let ClaimReply::Done { record, left } = &reply
                && is_final(&record.header)
            {
                self.0.copy(&copy_key, record.bytes(), *left, since);
            }
            Ok(reply)
        })
    }

    fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: Option<&'a Header>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        StoreFuture::pending(async move {
            let Ok(header) = Header::decode(record) else {
                return self.0.durable.complete(key, claim, record).await;
            };
            let copy_key = self.0.copy_key(key);
            let mut sending = self.0.unacked.send(header.owner);
            let reply = self.0.durable.complete(key, claim, record).await?;
            let first = sending.acknowledged();
            match &reply {
                // A late answer is stored under the header of a later claim, so its bytes are not copied. Without a
                // fingerprint a copy would answer every request, and without types every function; the stored record may have
                // both.
                CompleteReply::Stored { late: false }
                    if first
                        && is_final(&header)
                        && !header.fingerprint.is_none()
                        && header.types != AnswerTypes::UNKNOWN =>
                {
                    self.0.copy(&copy_key, record, header.retain, sending.sent);
                }
                CompleteReply::Stored { .. } => self.0.forget(&copy_key, None),
                CompleteReply::Adopted { record, left } if is_final(&record.header) => {
                    self.0.copy(&copy_key, record.bytes(), *left, sending.sent);
                }
                _ => {}
            }
            Ok(reply)
        })
    }

    fn release<'a>(
        &'a self,
        key: &'a RecordKey,
        owner: &'a Owner,
        remains: Remains,
        journals: Option<(&'a Journal, Option<&'a Journal>)>,
    ) -> StoreFuture<'a, ReleaseReply> {
        StoreFuture::pending(async move {
            let reply = (self.0.durable)
                .release(key, owner, remains, journals)
                .await?;
            if let ReleaseReply::Released | ReleaseReply::Absent = reply {
                self.0.forget(&self.0.copy_key(key), Some(*owner));
            }
            Ok(reply)
        })
    }

    fn renew<'a>(&'a self, key: &'a RecordKey, claim: &'a Header) -> StoreFuture<'a, RenewReply> {
        self.0.durable.renew(key, claim)
    }

    fn keeps_journals(&self) -> bool {
        self.0.durable.keeps_journals()
    }

    fn append<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: &'a Header,
        journal: &'a Journal,
        known: usize,
    ) -> StoreFuture<'a, AppendReply> {
        self.0.durable.append(key, claim, journal, known)
    }

    fn resolve<'a>(
        &'a self,
        key: &'a RecordKey,
        seen: &'a Header,
        journal: Option<&'a Journal>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, ResolveReply> {
        StoreFuture::pending(async move {
            let (copy_key, prefix) = (self.0.copy_key(key), Arc::from(key.prefix()));
            let closed = if is_final(seen) {
                Some(self.0.close(&prefix).await?)
            } else {
                None
            };
            let reply = self.0.resolve(key, seen, journal, record).await;
            if reply.as_ref().is_err_and(StoreError::is_transient) {
                // It may be executed yet, and then find copies of the answer in an epoch that was opened.
                return reply;
            }
            if let Some(closed) = closed {
                self.0.reopen(&prefix, closed).await?;
            }
            if let Ok(ResolveReply::Resolved) = reply {
                // Watchers of the copy are notified.
                self.0.forget(&copy_key, Some(seen.owner));
            }
            reply
        })
    }

    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        StoreFuture::pending(async move {
            let copy_key = self.0.copy_key(key);
            if let Some(copy) = copy_key.copy
                && !self.0.breaker.is_open()
                && let Ok(Some(watch)) = self.0.fast.watch(&copy).await
            {
                return Ok(Some(watch));
            }
            self.0.durable.watch(key).await
        })
    }

    fn listen(&self, prefix: &Arc<str>, listener: Weak<dyn Listener>) -> bool {
        self.0.durable.listen(prefix, listener)
    }

    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        self.0.durable.read(key)
    }

    fn poll<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        StoreFuture::pending(self.0.poll(key))
    }

    fn list<'a>(&'a self, request: &'a ListRequest) -> StoreFuture<'a, ListReply> {
        StoreFuture::pending(async move {
            let mut reply = self.0.durable.list(request).await?;
            // The record of the epoch does not belong to a call.
            let epoch = epochs::record_of(Arc::clone(&request.prefix));
            reply.found.retain(|listed| listed.key != epoch);
            Ok(reply)
        })
    }

    fn max_record_bytes(&self) -> Option<usize> {
        self.0.durable.max_record_bytes()
    }

    fn keeps_forever(&self) -> bool {
        self.0.durable.keeps_forever()
    }

    fn trusts_copies(&self) -> bool {
        self.0.fast.is_shared() || self.0.durable.trusts_copies()
    }

    fn reset_pause(&self) -> Duration {
        self.0.epochs.trust + self.0.durable.reset_pause()
    }

    #[cfg(feature = "_sql")]
    fn sql(&self) -> Option<crate::store::sql::Sql<'_>> {
        self.0.durable.sql()
    }

    #[cfg(feature = "_sql")]
    fn recall<'a>(
        &'a self,
        key: &'a RecordKey,
        asked: Fingerprint,
    ) -> StoreFuture<'a, Option<(Record, Duration)>> {
        StoreFuture::pending(async move {
            let copy_key = self.0.copy_key(key);
            Ok(self.0.finished(&copy_key, asked).await)
        })
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.0.durable.warnings();
        warnings.extend(self.0.fast.warnings());
        warnings
    }

    fn observed_by(&self, observer: &Arc<dyn Observer>) {
        self.0.durable.observed_by(observer);
        self.0.observers.add(observer);
        if self.0.breaker.is_open() {
            let reason = "the fast store was degraded before this engine was built";
            observer.observe(&Event::of_engine(EventKind::Degraded { reason }));
        }
    }
}
