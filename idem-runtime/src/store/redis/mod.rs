//! Records in Redis: one string a key, one round trip an operation.

mod address;
mod builder;
mod check;
mod cluster;
mod failure;
mod front;
mod glance;
mod link;
mod listing;
mod node;
mod operations;
mod plain;
mod resolutions;
mod route;
mod script;
mod sentinel;
mod source;
mod staged;
mod subscriber;
mod subscribers;
mod swap;
#[cfg(feature = "redis-tls")]
mod tls;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;

pub use self::builder::RedisStoreBuilder;
pub use self::check::{Report, Server};
pub use self::node::Durability;
use self::resolutions::Listening;
use self::route::Route;
use self::script::Scripts;
pub use self::source::RedisSource;
use self::subscribers::Subscribers;
use super::{
    Admission, ClaimReply, ClaimRequest, CompleteReply, Header, ListReply, ListRequest, Listener,
    Owner, ReadReply, RecordKey, ReleaseReply, Remains, RenewReply, ResolveReply, Store,
    StoreError, StoreFuture, Watch, told::Observers,
};
use crate::env::observer::Observer;

/// A store in Redis 6.2 or newer, or what speaks its protocol and runs its scripts.
///
/// Clones share one connection, which is made again when it breaks or falls silent. Leases are
/// renewed, and waiting calls look, on a second connection of the engine's own thread. As soon as a
/// call waits for another to finish, a third one is made there, on which it is told; and an engine with a
/// [local cache](crate::LocalCache) has one on which it hears of resets. [Listings](crate::Engine::entries) have
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
/// # What it sends
///
/// A call of a new key costs two round trips, a replay one.
///
/// | | Redis 7 | with `SET … IFEQ` (Valkey 8.1, Redis 8.4) | before Redis 7 |
/// | --- | --- | --- | --- |
/// | claim of a new key, replay, other arguments | `SET … NX GET PX` | the same | script |
/// | claim of a key that is running, was given back or is unknown | that and a script | the same | script |
/// | answer below 2 KB | script | `SET … IFEQ … PX` | script |
/// | larger answer | `SET` aside and a script that moves it | `SET … IFEQ … PX` | script |
/// | answer to a call that others wait for | the same, and the script tells them | that, and then as on Redis 7 | script |
/// | giving back, renewing, resolving | script | script | script |
/// | a step of a listing | `SCAN … MATCH COUNT TYPE` and a script for each record | the same | the same |
///
/// Whatever a plain command finds that it cannot judge, a script decides. What is compared in plain is
/// compared by the server: the whole claim, byte by byte. [`Durability::Replicated`] and answers that tell their
/// age ([`Answer`](crate::Answer), `on_duplicate = reject`) are claimed by script, and once in ten seconds a claim is, since its reply
/// tells the server's time: a fence that is granted without a script comes from there. It grows with
/// every claim of a key as long as its record is kept, as every fence. A server or proxy that answers that it does
/// not know `SET` with `NX` and `GET` is sent one such command, and scripts from then on.
///
/// # What it asks of the server
///
/// - `maxmemory-policy noeviction`. An evicted record lets its body run again, so a server that
///   evicts is refused; see [`RedisStoreBuilder::allow_eviction`].
/// - These rights, for a user of its own (with the default prefix):
///   `~idem:* +eval +evalsha +get +getrange +set +time +pttl +pexpire +strlen +exists +hello +info`,
///   `+select` where the URL names a database, `+wait` with [`Durability::Replicated`], and on a
///   cluster `+cluster|slots +asking`. So that waiting calls are told when a call has finished, and
///   need not ask again and again: `resetchannels &idem:* +publish +subscribe +unsubscribe`, and on
///   a cluster of Redis 7 `resetchannels &idem:* +spublish +ssubscribe +sunsubscribe` instead.
///   An engine with a [local cache](crate::LocalCache) hears of resets by `&idem:* +publish +subscribe
///   +unsubscribe`, on a cluster as well.
///   Without these nothing is lost; Redis keeps entries in its `ACL LOG`. So that a large answer
///   costs the server less: `+rename`. To [list records](crate::Engine::entries): `+scan`.
///   None of them is in `@dangerous` or `@admin` but `INFO`, which may be left out: then the store
///   warns that it could not check the eviction policy.
/// - Persistence as the business needs it. With asynchronous replication a failover can forget a
///   claim or an answer that was acknowledged.
///
/// # The report
///
/// When it connects, the store looks at all of this once, in three or four round trips:
/// [`RedisStore::report`] is what it found, and its text a report for the log of a start. What is
/// amiss is in its last lines and is told to the [`Observer`] when an engine is
/// built; only a server that evicts, is too old or is a Sentinel is refused. The rights are looked
/// at under the prefix `idem` unless [`RedisStoreBuilder::checked_prefix`] names another. Redis 7 is
/// asked for them, Redis 6 by trying, which leaves entries in its `ACL LOG` for those that are
/// missing; either way one key of a random name lives for a millisecond, and none of anybody's is
/// touched.
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

