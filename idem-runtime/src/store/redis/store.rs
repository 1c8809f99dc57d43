//! The public store and its state, as store and as cache.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;

use super::notify::{ResolutionListener, Subscribers};
use super::probe::{Report, concerns_a_cache};
use super::script::{Batches, Scripts};
use super::topology::Topology;
use crate::env::observer::Observer;
use crate::store::observers::Observers;
use crate::store::read_cache::{Copied, ReadCache};
use crate::store::{
    Admission, AppendReply, ClaimReply, ClaimRequest, CompleteReply, Finding, Header, Journal,
    ListReply, ListRequest, Listener, Owner, ReadReply, RecordKey, ReleaseReply, Remains,
    RenewReply, ResolveReply, Store, StoreFuture, Watch,
};

/// A store in Redis 6.2 or newer, or in a compatible server.
///
/// A compatible server speaks the protocol of Redis and runs its scripts.
///
/// Clones share one connection, which is made again when it breaks or falls silent. Lease renewals and the reads
/// of waiting calls use a second connection on the engine's own thread. The first call that waits for another one
/// opens a third connection there, which receives the notifications; an engine with a
/// [local cache](crate::cache::LocalCache) has one on which it receives resets. [Listings](crate::Engine::entries) have
/// one of their own, made by the first of them.
///
/// ```no_run
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// use idem_runtime::{Engine, store::redis::RedisStore};
///
/// let store = RedisStore::connect("redis://localhost").await?;
/// println!("{}", store.report());
/// Engine::new(store).install()?;
/// # Ok(()) }
/// ```
///
/// # Commands sent
///
/// A call of a new key costs two round trips, a replay one.
///
/// | | Redis 7 | with `SET … IFEQ` (Valkey 8.1, Redis 8.4) | before Redis 7 |
/// | --- | --- | --- | --- |
/// | claim of a new key, replay, other arguments | `SET … NX GET PX` | the same | script |
/// | claim of a key that is running, released or unknown | that and a script | the same | script |
/// | answer below 2 KB | script | `SET … IFEQ … PX` | script |
/// | larger answer | `SET` aside and a script that moves it | `SET … IFEQ … PX` | script |
/// | answer to a watched call | the same, and the script notifies | that, and then as on Redis 7 | script |
/// | release, renewal, resolution, [step](crate::step()) | script | script | script |
/// | a step of a listing | `SCAN … MATCH COUNT TYPE` and a script for each record | the same | the same |
///
/// A script decides every case that a plain command cannot. The server itself makes the comparison of a plain
/// compare-and-set: the whole claim, byte by byte. A claim is sent as a script with [`Durability::Replicated`], for
/// answers with an age ([`Answer`](crate::Answer), `on_duplicate = reject`), and once in ten seconds, because the
/// script's reply carries the server's time, from which the fence of a plain claim is taken. The fence grows with
/// every claim of a key as long as its record is kept, as every fence. A server or proxy that replies that it does
/// not know `SET` with `NX` and `GET` receives one such command, and scripts from then on.
///
/// # Requirements on the server
///
/// - `maxmemory-policy noeviction`. An evicted record lets its body run again, so a server that
///   evicts is refused; see [`RedisStoreBuilder::allow_eviction`].
/// - These rights, for a user of its own (with the default prefix):
///   `~idem:* +eval +evalsha +get +getrange +set +time +pttl +pexpire +strlen +exists +hello +info`,
///   `+select` where the URL names a database, `+wait` with [`Durability::Replicated`], and on a
///   cluster `+cluster|slots +asking`. So that waiting calls are notified when a call has finished, and
///   need not poll: `resetchannels &idem:* +publish +subscribe +unsubscribe`, and on
///   a cluster of Redis 7 `resetchannels &idem:* +spublish +ssubscribe +sunsubscribe` instead.
///   An engine with a [local cache](crate::cache::LocalCache) receives resets by `&idem:* +publish +subscribe
///   +unsubscribe`, on a cluster as well.
///   Without these nothing is lost; Redis keeps entries in its `ACL LOG`. So that a large answer
///   costs the server less: `+rename`. So that calls that end at the same time share a script, which costs the
///   server a quarter less: `+mget`. The report names these two where they are missing and the store
///   would use them. To
///   [list records](crate::Engine::entries): `+scan`.
///   None of them is in `@dangerous` or `@admin` but `INFO`, which may be left out: then the store
///   warns that it could not check the eviction policy.
/// - Persistence as the business needs it. With asynchronous replication a failover can forget a
///   claim or an answer that was acknowledged.
///
/// # The report
///
/// When it connects, the store checks all of this once, in three or four round trips.
/// [`RedisStore::report`] returns the findings, and formats them as a report for the start-up log. Its last
/// lines are warnings, which the [`Observer`] receives when an engine is
/// built; only a server that evicts, is too old or is a Sentinel is refused. The rights are checked
/// under the prefix `idem` unless [`RedisStoreBuilder::checked_prefix`] names another. Redis 7 has a query
/// for them; on Redis 6 each command is tried, which leaves entries in its `ACL LOG` for missing
/// rights. Either way one key of a random name lives for a millisecond, and no other key is
/// touched.
///
/// [`Durability::Replicated`]: crate::store::redis::Durability::Replicated
/// [`RedisStoreBuilder::allow_eviction`]: crate::store::redis::RedisStoreBuilder::allow_eviction
/// [`RedisStoreBuilder::checked_prefix`]: crate::store::redis::RedisStoreBuilder::checked_prefix
#[derive(Clone)]
pub struct RedisStore(pub(super) Arc<RedisCore>);

