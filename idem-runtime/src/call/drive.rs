//! The state machine of a call, from admission to output, for all types.
//!
//! An annotated function has a body and an output of its own. The rest of a call is here, and borrows those two as
//! [`PolledBody`] and [`AnyOutput`] only while it is polled: so this is compiled once, and whether the future of a call
//! is `Send` depends on its body alone.

use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::task::{self, Poll, ready};
use std::time::Duration;

use tokio::task::consume_budget;

use super::description::{Call, enter};
use super::overtaken::{adopt, give_up, lose};
use super::replay::replay;
use crate::engine::Engine;
use crate::env::catch_unwind::Panic;
use crate::identity::operation::Operation;
use crate::lifecycle::claim::Claim;
use crate::lifecycle::context::Context;
use crate::lifecycle::ending::{Settled, Settling};
use crate::lifecycle::in_flight::Unleased;
use crate::lifecycle::reconcile::pending::{PendingReconcile, Stop};
use crate::lifecycle::run_limit::RunPermit;
use crate::lifecycle::start::Start;
use crate::lifecycle::start::{CallAdmission, Pending};
use crate::outcome::AnyOutput;
use crate::outcome::provenance::AnswerSource;
use crate::policy::OnLeaseLost;

/// The body of a call and the slot of its output.
pub(super) trait PolledBody {
    /// Polls the body. Ready: the output is set.
    fn poll(&mut self, cx: &mut task::Context<'_>) -> Poll<()>;
    /// Drops the body, with everything that it owns.
    fn end(&mut self);
    fn output(&mut self) -> &mut dyn AnyOutput;
}

/// A boxed future, because it is much larger than the body of most calls, which the caller also stores.
type Waiting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A call that was admitted.
pub(super) struct Drive {
    /// `None`: the call was refused.
    engine: Option<Engine>,
    stage: Stage,
    /// The call's slot in the run limit, until the call has ended.
    run_permit: Option<Box<RunPermit>>,
}

enum Stage {
    /// The output was set, or the call refused, at admission.
    Known,
    /// The claim is in progress.
    Acquires(Pending),
    /// The body runs.
    Runs(Turn),
    /// The body's result, or its abort, is being settled.
    Settles {
        context: Context,
        settling: Settling,
        /// Whether the output is that of the body.
        own: bool,
    },
    /// The body has panicked, and its key is released first.
    Panics(Waiting, Panic),
    /// The output is set.
    Ended,
}

/// The state of a running body.
struct Turn {
    /// Created where the call was made, whatever task the body runs in.
    context: Context,
    /// `None`: it runs without protection.
    claim: Option<Claim>,
    /// Completes when the lease is lost, and ends the body.
    lost: Option<Waiting>,
    /// Counts a body without a claim as running.
    _unprotected: Option<Box<Unleased>>,
}

/// The end of a running body.
enum End {
    Output,
    Panic(Panic),
    LeaseLost,
    Stop(Box<Stop>),
}

impl Drive {
    /// Admits the call, or sets its output from a known answer or refusal.
    pub(super) fn open(call: Call, output: &mut dyn AnyOutput) -> Self {
        let (engine, stage) = match enter(call.answered_by(output)) {
            Err(error) => {
                output.refuse(error);
                (None, Stage::Known)
            }
            Ok((engine, CallAdmission::Replay(stored))) => {
                replay(&engine, output, &stored);
                (None, Stage::Known)
            }
            Ok((engine, CallAdmission::Acquire(pending))) => {
                (Some(engine), Stage::Acquires(pending))
            }
        };
        Self {
            engine,
            stage,
            run_permit: None,
        }
    }

    /// The operation, if the body is about to run.
    pub(super) fn operation(&self) -> Option<&Operation> {
        match &self.stage {
            Stage::Runs(turn) => Some(turn.context.operation()),
            _ => None,
        }
    }

    /// Polls until the body is to run, or the output is set.
    pub(super) fn poll_start(
        &mut self,
        cx: &mut task::Context<'_>,
        output: &mut dyn AnyOutput,
    ) -> Poll<()> {
        if let Stage::Known | Stage::Acquires(_) = &self.stage {
            // Calls that a store in this process or the local cache answers are never pending by themselves: without
            // this budget, a task that makes one after the other would starve all other tasks of its thread.
            ready!(pin!(consume_budget()).poll(cx));
        }
        if let (Stage::Acquires(pending), Some(engine)) = (&mut self.stage, &self.engine) {
            self.stage = match ready!(pending.as_mut().poll(cx)) {
                Err(error) => {
                    output.refuse(error);
                    Stage::Ended
                }
                Ok(Start::Replay(stored)) => {
                    replay(engine, output, &stored);
                    Stage::Ended
                }
                Ok(Start::Run(mut claim)) => {
                    self.run_permit = claim.take_run_permit();
                    Stage::Runs(Turn::new(claim, None))
                }
                Ok(Start::Reconcile(mut claim, reconcile)) => {
                    self.run_permit = claim.take_run_permit();
                    Stage::Runs(Turn::new(claim, Some(reconcile)))
                }
                Ok(Start::Unprotected(call)) => Stage::Runs(Turn::unprotected(call)),
            };
        }
        Poll::Ready(())
    }

