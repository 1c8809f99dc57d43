//! The local view of a claim: how long it surely lasts, and whether it is lost.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::call::step_log::StepLog;
use crate::env::call_span::HeldSpan;
use crate::env::clock::{Clock, deadline};
use crate::env::lock::Lock;
use crate::env::striped::Lane;
use crate::identity::digest_key::CallName;
use crate::identity::key::KeyDigest;
use crate::identity::operation::RecordKey;
use crate::local::singleflight::{Leader, LocalLease, SharedOutcome};
use crate::policy::{EffectivePolicy, LONG};
use crate::record::transition::{AppendReply, ClaimRequest, Remains, RenewReply};
use crate::record::{Header, Journal, Owner, Unreadable};
use crate::store::{Store, StoreError, StoreFuture};

/// A granted claim, as the store replied.
pub(crate) struct ClaimGrant {
    /// Pending, or reconciling.
    pub(crate) header: Header,
    /// As in [`ClaimReply::Granted`](crate::record::transition::ClaimReply).
    pub(crate) fresh: bool,
    pub(crate) journal: Journal,
    pub(crate) sent: Duration,
    pub(crate) leader: Leader,
    pub(crate) reconciles: Option<ClaimRequest>,
}

/// One claim, shared by the body, its settlement, and the renewing thread.
pub(crate) struct Lease {
    clock: Arc<dyn Clock>,
    pub(crate) key: RecordKey,
    /// As in [`CallName`].
    plain: Option<Box<KeyDigest>>,
    pub(crate) policy: EffectivePolicy,
    /// When renewing ends even if the body has not.
    pub(crate) give_up: Duration,
    pub(crate) slot: RenewalSlot,
    /// The header of the record when the claim was granted.
    first: Header,
    /// The header since the claim was granted anew, if it was.
    again: Lock<Option<Box<Header>>>,
    /// Guaranteed end of the lease, in microseconds of the clock: until then no other attempt can have been granted the
    /// key.
    ends: AtomicU64,
    lost: AtomicBool,
    /// The key stays with its request, also after a release: another attempt had it for this request, or this attempt
    /// did something that another request must not meet.
    bound: AtomicBool,
    /// Grows when the claim is granted anew: replies about an older grant are ignored.
    grants: AtomicU32,
    lost_notify: Notify,
    /// The leader of this process's calls that await the answer.
    leader: Leader,
    /// The steps of its body, and of earlier attempts.
    pub(crate) steps: StepLog,
    pub(crate) span: HeldSpan,
}

/// The slot of a lease in the renewal queues. Changed under the lock of its queue.
pub(crate) struct RenewalSlot {
    /// Its queue: that of the thread on which the claim was granted.
    pub(crate) lane: Lane,
    /// When it is to be renewed, in nanoseconds of the clock; or `OUTSIDE`, or `GONE`.
    pub(crate) due: AtomicU64,
    pub(crate) id: AtomicU64,
    /// The body has ended. A renewal that finds the claim gone then overtook its completion, or the completion will
    /// find the same and report it.
    body_ended: AtomicBool,
    /// The answer of the body is collected, and that ends at `max_run`: until then the lease is renewed.
    collected: AtomicBool,
    /// The unknown outcome that takes the place of the claim is sent. Its reply, and not that of a renewal, decides
    /// whether a missing claim is a loss.
    unknown_sent: AtomicBool,
    /// The record holds an unknown outcome until the answer is complete. A renewal that finds no claim is no loss.
    unclaimed: AtomicBool,
    /// The store has the answer, or a released key without steps: no body needs the claim any more.
    settled: AtomicBool,
}

/// The lease is being renewed right now, or is lost.
pub(crate) const OUTSIDE: u64 = u64::MAX;
/// The lease is no longer registered.
pub(crate) const GONE: u64 = u64::MAX - 1;

impl Default for RenewalSlot {
    fn default() -> Self {
        Self {
            lane: Lane::mine(),
            due: AtomicU64::default(),
            id: AtomicU64::default(),
            body_ended: AtomicBool::default(),
            collected: AtomicBool::default(),
            unknown_sent: AtomicBool::default(),
            unclaimed: AtomicBool::default(),
            settled: AtomicBool::default(),
        }
    }
}

impl RenewalSlot {
    pub(crate) fn body_has_ended(&self) -> bool {
        self.body_ended.load(Ordering::Acquire)
    }

    /// Whether the lease is renewed even after `max_run`.
    pub(crate) fn outlasts_max_run(&self) -> bool {
        self.body_has_ended() || self.collected.load(Ordering::Acquire)
    }

