//! The two layers: routing of requests, and copies.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::background::Background;
use super::breaker::{Breaker, BreakerDecision, BreakerEvent};
use super::epochs::{Epoch, Epochs, Trust, closing, opening, record_of};
use super::stats::{Counters, count};
use super::unacked::UnackedCompletions;
use crate::env::clock::{Clock, SystemClock, deadline};
use crate::env::moment::Moment;
use crate::env::observer::EventKind;
use crate::identity::fingerprint::Fingerprint;
use crate::identity::operation::RecordKey;
use crate::record::{
    FOREVER, HEADER, Header, Journal, JournalKind, MAX_RETAIN, Owner, Record, State,
};
use crate::store::observers::Observers;
use crate::store::read_cache::{Copied, ReadCache, is_final};
use crate::store::{
    Admission, ClaimReply, ReadReply, ResolveReply, Store, StoreError, StoreErrorKind,
};

/// The longest time of a background operation.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// The patience of the claim that closes an epoch: a reset is no call that another one can take the place of.
const UNHURRIED: Duration = Duration::from_secs(60);
/// Requests of one probe. Several, because a silent connection is replaced only after some requests.
const PROBE_REQUESTS: u32 = 4;
/// The number of concurrent copies. Further ones are skipped.
const MOST_WRITES: u64 = 1024;

/// How much sooner than the answer its copy expires: the delay of a write on its way to the fast store.
const MARGIN: Duration = Duration::from_secs(5);
/// How long one reading of a running claim serves all waiting calls.
const HINT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Layers {
    pub(super) fast: Arc<dyn ReadCache>,
    pub(super) durable: Arc<dyn Store>,
    pub(super) patience: Duration,
    pub(super) epochs: Epochs,
    pub(super) breaker: Breaker,
    pub(super) background: Background,
    pub(super) counters: Counters,
    pub(super) unacked: UnackedCompletions,
    pub(super) observers: Observers,
}

/// The key of a record's copy, if the epoch is known.
///
/// Taken before the record is read or written, because a later key could belong to a newer epoch than the record: a
/// record that was read before a reset must not be copied into the epoch after it.
#[derive(Clone, Debug)]
pub(super) struct CopyKey {
    pub(super) copy: Option<RecordKey>,
    trust: Option<Trust>,
}

impl CopyKey {
    /// Whether a call is answered from the copy at this moment.
    fn is_trusted(&self) -> bool {
        self.trust.is_some_and(|trust| trust.holds(Moment::now()))
    }
}

enum CopyChange {
    Keep {
        record: Bytes,
        left: Duration,
        /// Since when that is left.
        since: Moment,
        /// How much sooner the copy ends.
        margin: Duration,
    },
    Forget {
        owner: Option<Owner>,
    },
}

/// Awaits `work` for this long by the machine's clock.
async fn within<F: Future>(patience: Duration, work: F) -> Option<F::Output> {
    let clock = SystemClock;
    deadline(&clock, clock.now() + patience, pin!(work))
        .await
        .ok()
}

impl Layers {
    pub(super) fn copy_key(self: &Arc<Self>, key: &RecordKey) -> CopyKey {
        let mut seen = self.epochs.see(key.prefix(), Instant::now());
        if !seen.is_tended {
            self.tend(key.prefix());
            seen = self.epochs.see(key.prefix(), Instant::now());
        }
        let at = |copies| RecordKey::under(copies, key.operation().clone(), *key.digest());
        CopyKey {
            copy: seen.copies.map(at),
            trust: seen.trust,
        }
    }

    fn tend(self: &Arc<Self>, prefix: &str) {
        let prefix: Arc<str> = prefix.into();
        if self.epochs.tend(&prefix, Instant::now()) {
            let layers = Arc::downgrade(self);
            self.background.run(Tending { layers, prefix }.follow());
        }
    }