/// The connections, scripts and settings of a connected store.
pub(super) struct RedisCore {
    /// For claims, completions, releases and resolutions.
    pub(super) link: Topology,
    /// For lease renewals and reads; connects at the first of them, on the thread of the engine.
    pub(super) background: Topology,
    /// For listings; connects at the first of them, on the thread of the engine.
    pub(super) listing: Topology,
    /// Connect at the first watch, on the thread of the engine.
    pub(super) subscribers: Arc<Subscribers>,
    pub(super) scripts: Scripts,
    pub(super) report: Report,
    /// Warning about the transport to the server.
    pub(super) transport: Option<String>,
    /// Whether a claim is sent as a plain command where that suffices.
    pub(super) plain_claims: AtomicBool,
    /// Whether a completion is a plain compare-and-set where that suffices.
    pub(super) compares: bool,
    /// Completes several claims at once.
    pub(super) batches: Batches,
    /// Whether large answers are staged.
    pub(super) stages_large: AtomicBool,
    /// Notified of steps of the server's clock.
    pub(super) observers: Arc<Observers>,
    pub(super) max_record_bytes: usize,
}

impl RedisStore {
    /// The selected warnings of the report, and those about the connections.
    fn warnings_that(&self, selects: impl Fn(&Finding) -> bool) -> Vec<String> {
        let mut warnings = self.0.report.warnings(selects);
        warnings.extend(self.0.transport.clone());
        warnings.extend(self.0.subscribers.warning());
        warnings
    }

    /// The findings about the server when the store connected.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.0.report
    }
}

debug_fields!(RedisStore {
    report: |it| &it.0.report,
    link: |it| &it.0.link
});

impl Store for RedisStore {
    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
        admission: &'a Admission,
    ) -> StoreFuture<'a, ClaimReply> {
        if let Some(error) = self.0.overload(key, admission) {
            return StoreFuture::ready(Err(error));
        }
        admission.sent();
        StoreFuture::pending(self.0.claim(key, request))
    }

    fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: Option<&'a Header>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        StoreFuture::pending(self.0.complete(key, claim, record))
    }

    fn release<'a>(
        &'a self,
        key: &'a RecordKey,
        owner: &'a Owner,
        remains: Remains,
        journals: Option<(&'a Journal, Option<&'a Journal>)>,
    ) -> StoreFuture<'a, ReleaseReply> {
        StoreFuture::pending(self.0.release(key, owner, remains, journals))
    }

    fn renew<'a>(&'a self, key: &'a RecordKey, claim: &'a Header) -> StoreFuture<'a, RenewReply> {
        StoreFuture::pending(self.0.renew(key, claim))
    }

    fn keeps_journals(&self) -> bool {
        true
    }

    fn append<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: &'a Header,
        journal: &'a Journal,
        known: usize,
    ) -> StoreFuture<'a, AppendReply> {
        StoreFuture::pending(self.0.append(key, claim, journal, known))
    }

    fn resolve<'a>(
        &'a self,
        key: &'a RecordKey,
        seen: &'a Header,
        journal: Option<&'a Journal>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, ResolveReply> {
        StoreFuture::pending(self.0.resolve(key, (seen, journal), record))
    }

    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        StoreFuture::pending(self.0.read(key))
    }

    fn poll<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        StoreFuture::pending(self.0.poll(key))
    }

    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        StoreFuture::pending(self.0.watch(key))
    }

    fn listen(&self, prefix: &Arc<str>, listener: Weak<dyn Listener>) -> bool {
        let listening = |listener| ResolutionListener::new(&self.0.subscribers, prefix, listener);
        let (trial, core) = (listening(Weak::clone(&listener)), Arc::downgrade(&self.0));
        tokio::spawn(async move {
            if let Some(core) = core.upgrade() {
                trial.try_to_publish(&core.background).await;
            }
        });
        tokio::spawn(listening(listener).follow());
        true
    }

    fn list<'a>(&'a self, request: &'a ListRequest) -> StoreFuture<'a, ListReply> {
        StoreFuture::pending(self.0.list(request))
    }

    fn observed_by(&self, observer: &Arc<dyn Observer>) {
        self.0.observers.add(observer);
    }

    fn max_record_bytes(&self) -> Option<usize> {
        Some(self.0.max_record_bytes)
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings_that(|_| true)
    }
}

impl ReadCache for RedisStore {
    fn look<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Copied> {
        StoreFuture::pending(self.0.look(&self.0.link, key))
    }

    fn keep<'a>(
        &'a self,
        key: &'a RecordKey,
        copy: &'a Bytes,
        left: Duration,
    ) -> StoreFuture<'a, ()> {
        StoreFuture::pending(self.0.keep(key, copy, left))
    }

    fn forget<'a>(&'a self, key: &'a RecordKey, owner: Option<&'a Owner>) -> StoreFuture<'a, ()> {
        StoreFuture::pending(self.0.forget(key, owner))
    }

    fn poll<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Copied> {
        StoreFuture::pending(self.0.look(&self.0.background, key))
    }

    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        Store::watch(self, key)
    }

    fn max_record_bytes(&self) -> Option<usize> {
        Store::max_record_bytes(self)
    }

    /// The warnings that hold for a cache. A restart, an eviction or a failover loses copies, which costs time only.
    fn warnings(&self) -> Vec<String> {
        self.warnings_that(concerns_a_cache)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, F>(_: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }

    /// Each call boxes these futures. Allocators serve small sizes fastest, and many calls at once need many of them.
    #[test]
    fn the_futures_of_a_call_are_small() {
        type Called = (&'static RedisCore, &'static RecordKey);
        let claim = size(|((core, key), request): (Called, &'static ClaimRequest)| {
            core.claim(key, request)
        });
        let complete = size(|((core, key), record): (Called, &'static Bytes)| {
            core.complete(key, None, record)
        });
        assert!(claim <= 120, "{claim}");
        assert!(complete <= 120, "{complete}");
    }
}
