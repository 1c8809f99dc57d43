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

use super::description::{Call, describe};
use super::overtaken::{adopt, settle_after_lost_lease, settle_without_body};
use super::replay::{replay, unprotected};
use crate::call::call_watch::{CallTimes, CallWatch, result_of};
use crate::call::claim::Claim;
use crate::call::context::Context;
use crate::call::ending::{Settled, Settling};
use crate::call::engine::Engine;
use crate::call::reconcile::pending::{PendingReconcile, Stop};
use crate::call::run_limit::RunPermit;
use crate::call::start::{CallAdmission, Pending, Reply, Start, Unleased};
use crate::env::call_end::CallOutcome;
use crate::env::call_span::CallSpan;
use crate::env::catch_unwind::Panic;
use crate::identity::operation::Operation;
use crate::outcome::AnyOutput;
use crate::outcome::provenance::AnswerSource;
use crate::policy::OnLeaseLost;

/// The body of a call, where it can be dropped.
pub(super) trait OwnedBody {
    /// Drops the body, with everything that it owns.
    fn drop_body(&mut self);
}

/// The body of a call and the slot of its output.
pub(super) trait PolledBody: OwnedBody {
    /// Polls the body. Ready: the output is set.
    fn poll(&mut self, cx: &mut task::Context<'_>) -> Poll<()>;
    fn output(&mut self) -> &mut dyn AnyOutput;
}

/// A boxed future, because it is much larger than the body of most calls, which the caller also stores.
type Waiting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The progress of a call after its admission.
pub(super) struct Drive {
    /// `None`: the call was refused.
    engine: Option<Engine>,
    stage: Stage,
    /// The call's permit of the run limit, until the call has ended.
    run_permit: Option<Box<RunPermit>>,
    /// The watch over the call, where an observer wants it; reports the end of the call.
    watch: Option<Box<CallWatch>>,
}

enum Stage {
    /// The output was set at admission: a stored answer, or a refusal.
    Answered,
    /// The claim is in progress.
    Acquiring(Pending),
    /// The body runs.
    Running(RunningBody),
    /// The body's result, or its abort, is being settled.
    Settling {
        context: Context,
        settling: Settling,
        /// Whether the output is that of this call's body.
        own: bool,
    },
    /// The body or its destructor has panicked, and the key is settled first.
    Panicked(Waiting, Panic),
    /// The output is set.
    Ended,
}

impl Stage {
    /// The stage of the same settlement, after which the call panics.
    fn then_panic(self, panic: Panic) -> Self {
        match self {
            Self::Settling { settling, .. } => {
                let settling = async { drop(settling.await) };
                Self::Panicked(Box::pin(settling), panic)
            }
            Self::Panicked(..) => self,
            _ => resume_unwind(panic),
        }
    }
}

struct RunningBody {
    /// Created where the call was made, whatever task the body runs in.
    context: Context,
    /// `None`: it runs without protection.
    claim: Option<Claim>,
    /// Completes when the lease is lost; the body is then dropped.
    lost: Option<Waiting>,
    /// Counts a body without a claim as running.
    _unprotected: Option<Box<Unleased>>,
}

/// The end of a running body.
enum RunEnd {
    Output,
    Panic(Panic),
    LeaseLost,
    Stop(Box<Stop>),
}

impl Drive {
    /// Admits the call, or sets its output from a known answer or refusal.
    pub(super) fn admit(call: Call, output: &mut dyn AnyOutput) -> Self {
        let mut drive = Self {
            engine: None,
            stage: Stage::Answered,
            run_permit: None,
            watch: None,
        };
        let (engine, request) = match describe(call.answered_by(output)) {
            Ok(described) => described,
            Err(error) => {
                output.refuse(error);
                return drive;
            }
        };
        let core = &engine.core;
        let watched = core.wants.any().then(|| request.name.key.clone());
        let span = (watched.as_ref()).map_or(CallSpan::none(), |key| core.call_span(key));
        match span.in_scope(|| core.enter(request)) {
            Err(error) => {
                if let Some(key) = watched {
                    core.refused_at_once(&span, Some(key.digest()), &error);
                }
                output.refuse(error);
            }
            Ok(CallAdmission::Replay(stored)) => {
                let outcome =
                    span.in_scope(|| replay(&engine, output, &stored, CallOutcome::Replayed));
                if watched.is_some() {
                    core.answered(&span, &stored, outcome);
                }
            }
            Ok(CallAdmission::Acquire(pending)) => {
                drive.watch = watched.and_then(|key| core.watch(span, &key));
                drive.stage = Stage::Acquiring(pending);
                drive.engine = Some(engine);
            }
        }
        drive
    }