    /// Reads a copy, if the fast store replies in time.
    async fn query(self: &Arc<Self>, copy_key: &CopyKey, waits: bool) -> Copied {
        let Some(copy) = copy_key.copy.as_ref().filter(|_| copy_key.is_trusted()) else {
            count(&self.counters.skipped);
            return None;
        };
        match self.breaker.admit(Instant::now()) {
            BreakerDecision::Query => {}
            decision => {
                if decision == BreakerDecision::Probe {
                    let layers = Arc::clone(self);
                    let works = false;
                    let probe = FastStoreProbe { layers, works };
                    self.background.run(probe.run(copy.clone()));
                }
                count(&self.counters.skipped);
                return None;
            }
        }
        let look = if waits {
            self.fast.poll(copy)
        } else {
            self.fast.look(copy)
        };
        match within(self.patience, look).await {
            Some(Ok(found)) => {
                self.breaker.succeeded();
                // While the reply was awaited, or this process was suspended, a reset may have ended.
                let found = found.filter(|_| copy_key.is_trusted());
                if found.is_none() {
                    count(&self.counters.misses);
                }
                found
            }
            Some(Err(error)) => {
                self.failed(&error.to_string());
                None
            }
            None => {
                self.failed(&format!("no answer within {:?}", self.patience));
                None
            }
        }
    }

    fn failed(&self, reason: &str) {
        count(&self.counters.failures);
        if let Some(BreakerEvent::Opened) = self.breaker.failed(Instant::now()) {
            self.observers.notify(EventKind::Degraded { reason });
        }
    }

    /// The answer of a key, if it has a copy.
    ///
    /// Returned with the time for which the original is kept.
    pub(super) async fn finished(
        self: &Arc<Self>,
        copy_key: &CopyKey,
        asked: Fingerprint,
    ) -> Copied {
        let (record, left) = self.query(copy_key, false).await?;
        // The durable store replies to a mismatch.
        if !answers(&record, asked) {
            count(&self.counters.misses);
            return None;
        }
        count(&self.counters.hits);
        Some((record, left + MARGIN))
    }

    /// Keeps a copy of a record.
    ///
    /// The durable store keeps the record for `left` from `since` on.
    pub(super) fn copy(
        self: &Arc<Self>,
        copy_key: &CopyKey,
        record: &Bytes,
        left: Duration,
        since: Moment,
    ) {
        let fits = self
            .fast
            .max_record_bytes()
            .is_none_or(|most| record.len() <= most);
        let (record, left) = bounded(record, left);
        let change = if fits && left > MARGIN {
            CopyChange::Keep {
                record,
                left,
                since,
                margin: MARGIN,
            }
        } else {
            // Waiting calls are notified in either case.
            CopyChange::Forget { owner: None }
        };
        self.write(copy_key, change);
    }

    /// Removes the copy after the end of the owner's claim.
    pub(super) fn forget(self: &Arc<Self>, copy_key: &CopyKey, owner: Option<Owner>) {
        self.write(copy_key, CopyChange::Forget { owner });
    }

    fn write(self: &Arc<Self>, copy_key: &CopyKey, change: CopyChange) {
        let Some(copy) = copy_key.copy.clone() else {
            return;
        };
        let writing = &self.counters.writing;
        if self.breaker.is_open() || writing.load(Ordering::Relaxed) >= MOST_WRITES {
            return count(&self.counters.skipped);
        }
        let writing = Writing::new(self);
        self.background.run(async move {
            let fast = &writing.0.fast;
            let done = match change {
                CopyChange::Keep {
                    record,
                    left,
                    since,
                    margin,
                } => {
                    let keep = match Moment::now().since(since) {
                        // The margin covers delays on the way.
                        Some(passed) => {
                            fast.keep(&copy, &record, left.saturating_sub(passed.max(margin)))
                        }
                        // Suspended since then: a copy could outlive the record.
                        None => fast.forget(&copy, None),
                    };
                    within(PATIENCE, keep).await
                }
                CopyChange::Forget { owner } => {
                    within(PATIENCE, fast.forget(&copy, owner.as_ref())).await
                }
            };
            if !matches!(done, Some(Ok(()))) {
                count(&writing.0.counters.failures);
            }
        });
    }

