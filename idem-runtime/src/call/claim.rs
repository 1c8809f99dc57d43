//! A granted claim until its outcome is settled.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::call::call_watch::{CallTimes, CallWatch, result_of};
use crate::call::context::{Context, bind_outer};
use crate::call::core::Core;
use crate::call::lease::{ClaimGrant, Lease, Unsent};
use crate::call::reconcile::pending::PendingReconcile;
use crate::call::run_limit::RunPermit;
use crate::call::settlement::{HeldClaim, REPLY, Settled};
use crate::env::call_end::{CallOutcome, CallResult};
use crate::env::call_span::CallSpan;
use crate::env::observer::EventKind;
use crate::error::{Error, ErrorKind};
use crate::identity::digest_key::CallName;
use crate::identity::operation::Operation;
use crate::outcome::chosen_life::ChosenLife;
use crate::outcome::codec::{Encoded, Replay};
use crate::outcome::provenance::AnswerSource;
use crate::outcome::stored::StoredAnswer;
use crate::policy::EffectivePolicy;
use crate::record::transition::Remains;
use crate::record::{AttemptEnd, Fence, State};

/// The right to run a body, and the duty to settle it.
///
/// Its lease is renewed until it is completed, released or dropped. When it is dropped, the operation's
/// [`OnCancel`](crate::OnCancel) applies: by default the key lapses with its lease and stays counted as an attempt,
/// because a body that stopped half-way may have had its effect.
#[derive(Debug)]
#[must_use = "a claim that is dropped blocks its key until its lease is over"]
pub struct Claim {
    held: Option<HeldClaim>,
    /// Permit of the run limits, if there are any.
    run_permit: Option<Box<RunPermit>>,
    /// The watch over a call whose body the caller runs; dropped after `held`, so that it reports last.
    watch: CallWatch,
}

/// The result of beginning a call.
#[derive(Debug)]
#[non_exhaustive]
pub enum Acquired {
    /// The caller runs the body.
    Run(Claim),
    /// The call was done before; this is its answer.
    Replay(StoredAnswer),
}

/// How [`Claim::complete`] ended.
#[non_exhaustive]
pub enum Completion<T> {
    /// The value to return: the form that is read back from the stored bytes. Where only a tombstone is stored, it is
    /// that form or the value as it was, and duplicates get [`ErrorKind::NotStored`].
    Own(T),
    /// Another attempt stored its answer first: return this one.
    Adopted(StoredAnswer),
}

impl<T> fmt::Debug for Completion<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The value is left out, because it may be confidential.
            Self::Own(_) => f.debug_tuple("Own").finish_non_exhaustive(),
            Self::Adopted(stored) => f.debug_tuple("Adopted").field(stored).finish(),
        }
    }
}

impl Claim {
    pub(crate) fn new(
        core: Arc<Core>,
        name: CallName,
        policy: EffectivePolicy,
        grant: ClaimGrant,
    ) -> Self {
        // The holder may never use its context.
        bind_outer();
        let (header, sent) = (grant.header, grant.sent);
        let lease = Arc::new(Lease::new(Arc::clone(&core.clock), name, policy, grant));
        lease.mark_local();
        if core.wants.spans {
            lease.span.hold_current();
        }
        let held = HeldClaim::begin(core, lease, sent);
        held.emit(match header.state {
            State::Reconciling { .. } => EventKind::Reconciling {
                attempts: header.attempts,
            },
            _ => EventKind::Claimed {
                attempt: header.attempts,
                fence: header.fence,
            },
        });
        Self {
            held: Some(held),
            run_permit: None,
            watch: CallWatch::default(),
        }
    }

    /// Adds the permit to run its body.
    pub(crate) fn with_run_permit(mut self, run_permit: Option<Box<RunPermit>>) -> Self {
        self.run_permit = run_permit;
        self
    }

    /// Adds the watch of a call whose caller runs the body.
    pub(crate) fn with_watch(mut self, watch: CallWatch) -> Self {
        self.watch = watch;
        let attempt = self.attempt();
        self.watch.body_started(attempt);
        self
    }

    /// Takes the permit, which the call holds until the answer is stored.
    pub(crate) fn take_run_permit(&mut self) -> Option<Box<RunPermit>> {
        self.run_permit.take()
    }

    pub(crate) fn held(&self) -> &HeldClaim {
        // Taken only by the methods that consume the claim.
        self.held
            .as_ref()
            .expect("a claim is held until it is settled")
    }

    /// The claim without the guard that releases an unsettled claim on drop. The first poll of its settlement arms
    /// another.
    pub(crate) fn into_held(mut self) -> HeldClaim {
        let held = self.held.take();
        held.expect("a claim is held until it is settled")
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.held().lease
    }

    pub(crate) fn policy(&self) -> &EffectivePolicy {
        &self.lease().policy
    }

    /// The source of an answer of its body. While an earlier attempt is being reconciled, it is the answer of that
    /// attempt, which the reconcile hook found.
    pub(crate) fn answer_source(&self) -> AnswerSource {
        match self.lease().claim().state {
            State::Reconciling { .. } => AnswerSource::Replayed,
            _ => AnswerSource::Executed,
        }
    }

    pub(crate) fn operation(&self) -> &Operation {
        self.lease().key.operation()
    }