    /// The operation, if the body is about to run. `None`: it will not run, and the output is set.
    pub(super) fn operation(&self) -> Option<&Operation> {
        match &self.stage {
            Stage::Running(running) => Some(running.context.operation()),
            _ => None,
        }
    }

    /// Polls until the body is to run, or the output is set.
    pub(super) fn poll_start(
        &mut self,
        cx: &mut task::Context<'_>,
        output: &mut dyn AnyOutput,
    ) -> Poll<()> {
        self.watched(|drive, mut times| drive.start(cx, output, &mut times))
    }

    /// Polls in the span of the call. Once the call has ended, the watch reports it.
    fn watched<T>(&mut self, poll: impl FnOnce(&mut Self, Times<'_>) -> T) -> T {
        let Some(mut watch) = self.watch.take() else {
            return poll(self, Times(None));
        };
        let CallWatch { span, times } = &mut *watch;
        let polled = span.in_scope(|| poll(self, Times(Some(times))));
        if !matches!(self.stage, Stage::Answered | Stage::Ended) {
            self.watch = Some(watch);
        }
        polled
    }

    /// Drops the body in the span of the call.
    pub(super) fn drop_body(&self, body: &mut dyn OwnedBody) {
        match &self.watch {
            Some(watch) => watch.span.in_scope(|| body.drop_body()),
            None => body.drop_body(),
        }
    }

    fn start(
        &mut self,
        cx: &mut task::Context<'_>,
        output: &mut dyn AnyOutput,
        times: &mut Times<'_>,
    ) -> Poll<()> {
        if let Stage::Answered | Stage::Acquiring(_) = &self.stage {
            // Calls that a store in this process or the local cache answers are never pending by themselves: without
            // this budget, a task that makes one after the other would starve all other tasks of its thread.
            ready!(pin!(consume_budget()).poll(cx));
        }
        if let (Stage::Acquiring(pending), Some(engine)) = (&mut self.stage, &self.engine) {
            let Reply { start, waited } = ready!(pending.as_mut().poll(cx));
            times.note(|times| times.acquired(waited));
            self.stage = match start {
                Err(error) => {
                    times.note(|times| times.set(CallOutcome::refused(&error)));
                    output.refuse(error);
                    Stage::Ended
                }
                Ok(Start::Replay(stored)) => {
                    let outcome = replay(engine, output, &stored, CallOutcome::Replayed);
                    times.note(|times| times.set_answered(&stored, outcome));
                    Stage::Ended
                }
                Ok(Start::Run(mut claim, reconcile)) => {
                    self.run_permit = claim.take_run_permit();
                    times.note(|times| times.body_started(claim.attempt()));
                    Stage::Running(RunningBody::new(claim, reconcile))
                }
                Ok(Start::Unprotected(call)) => {
                    times.note(|times| times.body_started(0));
                    Stage::Running(RunningBody::unprotected(call))
                }
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
        self.watched(|drive, times| drive.go_on(cx, body, times))
    }

    fn go_on(
        &mut self,
        cx: &mut task::Context<'_>,
        body: &mut dyn PolledBody,
        mut times: Times<'_>,
    ) -> Poll<()> {
        ready!(self.start(cx, body.output(), &mut times));
        if let Stage::Running(running) = &mut self.stage {
            let end = ready!(running.poll(cx, body));
            // A panic of a destructor does not change how the body has ended: that is settled first.
            let dropped = catch_unwind(AssertUnwindSafe(|| body.drop_body()));
            if let Stage::Running(running) = mem::replace(&mut self.stage, Stage::Ended) {
                self.stage = self.after_body(running, end, body.output(), &mut times);
            }
            if let Err(panic) = dropped {
                times.note(|times| times.set(CallOutcome::Panicked));
                self.stage = mem::replace(&mut self.stage, Stage::Ended).then_panic(panic);
            }
        }
        let (context, settled, own) = match &mut self.stage {
            Stage::Settling {
                context,
                settling,
                own,
            } => (context, ready!(settling.as_mut().poll(cx)), *own),
            Stage::Panicked(settling, _) => {
                ready!(settling.as_mut().poll(cx));
                return self.panic();
            }
            _ => return Poll::Ready(()),
        };
        times.note(CallTimes::settled);
        if let Some(engine) = &self.engine
            && !(own && matches!(settled, Settled::Own))
        {
            let outcome = adopt(engine, body.output(), context, settled);
            times.note(|times| times.set(outcome));
        }
        self.stage = Stage::Ended;
        Poll::Ready(())
    }

    fn panic(&mut self) -> Poll<()> {
        if let Stage::Panicked(_, panic) = mem::replace(&mut self.stage, Stage::Ended) {
            resume_unwind(panic)
        }
        Poll::Ready(())
    }

    /// The stage after a body that has ended and was dropped.
    fn after_body(
        &self,
        running: RunningBody,
        end: RunEnd,
        output: &mut dyn AnyOutput,
        times: &mut Times<'_>,
    ) -> Stage {
        let RunningBody { context, claim, .. } = running;
        let (Some(claim), Some(engine)) = (claim, &self.engine) else {
            if let RunEnd::Panic(panic) = end {
                times.note(|times| times.body_ended(CallOutcome::Panicked));
                resume_unwind(panic);
            }
            let outcome = unprotected(output);
            times.note(|times| times.body_ended(outcome));
            // Without a claim there is no lease to lose and no hook to run: the body has an output.
            output.set_provenance(AnswerSource::Executed, context.attempt(), Duration::ZERO);
            return Stage::Ended;
        };
        let attempt = claim.attempt();
        let mut body_ended = |outcome| {
            times.note(|times| {
                times.body_ended(outcome);
                times.set_attempt(attempt);
            });
        };
        let (settling, own) = match end {
            RunEnd::Output => {
                output.set_provenance(claim.answer_source(), claim.attempt(), Duration::ZERO);
                let encoded = output.write(&engine.core.format);
                body_ended(match claim.answer_source() {
                    AnswerSource::Executed => CallOutcome::Executed(result_of(&encoded)),
                    _ => CallOutcome::Reconciled(result_of(&encoded)),
                });
                (claim.settle(encoded), true)
            }
            RunEnd::Panic(panic) => {
                body_ended(CallOutcome::Panicked);
                return Stage::Panicked(Box::pin(claim.settle_panicked()), panic);
            }
            RunEnd::LeaseLost => {
                body_ended(CallOutcome::Cancelled);
                (settle_after_lost_lease(engine.clone(), claim), false)
            }
            RunEnd::Stop(stop) => {
                body_ended(CallOutcome::Cancelled);
                (settle_without_body(engine.clone(), claim, stop), false)
            }
        };
        Stage::Settling {
            context,
            settling,
            own,
        }
    }
}

/// The times of a call, where an observer wants to know of it.
struct Times<'a>(Option<&'a mut CallTimes>);

impl Times<'_> {
    fn note(&mut self, note: impl FnOnce(&mut CallTimes)) {
        if let Some(times) = &mut self.0 {
            note(times);
        }
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        // What a dropped call leaves behind is of its span, and the watch reports the end after that.
        self.watched(|drive, _| drive.stage = Stage::Ended);
    }
}

impl RunningBody {
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
            context: call.context(None),
            claim: None,
            lost: None,
            _unprotected: Some(call),
        }
    }

    /// Polls the body until it has ended, or must not continue.
    fn poll(&mut self, cx: &mut task::Context<'_>, body: &mut dyn PolledBody) -> Poll<RunEnd> {
        let poll = AssertUnwindSafe(|| body.poll(cx));
        let polled = self.context.enter(|| catch_unwind(poll));
        let polled = match polled {
            Ok(polled) => polled,
            Err(panic) => return Poll::Ready(RunEnd::Panic(panic)),
        };
        if let Some(lease) = self.context.lease()
            && let Some(stop) = lease.steps.stopped(cx.waker())
        {
            return Poll::Ready(RunEnd::Stop(Box::new(Stop::Step(stop))));
        }
        if polled.is_ready() {
            return Poll::Ready(RunEnd::Output);
        }
        if let Some(stop) = self.context.reconcile().and_then(PendingReconcile::stop) {
            return Poll::Ready(RunEnd::Stop(Box::new(stop)));
        }
        match &mut self.lost {
            Some(lost) => lost.as_mut().poll(cx).map(|()| RunEnd::LeaseLost),
            None => Poll::Pending,
        }
    }
}