    pub(crate) fn is_unknown_sent(&self) -> bool {
        self.unknown_sent.load(Ordering::Acquire)
    }

    pub(crate) fn is_unclaimed(&self) -> bool {
        self.unclaimed.load(Ordering::Acquire)
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }
}

impl LocalLease for Lease {
    /// The guaranteed rest of the lease; zero when it is lost.
    fn remaining(&self) -> Duration {
        if self.is_lost() {
            return Duration::ZERO;
        }
        Duration::from_micros(self.ends.load(Ordering::Acquire)).saturating_sub(self.clock.now())
    }

    /// Whether a call of this process queries the store about the key. Once the body has ended, the process has an
    /// answer: as long as no other holder of the key is known, calls wait for the answer to be stored.
    fn is_over(&self) -> bool {
        self.is_lost() || (self.remaining().is_zero() && !self.slot.body_has_ended())
    }
}

impl Lease {
    /// Creates the lease of a granted claim. It lasts from the moment at which the claim was sent, not from the reply.
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        CallName { key, plain, .. }: CallName,
        policy: EffectivePolicy,
        grant: ClaimGrant,
    ) -> Self {
        let ClaimGrant {
            header,
            fresh,
            journal,
            sent,
            leader,
            ..
        } = grant;
        let steps = StepLog::default();
        steps.inherit(&journal);
        Self {
            clock,
            key,
            plain,
            give_up: sent + policy.max_run(),
            slot: RenewalSlot::default(),
            first: header,
            again: Lock::default(),
            ends: AtomicU64::new(micros(sent + policy.lease())),
            policy,
            lost: AtomicBool::new(false),
            bound: AtomicBool::new(!fresh),
            grants: AtomicU32::new(0),
            lost_notify: Notify::new(),
            leader,
            steps,
            span: HeldSpan::default(),
        }
    }

    /// The digest from which the derived keys of its body follow.
    pub(crate) fn plain(&self) -> &KeyDigest {
        self.plain.as_deref().unwrap_or(self.key.digest())
    }

    /// Marks the body as ended; the lease is renewed until the outcome is settled.
    pub(crate) fn mark_body_ended(&self) {
        // Set before the completion is sent, and so before its effect can be observed.
        self.slot.body_ended.store(true, Ordering::Release);
    }

    /// Marks the answer of the body as collected.
    pub(crate) fn mark_collected(&self) {
        self.slot.collected.store(true, Ordering::Release);
    }

    /// Marks a claim that the record may lose: its outcome becomes unknown until the answer is complete.
    pub(crate) fn mark_unknown_sent(&self) {
        // Set before the unknown outcome is sent, and so before a renewal can find it.
        self.slot.unknown_sent.store(true, Ordering::Release);
    }

    /// Marks the key as settled: answered by any attempt, or released without steps to keep.
    pub(crate) fn mark_settled(&self) {
        self.slot.settled.store(true, Ordering::Release);
    }

    /// Extends the lease without a claim: while the outcome is unknown, no other attempt is granted the key.
    pub(crate) fn extend_unclaimed(&self) {
        self.slot.unclaimed.store(true, Ordering::Release);
        let ends = micros(self.clock.now() + LONG);
        self.ends.fetch_max(ends, Ordering::AcqRel);
    }

    /// Notifies the waiting calls of this process that the body runs here.
    pub(crate) fn mark_local(self: &Arc<Self>) {
        self.leader.set_local(Arc::downgrade(self) as _);
    }

    /// How long the claim lasts from its last renewal.
    pub(crate) fn lasts(&self) -> Duration {
        self.policy.lease()
    }

    /// The header of the record since the claim was granted.
    pub(crate) fn claim(&self) -> Header {
        if self.grant() == 0 {
            return self.first;
        }
        let again = self.again.lock();
        again.as_deref().copied().unwrap_or(self.first)
    }

    /// Records that the claim was granted anew, with another header.
    pub(crate) fn regranted(&self, claim: Header, sent: Duration) {
        let mut again = self.again.lock();
        *again = Some(Box::new(claim));
        self.bind();
        self.grants.fetch_add(1, Ordering::SeqCst);
        drop(again);
        self.renewed(sent);
    }

    /// Binds the key to its request from now on.
    pub(crate) fn bind(&self) {
        self.bound.store(true, Ordering::Relaxed);
    }

    /// Whether the key is bound to its request.
    pub(crate) fn is_bound(&self) -> bool {
        self.bound.load(Ordering::Relaxed)
    }

    /// The number of the current grant of the claim.
    pub(crate) fn grant(&self) -> u32 {
        self.grants.load(Ordering::SeqCst)
    }

    /// Whether another attempt holds the claim, or it is no longer renewed.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// Records an accepted renewal that was sent at `sent`.
    pub(crate) fn renewed(&self, sent: Duration) {
        self.ends
            .fetch_max(micros(sent + self.lasts()), Ordering::AcqRel);
    }

    /// Marks the claim as lost: another attempt holds it, or it is no longer renewed.
    pub(crate) fn lose(&self) -> bool {
        let first = !self.lost.swap(true, Ordering::SeqCst);
        self.lost_notify.notify_waiters();
        // A call that waits for an answer of this process may get another attempt's answer sooner.
        self.wake_followers();
        first
    }

    /// Ends the wait for this claim with this answer.
    pub(crate) fn notify_followers(&self, outcome: impl FnOnce() -> Option<SharedOutcome>) {
        self.leader.notify(outcome);
    }

    /// Ends the wait for this claim: calls that still wait query the store.
    pub(crate) fn wake_followers(&self) {
        self.leader.resign();
    }

    /// Waits until the claim is lost, or the lease has run out.
    pub(crate) async fn until_lost(&self) {
        let clock = &*self.clock;
        loop {
            let mut lost_notify = pin!(self.lost_notify.notified());
            // From here on no notification is missed.
            lost_notify.as_mut().enable();
            let left = self.remaining();
            if left.is_zero() {
                return;
            }
            // Most likely renewed in the meantime: the loop checks.
            let _ = deadline(clock, clock.now() + left, lost_notify.as_mut()).await;
        }
    }

    /// Releases a settled key's claim that a late request wrote again.
    ///
    /// It arrived after the life of the answer, or after the release of a lost record: without a body, the claim would
    /// block the key for a lease, and give its steps to the next call.
    pub(crate) async fn take_back(
        &self,
        store: &dyn Store,
        owner: &Owner,
        has_steps: bool,
    ) -> Result<(), StoreError> {
        let none = Journal::default();
        let steps = has_steps.then_some((&none, None));
        let released = store.release(&self.key, owner, Remains::Nothing, steps);
        released.await.map(drop)
    }

    /// How long the lease will still be renewed.
    pub(crate) fn run_left(&self) -> Duration {
        self.give_up.saturating_sub(self.clock.now())
    }
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