    /// The fencing token, which grows with every claim of this key.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.lease().claim().fence
    }

    /// The number of this attempt, starting at 1.
    #[must_use]
    pub fn attempt(&self) -> u16 {
        self.lease().claim().attempts
    }

    /// The context of the body.
    #[must_use]
    pub fn context(&self) -> Context {
        self.context_with(None)
    }

    pub(crate) fn context_with(&self, reconcile: Option<PendingReconcile>) -> Context {
        Context::new(
            Arc::clone(&self.held().core),
            Arc::clone(self.lease()),
            reconcile,
        )
    }

    /// Renews the lease now, besides the automatic renewals. A renewal that the store refuses ends the lease.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::StoreUnavailable`] without a reply, [`ErrorKind::Running`] if another attempt holds the claim by
    /// now, [`ErrorKind::UnknownRecord`] if the key holds something else.
    ///
    /// # Cancel safety
    ///
    /// May be dropped; the lease may or may not have been renewed.
    pub async fn renew(&self) -> Result<(), Error> {
        let HeldClaim { core, lease } = self.held();
        let patience = core.limits.complete_deadline.max(REPLY);
        let renewed = core.background.renew_now(lease, patience).await;
        let error = |kind| self.operation().error(kind);
        renewed.map_err(|why| match why {
            Unsent::Lost => {
                let retry_after = lease.lasts();
                error(ErrorKind::Running { retry_after })
                    .detail("the claim is another attempt's by now")
            }
            Unsent::Unsupported => error(ErrorKind::Unsupported),
            Unsent::Unreadable(why) => error(ErrorKind::UnknownRecord).because(why),
            Unsent::Unconfirmed(Some(why)) => error(ErrorKind::StoreUnavailable).because(why),
            Unsent::Unconfirmed(None) => error(ErrorKind::StoreUnavailable)
                .detail("no reply to a renewal within its deadline"),
        })
    }

    /// Stores a value as the answer.
    ///
    /// A value that cannot be stored now is stored in the background, and the observer is notified; a value that is too
    /// large, or that its type does not write or read back, leaves a tombstone, so that nothing runs twice.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Running`] if another attempt holds the claim by now: its answer will count.
    /// [`ErrorKind::TooLarge`] if another attempt's answer counts, and the store does not read it.
    ///
    /// # Cancel safety
    ///
    /// A completion that has begun continues in the background when this is dropped.
    pub async fn complete<T: Replay>(self, value: T) -> Result<Completion<T>, Error> {
        self.complete_with(value, ChosenLife::Open).await
    }

    /// As [`complete`](Self::complete), but stores the value for this life.
    ///
    /// At least 1 s, and at most the [`ttl`](crate::CallBuilder::ttl) of the call: what
    /// [`CallBuilder::ttl_of`](crate::CallBuilder::ttl_of) is to a body.
    ///
    /// # Errors
    ///
    /// As [`complete`](Self::complete).
    ///
    /// # Cancel safety
    ///
    /// As [`complete`](Self::complete).
    pub async fn complete_for<T: Replay>(
        self,
        value: T,
        ttl: Duration,
    ) -> Result<Completion<T>, Error> {
        self.complete_with(value, ChosenLife::For(ttl)).await
    }

    async fn complete_with<T: Replay>(
        mut self,
        mut value: T,
        life: ChosenLife,
    ) -> Result<Completion<T>, Error> {
        let core = Arc::clone(&self.held().core);
        let key = self.lease().key.clone();
        let operation = key.operation();
        // Held until the answer is stored.
        let _run_permit = self.take_run_permit();
        let mut encoded = Encoded::value(&mut value, &core.format);
        encoded.choose_life(life);
        let outcome = CallOutcome::Executed(result_of(&encoded));
        let (mut watch, span) = self.body_ended(outcome);
        let settled = span.instrument(async move { self.into_held().settle(encoded).await });
        let settled = settled.await;
        watch.note(|times| {
            times.settled();
            times.set(match &settled {
                Settled::Own => outcome,
                Settled::Adopted { record, .. } => match record.header.state {
                    State::Done { outcome, .. } => CallOutcome::Adopted(outcome.into()),
                    _ => CallOutcome::Adopted(CallResult::Unknown),
                },
                Settled::Overtaken(_) => CallOutcome::Refused("running"),
                Settled::Refused(error) => CallOutcome::refused(error),
            });
        });
        match settled {
            Settled::Own => Ok(Completion::Own(value)),
            Settled::Adopted { record, left } => {
                let stored = core.stored((operation, key.digest()), record, left, true);
                Ok(Completion::Adopted(stored))
            }
            Settled::Overtaken(retry_after) => {
                let kind = ErrorKind::Running { retry_after };
                Err(operation.error(kind))
            }
            Settled::Refused(error) => Err(error),
        }
    }

    /// Releases the key, because nothing happened: the next call runs the body.
    ///
    /// The attempt does not count, unless the operation counts errors.
    ///
    /// # Cancel safety
    ///
    /// A release that has begun continues in the background when this is dropped.
    pub async fn release(mut self) {
        let (mut watch, span) = self.body_ended(CallOutcome::Executed(CallResult::Released));
        if let Some(held) = self.held.take() {
            let ending = held.release_ending(Remains::Nothing, AttemptEnd::Released);
            span.instrument(held.send_ending(ending)).await;
        }
        watch.note(CallTimes::settled);
    }

    /// Takes watch and span of a caller whose body has ended.
    fn body_ended(&mut self, outcome: CallOutcome) -> (CallWatch, CallSpan) {
        let mut watch = mem::take(&mut self.watch);
        watch.note(|times| times.body_ended(outcome));
        let span = watch.span();
        (watch, span)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.watch.in_scope(|_| {
                held.emit(EventKind::Dropped);
                held.abandon();
            });
        }
    }
}