    /// Reads for a waiting call.
    pub(super) async fn poll(self: &Arc<Self>, key: &RecordKey) -> Result<ReadReply, StoreError> {
        let copy_key = self.copy_key(key);
        if let Some((record, left)) = self.query(&copy_key, true).await {
            let is_final = is_final(&record.header);
            if is_final || !record.header.lease_left(left).is_zero() {
                count(&self.counters.hits);
                let left = if is_final { left + MARGIN } else { left };
                return Ok(ReadReply::Found { record, left });
            }
            count(&self.counters.misses);
        }
        let since = Moment::now();
        let reply = self.durable.read(key).await?;
        if let ReadReply::Found { record, left } = &reply {
            if is_final(&record.header) {
                self.copy(&copy_key, record.bytes(), *left, since);
            } else if let Some((hint, left)) = hint(&record.header, *left) {
                if copy_key.copy.is_none() || self.breaker.is_open() {
                    // `LayeredStore::watch` watches there as well. The durable store notifies of those claims only for
                    // which it has a watch.
                    let _ = self.durable.watch(key).await;
                }
                let change = CopyChange::Keep {
                    record: Bytes::copy_from_slice(&hint.encode()),
                    left,
                    since,
                    margin: Duration::ZERO,
                };
                self.write(&copy_key, change);
            }
        }
        Ok(reply)
    }

    /// Closes the epoch of a prefix.
    ///
    /// Waits until no process answers from copies any more. After a stall of this process another one may have opened
    /// the epoch as an abandoned one, so that it is closed again.
    pub(super) async fn close(&self, prefix: &Arc<str>) -> Result<Header, StoreError> {
        loop {
            let began = SystemClock.now();
            let closed = self.close_once(prefix).await?;
            let passed = SystemClock.now().saturating_sub(began);
            if self.epochs.is_surely_closed(passed) {
                return Ok(closed);
            }
        }
    }

    async fn close_once(&self, prefix: &Arc<str>) -> Result<Header, StoreError> {
        let (epoch, claim) = (record_of(Arc::clone(prefix)), closing());
        let asked = Moment::now();
        let admission = Admission::new(UNHURRIED);
        let reply = self.durable.claim(&epoch, &claim, &admission).await?;
        let ClaimReply::Granted { fence, attempt, .. } = reply else {
            return Err(StoreError::new(
                StoreErrorKind::Protocol,
                "the durable store does not grant the record by which the copies of a reset key are \
                 made void; look who else writes its key `…:idem.epoch:…`",
            ));
        };
        let lease = claim.lease;
        let closed = claim.granted(State::Pending { lease }, fence, attempt);
        self.epochs.learn(prefix, Epoch::Closed(closed), asked);
        tokio::time::sleep(self.epochs.trust).await;
        Ok(closed)
    }

    /// Resolves a record; without a reply, once more: the engine would have to close the epoch again, which may take
    /// as long as the engine tries.
    pub(super) async fn resolve(
        &self,
        key: &RecordKey,
        seen: &Header,
        journal: Option<&Journal>,
        record: &Bytes,
    ) -> Result<ResolveReply, StoreError> {
        let reply = self.durable.resolve(key, seen, journal, record).await;
        if reply.as_ref().is_err_and(StoreError::is_transient) {
            return self.durable.resolve(key, seen, journal, record).await;
        }
        reply
    }

    /// Opens an epoch if it is still closed by this claim. Returns whether it was.
    pub(super) async fn open(
        &self,
        prefix: &Arc<str>,
        closed: &Header,
    ) -> Result<bool, StoreError> {
        let open = Bytes::copy_from_slice(&opening(closed).encode());
        let (epoch, asked) = (record_of(Arc::clone(prefix)), Moment::now());
        let opened = self.resolve(&epoch, closed, None, &open).await? == ResolveReply::Resolved;
        if opened {
            let number = closed.fence.get();
            self.epochs.learn(prefix, Epoch::Open(number), asked);
        }
        Ok(opened)
    }

    /// Opens the epoch that a reset closed, unless another closed it since.
    ///
    /// That one may be in progress, and the answer that it resets would be copied into the open epoch. The epoch is then
    /// opened as an abandoned one.
    pub(super) async fn reopen(
        &self,
        prefix: &Arc<str>,
        mut closed: Header,
    ) -> Result<(), StoreError> {
        // An opening sets the number of attempts to 0.
        while closed.attempts <= 1 && !self.open(prefix, &closed).await? {
            let reply = self.durable.read(&record_of(Arc::clone(prefix))).await?;
            if let Some(Epoch::Closed(_)) = Epoch::of(&reply) {
                return Ok(());
            }
            // The reset took so long that the epoch was opened: there may be copies of the record that was reset.
            closed = self.close(prefix).await?;
        }
        Ok(())
    }
}