debug_fields!(Lease {
    key,
    claim: |it| it.claim()
});

/// Why the store has not confirmed a claim or its steps.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// Another attempt may run.
    Lost,
    /// The store keeps no journals.
    Unsupported,
    Unreadable(Unreadable),
    /// There was no reply in time. The last failure, if there was one.
    Unconfirmed(Option<StoreError>),
}

pub(crate) struct Renewal {
    claim: Header,
    /// The part of the journal that the store has confirmed.
    journal: Journal,
}

impl Renewal {
    pub(crate) fn of(lease: &Lease) -> Self {
        Self {
            claim: lease.claim(),
            journal: lease.steps.confirmed(),
        }
    }

    /// Sends it. A record that was lost is written again, with its journal, unless the key is settled: then it is
    /// released, and lost.
    pub(crate) async fn send(
        &self,
        store: &dyn Store,
        lease: &Lease,
    ) -> Result<RenewReply, StoreError> {
        let reply = self.renew(store, lease).await?;
        if reply == RenewReply::Reasserted && lease.slot.is_settled() {
            let has_steps = !self.journal.is_empty();
            lease.take_back(store, &self.claim.owner, has_steps).await?;
            return Ok(RenewReply::Lost);
        }
        Ok(reply)
    }

    fn renew<'a>(&'a self, store: &'a dyn Store, lease: &'a Lease) -> StoreFuture<'a, RenewReply> {
        let Self { claim, journal } = self;
        if journal.is_empty() {
            return store.renew(&lease.key, claim);
        }
        let known = journal.as_bytes().len();
        StoreFuture::pending(async move {
            Ok(
                match store.append(&lease.key, claim, journal, known).await? {
                    AppendReply::Appended => RenewReply::Renewed,
                    AppendReply::Reasserted => RenewReply::Reasserted,
                    AppendReply::Lost => RenewReply::Lost,
                    AppendReply::Unreadable(error) => RenewReply::Unreadable(error),
                    // It has confirmed this journal.
                    AppendReply::Unsupported => store.renew(&lease.key, claim).await?,
                },
            )
        })
    }
}