    /// Polls until the output is set. The body is dropped by then, and before its key is released: what it owns, such
    /// as an open transaction, is undone first.
    pub(super) fn poll(
        &mut self,
        cx: &mut task::Context<'_>,
        body: &mut dyn PolledBody,
    ) -> Poll<()> {
        ready!(self.poll_start(cx, body.output()));
        if let Stage::Runs(turn) = &mut self.stage {
            let end = ready!(turn.poll(cx, body));
            body.end();
            if let Stage::Runs(turn) = mem::replace(&mut self.stage, Stage::Ended) {
                self.stage = self.ended(turn, end, body.output());
            }
        }
        let (context, settled, own) = match &mut self.stage {
            Stage::Settles {
                context,
                settling,
                own,
            } => (context, ready!(settling.as_mut().poll(cx)), *own),
            Stage::Panics(given_back, _) => {
                ready!(given_back.as_mut().poll(cx));
                return self.panic();
            }
            _ => return Poll::Ready(()),
        };
        if let Some(engine) = &self.engine
            && !(own && matches!(settled, Settled::Own))
        {
            adopt(engine, body.output(), context, settled);
        }
        self.stage = Stage::Ended;
        Poll::Ready(())
    }

    fn panic(&mut self) -> Poll<()> {
        if let Stage::Panics(_, panic) = mem::replace(&mut self.stage, Stage::Ended) {
            resume_unwind(panic)
        }
        Poll::Ready(())
    }

    /// The stage after a body that has ended and was dropped.
    fn ended(&self, turn: Turn, end: End, output: &mut dyn AnyOutput) -> Stage {
        let Turn { context, claim, .. } = turn;
        let (Some(claim), Some(engine)) = (claim, &self.engine) else {
            if let End::Panic(panic) = end {
                resume_unwind(panic);
            }
            // Without a claim there is no lease to lose and no hook to run: the body has an output.
            output.come_about(AnswerSource::Executed, context.attempt(), Duration::ZERO);
            return Stage::Ended;
        };
        let (settling, own) = match end {
            End::Output => {
                output.come_about(claim.how(), claim.attempt(), Duration::ZERO);
                let encoded = output.write(&engine.core.format);
                (claim.settle(encoded), true)
            }
            End::Panic(panic) => return Stage::Panics(Box::pin(claim.panicked()), panic),
            End::LeaseLost => (lose(engine.clone(), claim), false),
            End::Stop(stop) => (give_up(engine.clone(), claim, stop), false),
        };
        Stage::Settles {
            context,
            settling,
            own,
        }
    }
}

impl Turn {
    fn new(claim: Claim, reconcile: Option<PendingReconcile>) -> Self {
        let context = claim.context_with(reconcile);
        let cancels = claim.policy().on_lease_lost() == OnLeaseLost::Cancel;
        Self {
            lost: cancels.then(|| -> Waiting { Box::pin(context.lease_lost()) }),
            context,
            claim: Some(claim),
            _unprotected: None,
        }
    }

    fn unprotected(call: Box<Unleased>) -> Self {
        Self {
            context: call.context(),
            claim: None,
            lost: None,
            _unprotected: Some(call),
        }
    }

    /// Polls the body until it has ended, or must not continue.
    fn poll(&mut self, cx: &mut task::Context<'_>, body: &mut dyn PolledBody) -> Poll<End> {
        let poll = AssertUnwindSafe(|| body.poll(cx));
        match self.context.enter(|| catch_unwind(poll)) {
            Ok(Poll::Ready(())) => return Poll::Ready(End::Output),
            Err(panic) => return Poll::Ready(End::Panic(panic)),
            Ok(Poll::Pending) => {}
        }
        if let Some(stop) = self.context.reconcile().and_then(PendingReconcile::stop) {
            return Poll::Ready(End::Stop(Box::new(stop)));
        }
        match &mut self.lost {
            Some(lost) => lost.as_mut().poll(cx).map(|()| End::LeaseLost),
            None => Poll::Pending,
        }
    }
}