/// Counts a copy in progress.
struct Writing(Arc<Layers>);

impl Writing {
    fn new(layers: &Arc<Layers>) -> Self {
        layers.counters.writing.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(layers))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.counters.writing.fetch_sub(1, Ordering::Release);
    }
}

/// A probe for the return of the fast store. Dropped before its end (it panicked, or has no thread), it has failed.
struct FastStoreProbe {
    layers: Arc<Layers>,
    works: bool,
}

impl FastStoreProbe {
    /// Checks whether the fast store replies again, within `patience`.
    async fn run(mut self, copy: RecordKey) {
        for _ in 0..PROBE_REQUESTS {
            let sent = Instant::now();
            let answer = within(PATIENCE, self.layers.fast.look(&copy)).await;
            self.works = matches!(answer, Some(Ok(_))) && sent.elapsed() <= self.layers.patience;
            if self.works {
                break;
            }
        }
    }
}

impl Drop for FastStoreProbe {
    fn drop(&mut self) {
        let Self { layers, works } = self;
        if let Some(BreakerEvent::Closed) = layers.breaker.probed(*works, Instant::now()) {
            layers.observers.notify(EventKind::Restored);
        }
    }
}

/// The reading of the epoch of a prefix. Once dropped, in whatever way, the next call begins another one.
struct Tending {
    layers: Weak<Layers>,
    prefix: Arc<str>,
}

impl Tending {
    /// Reads the epoch repeatedly as long as calls use the prefix.
    async fn follow(self) {
        let prefix = &self.prefix;
        let epoch = record_of(Arc::clone(prefix));
        loop {
            let pause = {
                let Some(layers) = self.layers.upgrade() else {
                    return;
                };
                let asked = Moment::now();
                if let Some(Ok(reply)) = within(PATIENCE, layers.durable.read(&epoch)).await
                    && let Some(epoch) = Epoch::of(&reply)
                {
                    layers.epochs.learn(prefix, epoch, asked);
                }
                if let Some(closed) = layers.epochs.abandoned(prefix, Instant::now()) {
                    // Of the processes that notice, one opens it; if none does, they retry.
                    let _ = within(PATIENCE, layers.open(prefix, &closed)).await;
                }
                if !layers.epochs.goes_on(prefix, Instant::now()) {
                    return;
                }
                layers.epochs.trust / 2
            };
            tokio::time::sleep(pause).await;
        }
    }
}

impl Drop for Tending {
    fn drop(&mut self) {
        if let Some(layers) = self.layers.upgrade() {
            layers.epochs.untend(&self.prefix);
        }
    }
}

/// A running claim as a short-lived copy for waiting calls.
///
/// Its lease ends when the claim's does.
fn hint(claim: &Header, left: Duration) -> Option<(Header, Duration)> {
    let lease = claim.lease_left(left);
    if lease.is_zero() {
        return None;
    }
    let state = match claim.state {
        State::Pending { .. } => State::Pending { lease },
        State::Reconciling { .. } => State::Reconciling { lease },
        _ => return None,
    };
    let retain = lease.min(HINT);
    let hint = Header {
        state,
        retain,
        // Waiting calls need none.
        journal: JournalKind::None,
        ..*claim
    };
    Some((hint, retain))
}

fn answers(record: &Record, asked: Fingerprint) -> bool {
    is_final(&record.header) && record.header.fingerprint.matches(asked)
}

/// The copy of a permanent record, with a bounded life.
///
/// A fast store keeps nothing for ever, so the copy is that of a record with the longest `retain` of a header, and of
/// the same age.
fn bounded(record: &Bytes, left: Duration) -> (Bytes, Duration) {
    let Ok(header) = Header::decode(record) else {
        return (record.clone(), left);
    };
    if header.retain != FOREVER {
        return (record.clone(), left);
    }
    let copy = Header {
        retain: MAX_RETAIN,
        ..header
    };
    let bytes = [&copy.encode(), &record[HEADER..]].concat();
    (bytes.into(), MAX_RETAIN.saturating_sub(header.age(left)))
}