struct Inner {
    link: Route,
    /// For renewals and reads: made by the first of them, on the engine's own thread.
    own: Route,
    /// For listings: made by the first of them, on the engine's own thread.
    listing: Route,
    /// Connects when a key is first watched, on the engine's own thread as well.
    subscribers: Subscribers,
    scripts: Scripts,
    report: Report,
    /// What is amiss with the way to the server.
    transport: Option<String>,
    /// Whether a claim is made without a script where that will do.
    plain: AtomicBool,
    /// Whether a claim is ended without a script where that will do.
    swaps: bool,
    /// Whether a large answer goes past the script that stores it.
    stages: AtomicBool,
    /// Told of steps of the server's clock.
    observers: Arc<Observers>,
    max_record_bytes: usize,
}

impl Inner {
    fn plain_claims(&self) -> bool {
        self.plain.load(Ordering::Relaxed)
    }

    fn give_up_plain_claims(&self) {
        self.plain.store(false, Ordering::Relaxed);
    }
}

impl RedisStore {
    /// Connects with the default settings, to what a URL or a client leads to: see [`RedisSource`].
    ///
    /// # Errors
    ///
    /// As [`RedisStoreBuilder::connect`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped; the connection is closed.
    pub async fn connect(source: impl Into<RedisSource>) -> Result<Self, StoreError> {
        Self::builder(source).connect().await
    }

    /// Sets up a store.
    pub fn builder(source: impl Into<RedisSource>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(source.into())
    }

    /// What was found out when the store connected.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.0.report
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("report", &self.0.report)
            .field("link", &self.0.link)
            .finish_non_exhaustive()
    }
}

impl Store for RedisStore {
    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
    ) -> StoreFuture<'a, ClaimReply> {
        StoreFuture::pending(self.0.claim(key, request))
    }

    fn admit<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
        admission: &'a Admission,
    ) -> StoreFuture<'a, ClaimReply> {
        if let Some(error) = self.0.refused(key, admission) {
            return StoreFuture::ready(Err(error));
        }
        admission.sent();
        StoreFuture::pending(self.0.claim(key, request))
    }

    fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        StoreFuture::pending(self.0.complete(key, None, record))
    }

    fn complete_claim<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: &'a Header,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        StoreFuture::pending(self.0.complete(key, Some(claim), record))
    }

    fn release<'a>(
        &'a self,
        key: &'a RecordKey,
        owner: &'a Owner,
        remains: Remains,
    ) -> StoreFuture<'a, ReleaseReply> {
        StoreFuture::pending(self.0.release(key, owner, remains))
    }

    fn renew<'a>(&'a self, key: &'a RecordKey, claim: &'a Header) -> StoreFuture<'a, RenewReply> {
        StoreFuture::pending(self.0.renew(key, claim))
    }

    fn resolve<'a>(
        &'a self,
        key: &'a RecordKey,
        seen: &'a Header,
        record: &'a Bytes,
    ) -> StoreFuture<'a, ResolveReply> {
        StoreFuture::pending(self.0.resolve(key, seen, record))
    }

    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        StoreFuture::pending(self.0.read(key))
    }

    fn glance<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        StoreFuture::pending(self.0.glance(key))
    }

    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        StoreFuture::pending(self.0.watch(key))
    }

    fn listen(&self, prefix: &Arc<str>, listener: Weak<dyn Listener>) -> bool {
        let listening = |listener| Listening::new(&self.0, prefix, listener);
        let trial = listening(Weak::clone(&listener));
        tokio::spawn(async move { trial.try_to_publish().await });
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
        let mut warnings = self.0.report.warnings();
        warnings.extend(self.0.transport.clone());
        warnings.extend(self.0.subscribers.warning());
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of what this makes, which it does not.
    fn size_of<A, B, C, T>(_: impl FnOnce(A, B, C) -> T) -> usize {
        std::mem::size_of::<T>()
    }

    /// They are put into a box for each call, which an allocator hands out from its quick shelves up to a
    /// kilobyte or so.
    #[test]
    fn the_futures_of_a_call_are_small() {
        type Store = &'static Inner;
        type Key = &'static RecordKey;
        let claim = size_of(|s: Store, key: Key, r: &'static ClaimRequest| s.claim(key, r));
        let complete = size_of(|s: Store, key: Key, r: &'static Bytes| s.complete(key, None, r));
        assert!(claim <= 1_024, "{claim}");
        assert!(complete <= 1_024, "{complete}");
    }
}
