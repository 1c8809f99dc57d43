//! The result of a call whose own answer does not count.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::replay::replay;
use crate::call::claim::Claim;
use crate::call::context::Context;
use crate::call::ending::{Settled, Settling};
use crate::call::engine::Engine;
use crate::call::interpret::other_type;
use crate::call::lease::Lease;
use crate::call::reconcile::pending::Stop;
use crate::call::step_log::StepStop;
use crate::env::backoff::Backoff;
use crate::env::call_end::CallOutcome;
use crate::env::clock::deadline;
use crate::error::{Error, ErrorKind};
use crate::identity::operation::Operation;
use crate::outcome::AnyOutput;
use crate::outcome::codec::Encoded;
use crate::policy::OnCancel;
use crate::record::transition::Remains;
use crate::record::unknown_cause::Cause;
use crate::record::{OutcomeKind, State};
use crate::store::ReadReply;

/// Settles a call whose lease was lost and whose body was dropped for it.
pub(super) fn settle_after_lost_lease(engine: Engine, claim: Claim) -> Settling {
    Box::pin(async move {
        let (lease, wait) = (Arc::clone(claim.lease()), claim.policy().wait());
        claim.settle_cancelled().await;
        wait_for_winner(&engine, &lease, wait).await
    })
}

/// Settles a call whose body was dropped before it began, or for a step of an unknown outcome.
pub(super) fn settle_without_body(engine: Engine, claim: Claim, stop: Box<Stop>) -> Settling {
    Box::pin(async move {
        match *stop {
            Stop::Undecided => settle_unknown(&engine, claim, Cause::Undecided).await,
            Stop::Step(StepStop::Unknown) => settle_unknown(&engine, claim, Cause::Step).await,
            Stop::Step(StepStop::Undecided) => {
                let (operation, attempt) = (claim.operation().clone(), claim.attempt());
                let (core, now) = (&engine.core, Duration::ZERO);
                let unknown = core.unknown(&operation, attempt, Some(Cause::Step), now);
                // The next attempt asks the hook again.
                match claim.settle(Encoded::Release(Remains::Request)).await {
                    Settled::Own => Settled::Refused(unknown),
                    settled => settled,
                }
            }
            Stop::Answered { record, left } => {
                claim.release_unstarted().await;
                Settled::Adopted { record, left }
            }
            Stop::Refused(error) => {
                claim.release_unstarted().await;
                Settled::Refused(error)
            }
        }
    })
}

/// Settles a call whose outcome is unknown.
async fn settle_unknown(engine: &Engine, claim: Claim, cause: Cause) -> Settled {
    let operation = claim.operation().clone();
    let attempts = claim.attempt();
    match claim.settle_unknown(cause).await {
        Settled::Own => {
            let (core, now) = (&engine.core, Duration::ZERO);
            Settled::Refused(core.unknown(&operation, attempts, Some(cause), now))
        }
        settled => settled,
    }
}

/// Replaces the call's output by the answer that counts. Returns the outcome of the call.
pub(super) fn adopt(
    engine: &Engine,
    output: &mut dyn AnyOutput,
    context: &Context,
    settled: Settled,
) -> CallOutcome {
    let operation = context.operation();
    let refused = match settled {
        Settled::Adopted { record, left } => match record.header.state {
            State::Done {
                outcome: OutcomeKind::Value | OutcomeKind::Error,
                ..
            } => {
                let is_ours = |lease: &Arc<Lease>| lease.policy.reads(&record);
                if !context.lease().is_none_or(is_ours) {
                    let error = other_type(operation).detail(
                        "this body ran, and another attempt, of a function with answers of another type, has answered the \
                         key: give each function its own `op`",
                    );
                    let refused = CallOutcome::refused(&error);
                    output.refuse(error);
                    return refused;
                }
                let stored = engine
                    .core
                    .stored((operation, context.key()), record, left, true);
                return replay(engine, output, &stored, CallOutcome::Adopted);
            }
            _ => engine.core.unanswered(operation, &record, left),
        },
        Settled::Refused(error) => error,
        Settled::Overtaken(retry_after) => {
            Error::new(ErrorKind::Running { retry_after }, operation.clone())
                .detail("another attempt took the key over, and its answer will count")
        }
        Settled::Own => cancelled(operation, Duration::ZERO),
    };
    let outcome = CallOutcome::refused(&refused);
    output.refuse(refused);
    outcome
}

/// The error of a call whose body was dropped while no other has begun.
fn cancelled(operation: &Operation, retry_after: Duration) -> Error {
    Error::new(ErrorKind::Running { retry_after }, operation.clone()).detail(
        "it was this one: its lease was lost, and its body was cancelled for that, as \
             `on_lease_lost = cancel` requires",
    )
}

/// Waits for the answer of the attempt that took over the key. It polls by reading, never by claiming, because there is
/// no body any more.
async fn wait_for_winner(engine: &Engine, lease: &Lease, wait: Duration) -> Settled {
    let (core, clock) = (&engine.core, &*engine.core.clock);
    let until = clock.now() + wait;
    let mut backoff = Backoff::new(&crate::record::Owner::random());
    loop {
        let now = clock.now();
        let moment = now + core.limits.claim_deadline;
        let found = deadline(clock, moment, pin!(core.read(&lease.key))).await;
        let mut refused = Settled::Own;
        if let Ok(Ok(ReadReply::Found { record, left })) = found {
            // The record was lost, and a call with other arguments has the key: its answer is not this call's.
            if !record.header.fingerprint.matches(lease.claim().fingerprint) {
                return Settled::Own;
            }
            if let State::Done { .. } = record.header.state {
                return Settled::Adopted { record, left };
            }
            let lease_left = record.header.lease_left(left);
            if record.header.owner == lease.claim().owner {
                refused = Settled::Refused(cancelled(lease.key.operation(), lease_left));
                let is_final = match record.header.state {
                    // Released: the next call runs.
                    State::Released => true,
                    // Held: no call can take it before the lease ends.
                    State::Pending { .. } if lease.policy.on_cancel() == OnCancel::Hold => {
                        now + lease_left >= until
                    }
                    // The store does not have the outcome yet.
                    _ => false,
                };
                if is_final {
                    return refused;
                }
            } else if !lease_left.is_zero() {
                refused = Settled::Overtaken(lease_left);
            }
        }
        if now >= until {
            return refused;
        }
        let pause = backoff.poll().min(until.saturating_sub(now));
        clock.sleep_until(now + pause).await;
    }
}
