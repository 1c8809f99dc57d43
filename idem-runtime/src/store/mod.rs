//! The contract between the engine and a store of records.
//!
//! # The clock of the server
//!
//! Leases and the lives of records are measured by one clock: that of the server that has the record (SQLite: that of
//! the machine). No clock of a client counts, and none compensates for errors of the server's clock:
//!
//! - A **step forward** by S ends each lease and each record S sooner. A step of at least the remaining time of a lease
//!   lets another body start while the first one still runs. With a lease of 30 s, renewed every 10 s, a step of 20 s
//!   may do that, and one of 30 s does if another caller claims the key before the next renewal.
//! - A **step back** by S keeps claims and records S longer. A claim of a process that has crashed blocks its key for a
//!   lease and S.
//! - After a **failover** the clock of the promoted server counts; its difference from the clock of the former server
//!   is a step like any other.
//!
//! Stores whose replies have the server's time compare it with the monotonic clock of the process, which takes no round
//! trip: PostgreSQL, MySQL and SQLite in each claim and renewal, Redis in each renewal and in those claims that are
//! made by a script, at least one in ten seconds. Observers receive
//! [`ClockStepped`](crate::observe::EventKind::ClockStepped) for steps of 250 ms or more, besides the difference by
//! which NTP slews the two clocks apart. In a Redis cluster each node is compared with itself, on each connection, so
//! that a failover is not a step and a step is reported more than once. A [`MemoryStore`](memory::MemoryStore) has a
//! clock that does not step. A suspended process whose monotonic clock stops meanwhile (Linux, macOS) finds the
//! server's clock ahead when it wakes up, which is reported as a step: its leases have ended by as much.
//! On Linux and Windows the engine knows that before it has a reply, because
//! [`SystemClock`](crate::clock::SystemClock) counts suspensions.
//!
//! After a step forward an engine renews immediately each lease whose renewal was due within the step. A lease that has
//! lapsed by the step is renewed as well, unless another caller has claimed the key since: then the owner
//! [loses](crate::observe::EventKind::LeaseLost) it, and two bodies run.
//!
//! Recommendations: slew the clocks of servers, do not step them; keep the [lease](crate::EngineBuilder::lease) well
//! above the steps that can happen; and where a second start is not acceptable, use `max_attempts = 1`, `reconcile`, or
//! [`derive_key`](crate::Context::derive_key) on the other side.

mod admission;
pub(crate) mod arc;
pub mod author;
mod error;
mod finding;
mod future;
mod invalidation;
pub mod layered;
pub(crate) mod listing;
pub mod memory;
mod observers;
#[cfg(feature = "_server")]
mod pace;
mod read_cache;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "_server")]
mod server_clock;
#[cfg(feature = "_sql")]
pub mod sql;
#[cfg(any(feature = "_mysql", feature = "_postgres", feature = "redis"))]
#[allow(dead_code, reason = "a pool of diesel-async does not show its host")]
mod transport;
mod watch;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

pub(crate) use self::author::*;
pub(crate) use self::error::Reach;
pub use self::error::{StoreError, StoreErrorKind};
pub use self::finding::{Finding, FindingLevel};
#[cfg(feature = "redis")]
pub(crate) use self::future::Boxed;
#[cfg(feature = "_server")]
pub(crate) use self::listing::EXAMINED;
pub(crate) use self::listing::no_position;
use crate::env::observer::Observer;
pub use crate::identity::operation::RecordKey;
pub use crate::record::{Fence, OutcomeKind};

