//! Settlement of a claim whose answer is complete later: the caller has the beginning of it, and a task collects the rest.
//!
//! Before the caller gets anything, an unknown outcome is stored, so that no crash starts another body; the complete
//! answer replaces it. Where unknown outcomes are released, or a hook reconciles them, the claim is held instead, and a
//! crash ends it as that of any body. After its lease, the claim is renewed first, unless `on_unconfirmed` is `Return`.
//!
//! | at this point | the process dies | the store fails | another attempt has the key |
//! |---|---|---|---|
//! | before the unknown outcome is stored | the lease lapses, and the next call runs the body | the caller gets the answer as `on_unconfirmed` says, storing the unknown outcome is repeated, and the answer is stored at its end | its answer counts, and the caller is refused; this one is stored if the other attempt ends without an answer |
//! | while the answer comes | the outcome is unknown | nothing is sent | only after a reset by an operator, see below |
//! | while the complete answer is stored | the outcome is unknown | storing continues in the background, as of every answer | its stored answer counts; while it holds a claim, this answer waits for it |
//!
//! A reset has the effect that it has on every body that is alive: an answer that is complete before the next call
//! is stored; after that call began, its answer is. An operator's answer is never replaced.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use tokio::runtime::Handle;

use crate::call::run_limit::RunPermit;
use crate::call::settlement::{Ending, EndingGuard, HeldClaim, Settled, Settling};
use crate::env::call_span::CallSpan;
use crate::env::clock::{Elapsed, deadline};
use crate::env::observer::EventKind;
use crate::local::singleflight::LocalLease as _;
use crate::outcome::codec::{Encoded, LaterAnswer};
use crate::policy::{OnLeaseLost, OnUnconfirmed};
use crate::record::OutcomeKind;
use crate::record::unknown_cause::Cause;

/// The predicate of "the body …" for an incomplete answer.
const CUT_OFF: &str = "was cut off while it streamed its answer";

/// What keeps other attempts away until the answer is complete.
enum Meanwhile {
    /// The claim.
    Claim,
    /// The claim, until this unknown outcome is stored.
    Unconfirmed(Ending),
    /// The unknown outcome.
    Unknown,
}

/// A claim whose answer is not complete.
struct IncompleteAnswer {
    /// `None`: it is settled.
    held: Option<HeldClaim>,
    meanwhile: Meanwhile,
    /// The body counts as running until its answer is stored.
    _run_permit: Option<Box<RunPermit>>,
}

impl HeldClaim {
    /// Stores an unknown outcome, or holds the claim.
    ///
    /// A task of its own collects the answer.
    pub(super) fn settle_later(
        self,
        later: Box<LaterAnswer>,
        run_permit: Option<Box<RunPermit>>,
    ) -> Settling {
        let core = Arc::clone(&self.core);
        self.lease.mark_collected();
        let meanwhile = if later.is_unknown_meanwhile && !self.policy().reconciles {
            self.lease.mark_body_ended();
            self.lease.mark_unknown_sent();
            Meanwhile::Unconfirmed(self.unknown_ending(Cause::Streaming))
        } else {
            Meanwhile::Claim
        };
        let mut incomplete = IncompleteAnswer {
            held: Some(self),
            meanwhile,
            _run_permit: run_permit,
        };
        Box::pin(async move {
            let settled = match incomplete.begin().await {
                None => Settled::Own,
                Some(settled) if incomplete.held.is_none() => return settled,
                // The caller repeats the call, and is to get the complete answer. Of an overtaken one the successor may
                // still crash or release the key: then this answer saves a third run.
                Some(settled) => settled,
            };
            let collected = CallSpan::current().instrument(incomplete.collect(*later));
            match Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn(collected)),
                Err(_) => core.background.spawn(collected),
            }
            settled
        })
    }
}

impl IncompleteAnswer {
    /// Sends the unknown outcome, or renews a claim that is late.
    ///
    /// `None`: the caller may get its answer. If its answer is not to be collected, the claim is no longer held.
    async fn begin(&mut self) -> Option<Settled> {
        let held = self.held.as_ref()?;
        let Meanwhile::Unconfirmed(Ending::Complete { finished, .. }) = &self.meanwhile else {
            let passes = held.policy().on_unconfirmed() == OnUnconfirmed::Return;
            if passes || !held.lease.remaining().is_zero() {
                return None;
            }
            // Another attempt may have the key, or may have answered.
            let (core, patience) = (&held.core, held.core.limits.complete_deadline);
            let renewed = core.background.renew_now(&held.lease, patience).await;
            // The reply may be older than the lease.
            let is_late = renewed.is_err() || held.lease.remaining().is_zero();
            return is_late.then(|| Settled::Refused(held.unconfirmed(None)));
        };
        let times = (held.core.clock.now(), held.core.limits.complete_deadline);
        let wait = held.policy().wait();
        let settled = held.complete(finished, times, wait, true).await;
        if held.lease.slot.is_unclaimed() {
            self.meanwhile = Meanwhile::Unknown;
            return None;
        }
        match settled {
            // The store does not take it, and the caller may get the answer all the same.
            Some(Settled::Own) => {
                held.core.background.lose(&held.lease);
                None
            }
            None if held.may_return_unconfirmed() => None,
            // Sending continues beside the stream: a stored unknown outcome prevents another run.
            None => Some(Settled::Refused(held.unconfirmed(None))),
            Some(overtaken @ Settled::Overtaken(_)) => Some(overtaken),
            Some(settled) => {
                self.held = None;
                Some(settled)
            }
        }
    }

    /// Collects the answer within `max_run` of the body, and stores it.
    ///
    /// Lost with the lease, if that cancels.
    async fn collect(mut self, later: LaterAnswer) {
        let LaterAnswer {
            mut answer,
            overdue,
            is_cancelled,
            ..
        } = later;
        let collected = self.within_lease(answer.as_mut()).await;
        if collected.is_none() {
            is_cancelled.store(true, Ordering::Release);
        }
        drop(answer);
        let Some(collected) = collected else {
            return;
        };
        let encoded = collected
            .unwrap_or_else(|Elapsed| Encoded::empty(OutcomeKind::Tombstone, Some(overdue)));
        if let (Meanwhile::Unknown, Encoded::Store(answer)) = (&self.meanwhile, &encoded)
            && answer.outcome == OutcomeKind::Unknown
        {
            // The record says so.
            return;
        }
        if let Some(held) = self.held.take() {
            held.settle(encoded).await;
        }
    }

    /// Waits for the answer. `None`: the lease is lost, and that cancels the body.
    async fn within_lease(
        &mut self,
        answer: Pin<&mut (dyn Future<Output = Encoded> + Send)>,
    ) -> Option<Result<Encoded, Elapsed>> {
        let lease = self.held.as_ref().map(|held| Arc::clone(&held.lease))?;
        let cancels = lease.policy.on_lease_lost() == OnLeaseLost::Cancel;
        let mut limited = pin!(self.within_max_run(answer));
        let mut lost = pin!(lease.until_lost());
        poll_fn(|cx| match limited.as_mut().poll(cx) {
            Poll::Pending if cancels => lost.as_mut().poll(cx).map(|()| None),
            collected => collected.map(Some),
        })
        .await
    }

    /// Waits for the answer, and sends an unconfirmed unknown outcome meanwhile.
    async fn within_max_run(
        &mut self,
        answer: Pin<&mut (dyn Future<Output = Encoded> + Send)>,
    ) -> Result<Encoded, Elapsed> {
        let Some(held) = &self.held else {
            return Err(Elapsed);
        };
        let clock = &*held.core.clock;
        let mut answer = pin!(answer);
        let mut limited = pin!(deadline(clock, held.lease.give_up, answer.as_mut()));
        let Meanwhile::Unconfirmed(Ending::Complete { finished, .. }) = &self.meanwhile else {
            return limited.await;
        };
        let collected = {
            let left = held.lease.run_left();
            let mut sending = pin!(held.complete(finished, (clock.now(), left), left, false));
            // Of a lost lease, the store has refused it.
            let mut sent = held.lease.is_lost();
            poll_fn(|cx| {
                if !sent && let Poll::Ready(settled) = sending.as_mut().poll(cx) {
                    sent = true;
                    if settled.is_some() && !held.lease.slot.is_unclaimed() {
                        held.core.background.lose(&held.lease);
                    }
                }
                limited.as_mut().poll(cx)
            })
            .await
        };
        if held.lease.slot.is_unclaimed() {
            self.meanwhile = Meanwhile::Unknown;
        }
        collected
    }
}

impl Drop for IncompleteAnswer {
    /// The answer is dropped incomplete.
    fn drop(&mut self) {
        let Some(held) = self.held.take() else {
            return;
        };
        match std::mem::replace(&mut self.meanwhile, Meanwhile::Unknown) {
            Meanwhile::Claim => {
                held.emit(EventKind::Dropped);
                held.abandon();
            }
            Meanwhile::Unconfirmed(ending) => drop(EndingGuard::new(held, ending)),
            Meanwhile::Unknown => held.emit(EventKind::Completed {
                outcome: OutcomeKind::Unknown,
                late: false,
                cause: Some(CUT_OFF),
            }),
        }
    }
}