/// Keeps records and decides, key by key, which caller may run.
///
/// The state machine is that of [`claim`], [`complete`], [`release`], [`renew`] and [`resolve`], the functions of
/// [`author`]. A store that can hold a lock around them calls them. A store with compare-and-set calls them and starts
/// again if another write came first. A store whose server decides implements the same transitions there.
/// In the repository `examples/quickstart/custom_store.rs` is a store of the first kind, and `examples/zookeeper_store`
/// one of the second.
///
/// # The contract
///
/// Each rule has at least one case in the [conformance suite](https://docs.rs/idem-conformance).
///
/// 1. **Atomic.** Each operation on a key happens at one moment; of many claims one is granted.
/// 2. **Owner-checked.** `complete`, `release` and `renew` by an owner that does not hold the claim change nothing,
///    with one exception: an answer is stored if no body can be running, because the record is gone or released, or (a
///    success only) because the later claim has lapsed.
/// 3. **Repeatable.** The same operation sent again, by idem or by a client library without its knowledge, has the
///    effect and the reply of one. A claim that arrives after its own end is not granted while the record of that
///    end lives.
/// 4. **Done is final.** A done record does not change until its life is over, except by a resolution that has seen it.
///    An unknown outcome is not an answer: a late success replaces it.
/// 5. **Leases by the store's clock.** A claimed key is not granted to another owner before the lease is over, and is
///    granted after that, as far as rules 8 and 13 allow. No clock of a client counts. A store that notices a step of
///    its clock reports [`ClockStepped`](crate::observe::EventKind::ClockStepped) to its [observers](Self::observed_by), and the
///    engine renews its leases.
/// 6. **The life is part of the write.** No record exists, ever, without its expiry; expiry is exact to the
///    millisecond. A release keeps the remaining life, except a release of which nothing remains: its record counts no
///    attempt and has no fingerprint, and lives for the claim's lease from the release on, at least 10 seconds
///    ([`released_life`]). So calls that fail take room for a lease, and not for their `ttl`.
/// 7. **Fences grow** with every claim of a key as long as its record is kept. After that the next fence is the store's
///    time in microseconds: higher, unless the store's clock was set back by more than the time since the last claim.
///    Every claim that was not released with [`Remains::Nothing`] keeps its record for its whole life, so that within
///    that life no attempt that may still act is followed by a lower fence.
/// 8. **Attempts count** every start of a body since the last reset, less those released without [`Remains::Attempt`];
///    at `max_attempts` no body is granted. A reconcile is no attempt.
/// 9. **Fingerprints are kept** through every state, and compared in every state. Only a release with
///    [`Remains::Nothing`] of the one attempt that counts removes the fingerprint, and a claim states whether it
///    brought it. **The types of the answers** are kept as well, until a claim or an answer brings others, or that
///    release or a reset removes them. No claim is granted under a record of another type, unless it accepts
///    [any](ClaimRequest::any_type).
/// 10. **An unreadable record is not replaced.**
/// 11. **Keys are separate**: prefix, operation and digest each.
/// 12. **A finished answer finds room.** A full store refuses claims, not completions, and never drops a record that is
///     alive.
/// 13. **Unknown stays unknown** until a caller that can reconcile claims it, or a resolution settles it. No other
///     caller runs the body, not even after the reconciling caller has vanished, and not on a verdict that came after
///     another claim.
/// 14. **Watchers are notified** of every completion, release and resolution, by any caller, as well as the store can:
///     a store that cannot notify reports that, and a message may get lost.
/// 15. **Listeners are notified** of every resolution of their prefix, at the latest soon after the resolving caller
///     has its reply; or they are notified that some resolutions may not be delivered. A store that cannot notify
///     reports that. An engine removes the records that it resolves itself from its own cache, and does not wait for a
///     notification.
/// 16. **A listing misses no record.** The steps from the first to the last give each record that is kept and matches
///     throughout at least once, with the key under which the other operations find it, and with a header and a life of
///     one moment. They give no record of another prefix, operation or state, and none that has expired. Each step
///     examines a bounded number of records and gives `limit` of them at most, where the server allows it; it delays no
///     other operation. A position is valid in every process. A store that cannot list reports that.
/// 17. **A claim begins no record that it [needs](ClaimRequest::needs).** If there is none, or it has expired, nothing
///     is written. If there is one, the claim is decided as any other.
/// 18. **A journal is kept** through every claim, renewal and release of its record, and comes with each grant. A
///     completion or a resolution replaces it by what its own record has. Only the owner of the claim appends. A claim
///     that [records attempts](ClaimRequest::records_attempts) and takes over a lapsed one adds an entry to it.
///
/// # Cancel safety
///
/// A dropped future leaves it open whether the operation happened; rule 3 makes that harmless.
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Claims the right to run the body.
    ///
    /// `admission` has the patience of the caller. The store calls [`Admission::sent`] right before the claim is sent,
    /// because from then on it may be granted. A store with a queue immediately refuses a claim that would wait beyond
    /// this patience, with [`StoreErrorKind::Overloaded`].
    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
        admission: &'a Admission,
    ) -> StoreFuture<'a, ClaimReply>;

    /// A new owner for a claim of this key.
    ///
    /// No other caller that may claim the key here has the same owner, in any process or child of a process. The
    /// default, 128 random bits, is right for every store.
    fn new_owner(&self, key: &RecordKey) -> Owner {
        let _ = key;
        Owner::random()
    }

    /// The final answer to a claim with this fingerprint, if known locally.
    ///
    /// It is the answer that a claim would get at this moment, with the time that it will still be kept, and is
    /// returned without a request. `None`, the default: the engine claims.
    fn at_hand(
        &self,
        key: &RecordKey,
        asked: crate::identity::fingerprint::Fingerprint,
    ) -> Option<(Record, std::time::Duration)> {
        let _ = (key, asked);
        None
    }

    /// Stores an answer.
    ///
    /// `record` is a whole record (header and body) in state done, to be kept for its `retain`. An unreadable one is
    /// refused as [`CompleteReply::Unreadable`]. `claim` is the header of the claim as it was granted, if the caller
    /// has it: it may save a store work, and the reply is the same without it.
    fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: Option<&'a Header>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply>;

    /// Releases the key.
    ///
    /// `remains` states whether the attempt counts, and whether the key stays with its request.
    ///
    /// `journals`, for a store that [keeps journals](Self::keeps_journals): the journal to write, and that seen by the caller.
    /// The first has every entry that counts, of the owner and of the former record: it may be shorter than that of the
    /// record. With the second, the release is that of an operator, who has read this journal: unless
    /// the record has exactly it, the reply is [`ReleaseReply::Superseded`], and nothing changes. The transition is
    /// [`release_with_journal`]. `None`: the record keeps its journal.
    fn release<'a>(
        &'a self,
        key: &'a RecordKey,
        owner: &'a Owner,
        remains: Remains,
        journals: Option<(&'a Journal, Option<&'a Journal>)>,
    ) -> StoreFuture<'a, ReleaseReply>;

    /// Renews the lease of a claim. `claim` is its header as granted.
    ///
    /// Called on the engine's own thread: a store with connections uses one of its own for this, so
    /// that no busy runtime and no full pipeline starves a lease.
    fn renew<'a>(&'a self, key: &'a RecordKey, claim: &'a Header) -> StoreFuture<'a, RenewReply>;

    /// Whether the store keeps journals: [`append`](Self::append) then works.
    ///
    /// `false`, the default: a call with [steps](crate::step()) is refused before its first one, with
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
    fn keeps_journals(&self) -> bool {
        false
    }

    /// Appends to the journal of a claim, and renews its lease.
    ///
    /// `claim` is its header as granted. `journal` is the whole journal: the record's when the claim was
    /// granted, and the owner's entries since. `known` of its bytes the store has confirmed, in the grant or
    /// in a reply to this operation: a store may send the rest alone. The transition is [`append`].
    ///
    /// [`AppendReply::Unsupported`], the default: this store [keeps no journals](Self::keeps_journals).
    fn append<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: &'a Header,
        journal: &'a Journal,
        known: usize,
    ) -> StoreFuture<'a, AppendReply> {
        let _ = (key, claim, journal, known);
        StoreFuture::ready(Ok(AppendReply::Unsupported))
    }

    /// Replaces the record that was `seen` by a resolution or a reset.
    ///
    /// `record` is a whole record in state done, or a released one with the journal that it keeps, under an owner of its
    /// own, to be kept for its `retain`. `journal` is that seen by the caller: the owner of a claim that has lapsed may
    /// have appended since, which the header does not show. `None`: it is not compared.
    fn resolve<'a>(
        &'a self,
        key: &'a RecordKey,
        seen: &'a Header,
        journal: Option<&'a Journal>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, ResolveReply>;

    /// Starts to watch a key.
    ///
    /// The [`Watch`] is notified when the key's record is completed, released or resolved, by any caller, from the
    /// moment on at which this operation has replied. `None`, the default: this store does not notify, and waiting
    /// calls poll.
    ///
    /// A claim that is granted after that reply may end without a notification, unless a [`poll`](Self::poll) has
    /// seen it: a store need not notify of a claim for which no call waits.
    ///
    /// A message may get lost, because waiting calls poll at intervals in any case; a lost message costs them time.
    ///
    /// Called on the engine's own thread.
    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>> {
        let _ = key;
        StoreFuture::ready(Ok(None))
    }

    /// Notifies `listener` when an answer of this prefix is resolved or reset.
    ///
    /// This holds for resolutions by any caller. The listener receives none before it receives [`Hearing::All`].
    /// `false`, the default: this store does not notify, and answers are cached for a short time only.
    ///
    /// Called once for each engine with a [local cache](crate::cache::LocalCache), on the engine's own thread and in
    /// its runtime. The subscription ends with the listener.
    fn listen(&self, prefix: &Arc<str>, listener: std::sync::Weak<dyn Listener>) -> bool {
        let _ = (prefix, listener);
        false
    }

    /// Reads a record and its remaining life, without changing anything.
    ///
    /// Called on the engine's own thread.
    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply>;

    /// Reads a record for a waiting call, possibly from a copy.
    ///
    /// An answer that this shows is the answer. It may report a claim as held for a while after the claim has ended,
    /// but never for longer than the claim's lease; the lease, `retain` and `left` of such a claim are those of the
    /// copy.
    ///
    /// The `left` of an answer may be up to the record's whole `retain`, if this never reports an ended claim as held:
    /// then the caller knows the earliest time at which the answer can have been stored.
    ///
    /// Called on the engine's own thread.
    fn poll<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        self.read(key)
    }

    /// One step of a listing of a prefix's records, headers only.
    ///
    /// Called on the engine's own thread. The default is an error of kind [`StoreErrorKind::Unsupported`]: this store
    /// cannot list.
    fn list<'a>(&'a self, request: &'a ListRequest) -> StoreFuture<'a, ListReply> {
        let _ = request;
        StoreFuture::ready(Err(listing::unsupported(
            "this store does not list its records (`Store::list`); look an entry up by its key or digest",
        )))
    }

    /// Registers the observer of an engine that is built on this store.
    ///
    /// It is the observer of the events of that engine. A store also notifies it of its own events that matter to an
    /// operator. Several engines may share a store. To be kept as a [`Weak`](std::sync::Weak).
    fn observed_by(&self, observer: &Arc<dyn Observer>) {
        let _ = observer;
    }

    /// The longest record that this store keeps and reads back, in bytes.
    ///
    /// The header is included. An engine on this store stores no longer answers, whatever its `max_value_bytes`: it
    /// asks when it is built, and after a completion that failed, because an operator may lower the limit of a server:
    /// an answer that has become too long leaves a tombstone. Return a completion beyond it as `Unavailable`, because
    /// after `TooLarge` nothing is stored.
    fn max_record_bytes(&self) -> Option<usize> {
        None
    }

    /// Whether a record whose `retain` is [`FOREVER`](crate::FOREVER) never expires.
    ///
    /// It is kept until an operator deletes it. An engine refuses `ttl = forever` on a store without such records.
    fn keeps_forever(&self) -> bool {
        false
    }

    /// Whether answers are replayed from a store that others can write to.
    ///
    /// That is a store in front of the deciding one. An engine without [encryption](crate::EngineBuilder::encrypt)
    /// warns of it. `false`, the default: there is no such store.
    fn trusts_copies(&self) -> bool {
        false
    }

    /// The pause before a [`resolve`](Self::resolve) that removes an answer.
    ///
    /// An engine waits for it beyond its `claim_deadline`. Zero, the default: there is no pause.
    #[doc(hidden)]
    fn reset_pause(&self) -> std::time::Duration {
        std::time::Duration::ZERO
    }

    /// A finished answer that is known without a query of the database.
    ///
    /// For calls in a transaction, before they use it.
    #[cfg(feature = "_sql")]
    #[doc(hidden)]
    fn recall<'a>(
        &'a self,
        key: &'a RecordKey,
        asked: crate::identity::fingerprint::Fingerprint,
    ) -> StoreFuture<'a, Option<(Record, std::time::Duration)>> {
        let _ = (key, asked);
        StoreFuture::ready(Ok(None))
    }

    /// The operations inside a transaction of the caller, if supported.
    #[cfg(feature = "_sql")]
    #[doc(hidden)]
    fn sql(&self) -> Option<sql::Sql<'_>> {
        None
    }

    /// Warnings for an operator about this store, a sentence each.
    ///
    /// The observer receives them when an engine is built.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}
