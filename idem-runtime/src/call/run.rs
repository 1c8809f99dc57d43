//! The future of a call, from its admission to its output.
//!
//! An annotated function has a body and an output of its own: [`Run`] is the part of a call that depends on their types.
//! The rest is its state machine, [`Drive`], which borrows those two as [`PolledBody`] and [`AnyOutput`] only while it is
//! polled: so it is compiled once, and whether the future of a call is `Send` depends on its body alone.

use std::future::{Future, poll_fn};
use std::mem;
use std::ops::DerefMut;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::task::{self, Poll, ready};
use std::time::Duration;

use tokio::task::consume_budget;

use crate::call::acquire::{Acquiring, Acquisition, Start, acquire};
use crate::call::admission::{CallAdmission, Unleased};
use crate::call::answer::replay;
use crate::call::call_watch::{
    CallTimes, CallWatch, Times, answered, call_span, result_of, unprotected,
};
use crate::call::claim::Claim;
use crate::call::context::Context;
use crate::call::description::{Call, describe};
use crate::call::engine::Engine;
use crate::call::reconcile::pending::{PendingReconcile, Stop};
use crate::call::run_limit::RunPermit;
use crate::call::settlement::{Settled, Settling, adopt};
use crate::env::call_end::CallOutcome;
use crate::env::catch_unwind::Panic;
use crate::error::{Error, ErrorKind};
use crate::identity::operation::Operation;
use crate::outcome::provenance::AnswerSource;
use crate::outcome::{AnyOutput, Output};
use crate::policy::OnLeaseLost;

/// A call in progress.
#[must_use = "the body runs only when the call is awaited"]
pub struct Run<O, P, S: BodySlot> {
    // A dropped call drops its body first, so that the transaction that it may own ends before its key is released.
    body: TypedBody<O, P, S>,
    drive: Drive,
}

/// The body and the output of a call.
struct TypedBody<O, P, S> {
    /// `None` once the body has completed or was dropped; never polled after that.
    body: Pin<S>,
    output: Output<O, P>,
}

/// The place of a body: its caller, or a box.
pub trait BodySlot: DerefMut<Target = Option<Self::Body>> {
    /// Its body.
    type Body;
}

impl<F> BodySlot for &mut Option<F> {
    type Body = F;
}

impl<F> BodySlot for Box<Option<F>> {
    type Body = F;
}

/// Replays the stored answer, or runs `body` and stores its result.
///
/// The call is admitted when this function is called, and claims its key when the future is polled: so the future
/// stores little besides the body. An expansion awaits it at once. On a replay `body` is not polled, so no part of it
/// has run. The future leaves `None` in `body`: the body is dropped before its key is released.
pub fn run<O, P, F>(
    call: Call,
    mut output: Output<O, P>,
    body: Pin<&mut Option<F>>,
) -> Run<O, P, &mut Option<F>>
where
    F: Future<Output = O>,
{
    let drive = Drive::admit(call, output.any());
    let body = TypedBody { body, output };
    Run { body, drive }
}

/// No field is pinned: the body is pinned in its slot.
impl<O, P, S: BodySlot> Unpin for Run<O, P, S> {}

impl<O, P, S: BodySlot<Body: Future<Output = O>>> Future for Run<O, P, S> {
    type Output = O;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<O> {
        let Self { body, drive } = &mut *self;
        match drive.poll(cx, body) {
            Poll::Ready(()) => Poll::Ready(body.output.take()),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<O, P, S: BodySlot<Body: Future<Output = O>>> PolledBody for TypedBody<O, P, S> {
    fn poll(&mut self, cx: &mut task::Context<'_>) -> Poll<()> {
        if let Some(body) = self.body.as_mut().as_pin_mut()
            && let Poll::Ready(output) = body.poll(cx)
        {
            self.output.value = Some(output);
            return Poll::Ready(());
        }
        Poll::Pending
    }

    fn output(&mut self) -> &mut dyn AnyOutput {
        self.output.any()
    }
}

impl<O, P, S: BodySlot> Drop for Run<O, P, S> {
    fn drop(&mut self) {
        self.drive.watch.in_scope(|_| self.body.drop_body());
    }
}

impl<O, P, S: BodySlot> OwnedBody for TypedBody<O, P, S> {
    fn drop_body(&mut self) {
        self.body.set(None);
    }
}

debug_fields!([O, P, S: BodySlot] Run<O, P, S> {});

/// As [`run`], with the body in a task that survives its caller.
pub fn run_in_task<O, P, F>(call: Call, output: Output<O, P>, body: F) -> impl Future<Output = O>
where
    F: Future<Output = O> + Send + 'static,
    O: Send + 'static,
    P: Send + 'static,
{
    run_in_own_slot(call, output, move || Box::pin(Some(body)))
}

/// As [`run_in_task`], with a body made at its start.
pub(crate) fn run_in_own_slot<O, P, F>(
    call: Call,
    mut output: Output<O, P>,
    body: impl FnOnce() -> Pin<Box<Option<F>>>,
) -> impl Future<Output = O>
where
    F: Future<Output = O> + Send + 'static,
    O: Send + 'static,
    P: Send + 'static,
{
    let mut drive = Drive::admit(call, output.any());
    async move {
        poll_fn(|cx| drive.poll_start(cx, output.any())).await;
        // `None`: the body will not run, and the output is set.
        let Some(operation) = drive.operation().cloned() else {
            return output.take();
        };
        let from_error = output.refusal_constructor();
        // A task does not inherit the engine of its caller's `Engine::scope`.
        let scoped_engine = Engine::scoped();
        // Not a block, whose future would have room for output and drive twice.
        let body = TypedBody {
            body: body(),
            output,
        };
        let task = in_span(Run { body, drive });
        // There is no await between the grant and this line, so that no claim is lost here.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            // Boxed, so that the future of a call has no room for its task.
            return Box::pin(task).await;
        };
        let task = match scoped_engine {
            Some(engine) => runtime.spawn(async move { engine.scope(task).await }),
            None => runtime.spawn(task),
        };
        match task.await.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(output) => output,
            Err(Ok(panic)) => resume_unwind(panic),
            Err(Err(_)) => from_error(shut_down(operation)),
        }
    }
}

/// Runs the task in the caller's span. If the caller has gone, the span lasts until the
/// body has ended.
#[cfg(feature = "tracing")]
fn in_span<F: Future>(task: F) -> impl Future<Output = F::Output> {
    tracing::Instrument::in_current_span(task)
}

#[cfg(not(feature = "tracing"))]
fn in_span<F: Future>(task: F) -> F {
    task
}

fn shut_down(operation: Operation) -> Error {
    Error::new(ErrorKind::ShuttingDown, operation)
        .detail("the runtime was shut down while the body ran")
}

/// The body of a call, where it can be dropped.
trait OwnedBody {
    /// Drops the body, with everything that it owns.
    fn drop_body(&mut self);
}

/// The body of a call and the slot of its output.
trait PolledBody: OwnedBody {
    /// Polls the body. Ready: the output is set.
    fn poll(&mut self, cx: &mut task::Context<'_>) -> Poll<()>;
    fn output(&mut self) -> &mut dyn AnyOutput;
}

/// Boxed, because it is larger than most bodies.
type BoxedWait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The progress of a call after its admission.
struct Drive {
    /// `None`: the call was refused.
    engine: Option<Engine>,
    stage: CallStage,
    /// The call's permit of the run limit, until the call has ended.
    run_permit: Option<Box<RunPermit>>,
    /// Reports the end of the call.
    watch: CallWatch,
}

enum CallStage {
    /// The output was set at admission: a stored answer, or a refusal.
    Answered,
    /// The claim is in progress.
    Acquiring(Acquiring),
    /// The body runs.
    Running(RunningBody),
    /// The body's result, or its abort, is being settled.
    Settling {
        context: Context,
        settling: Settling,
        /// Whether the output is that of this call's body.
        own: bool,
    },
    /// A panic of body or destructor; the key is settled first.
    Panicked(BoxedWait, Panic),
    /// The output is set.
    Ended,
}

impl CallStage {
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
    lost: Option<BoxedWait>,
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
    fn admit(call: Call, output: &mut dyn AnyOutput) -> Self {
        let mut drive = Self {
            engine: None,
            stage: CallStage::Answered,
            run_permit: None,
            watch: CallWatch::default(),
        };
        let (engine, request) = match describe(call.answered_by(output)) {
            Ok(described) => described,
            Err(error) => {
                output.refuse(error);
                return drive;
            }
        };
        let core = &engine.core;
        let span = call_span(core, &request.name.key);
        match request.enter_watched(core, &span) {
            Err(error) => output.refuse(error),
            Ok(CallAdmission::Replay(stored)) => {
                let outcome =
                    span.in_scope(|| replay(core, output, &stored, CallOutcome::Replayed));
                answered(core, &span, &stored, outcome);
            }
            Ok(CallAdmission::Admitted(call)) => {
                drive.watch = CallWatch::begin(core, span, &request.name.key);
                drive.stage = CallStage::Acquiring(acquire(request, call));
                drive.engine = Some(engine);
            }
        }
        drive
    }

    /// The operation, if the body is about to run. `None`: it will not run, and the output is set.
    fn operation(&self) -> Option<&Operation> {
        match &self.stage {
            CallStage::Running(running) => Some(running.context.operation()),
            _ => None,
        }
    }

    /// Polls until the body is to run, or the output is set.
    fn poll_start(&mut self, cx: &mut task::Context<'_>, output: &mut dyn AnyOutput) -> Poll<()> {
        self.watched(|drive, times| drive.start(cx, output, times))
    }

    /// Polls in the span of the call. Once the call has ended, the watch reports it.
    fn watched<T>(&mut self, poll: impl FnOnce(&mut Self, &mut Times<'_>) -> T) -> T {
        let mut watch = mem::take(&mut self.watch);
        let polled = watch.in_scope(|times| poll(self, times));
        if !matches!(self.stage, CallStage::Answered | CallStage::Ended) {
            self.watch = watch;
        }
        polled
    }

    fn start(
        &mut self,
        cx: &mut task::Context<'_>,
        output: &mut dyn AnyOutput,
        times: &mut Times<'_>,
    ) -> Poll<()> {
        if let CallStage::Answered | CallStage::Acquiring(_) = &self.stage {
            // Calls that a store in this process or the local cache answers are never pending by themselves: without
            // this budget, a task that makes one after the other would starve all other tasks of its thread.
            ready!(pin!(consume_budget()).poll(cx));
        }
        if let (CallStage::Acquiring(pending), Some(engine)) = (&mut self.stage, &self.engine) {
            let Acquisition { start, waited } = ready!(pending.as_mut().poll(cx));
            times.note(|times| times.acquired(waited));
            self.stage = match start {
                Err(error) => {
                    times.note(|times| times.set(CallOutcome::refused(&error)));
                    output.refuse(error);
                    CallStage::Ended
                }
                Ok(Start::Replay(stored)) => {
                    let outcome = replay(&engine.core, output, &stored, CallOutcome::Replayed);
                    times.note(|times| times.set_answered(&stored, outcome));
                    CallStage::Ended
                }
                Ok(Start::Run(mut claim, reconcile)) => {
                    self.run_permit = claim.take_run_permit();
                    times.note(|times| times.body_started(claim.attempt()));
                    CallStage::Running(RunningBody::new(claim, reconcile))
                }
                Ok(Start::Unprotected(call)) => {
                    times.note(|times| times.body_started(0));
                    CallStage::Running(RunningBody::unprotected(call))
                }
            };
        }
        Poll::Ready(())
    }

    /// Polls until the output is set. The body is dropped before its key is released, so that an open transaction of
    /// its own is undone first.
    fn poll(&mut self, cx: &mut task::Context<'_>, body: &mut dyn PolledBody) -> Poll<()> {
        self.watched(|drive, times| drive.go_on(cx, body, times))
    }

    fn go_on(
        &mut self,
        cx: &mut task::Context<'_>,
        body: &mut dyn PolledBody,
        times: &mut Times<'_>,
    ) -> Poll<()> {
        ready!(self.start(cx, body.output(), times));
        if let CallStage::Running(running) = &mut self.stage {
            let end = ready!(running.poll(cx, body));
            // A panic of a destructor does not change how the body has ended: that is settled first.
            let dropped = catch_unwind(AssertUnwindSafe(|| body.drop_body()));
            if let CallStage::Running(running) = mem::replace(&mut self.stage, CallStage::Ended) {
                self.stage = self.after_body(running, end, body.output(), times);
            }
            if let Err(panic) = dropped {
                times.note(|times| times.set(CallOutcome::Panicked));
                self.stage = mem::replace(&mut self.stage, CallStage::Ended).then_panic(panic);
            }
        }
        let (context, settled, own) = match &mut self.stage {
            CallStage::Settling {
                context,
                settling,
                own,
            } => (context, ready!(settling.as_mut().poll(cx)), *own),
            CallStage::Panicked(settling, _) => {
                ready!(settling.as_mut().poll(cx));
                return self.panic();
            }
            _ => return Poll::Ready(()),
        };
        times.note(CallTimes::settled);
        if let Some(engine) = &self.engine
            && !(own && matches!(settled, Settled::Own))
        {
            let outcome = adopt(&engine.core, body.output(), context, settled);
            times.note(|times| times.set(outcome));
        }
        self.stage = CallStage::Ended;
        Poll::Ready(())
    }

    fn panic(&mut self) -> Poll<()> {
        if let CallStage::Panicked(_, panic) = mem::replace(&mut self.stage, CallStage::Ended) {
            resume_unwind(panic)
        }
        Poll::Ready(())
    }

    /// The stage after a body that has ended and was dropped.
    fn after_body(
        &mut self,
        running: RunningBody,
        end: RunEnd,
        output: &mut dyn AnyOutput,
        times: &mut Times<'_>,
    ) -> CallStage {
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
            return CallStage::Ended;
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
                let mut encoded = output.write(&engine.core.format);
                let result = result_of(&encoded);
                body_ended(match claim.answer_source() {
                    AnswerSource::Executed => CallOutcome::Executed(result),
                    _ => CallOutcome::Reconciled(result),
                });
                let settling = match encoded.take_later() {
                    None => claim.into_held().settle(encoded),
                    Some(later) => {
                        let run_permit = self.run_permit.take();
                        claim.into_held().settle_later(later, run_permit)
                    }
                };
                (settling, true)
            }
            RunEnd::Panic(panic) => {
                body_ended(CallOutcome::Panicked);
                return CallStage::Panicked(Box::pin(claim.into_held().settle_panicked()), panic);
            }
            RunEnd::LeaseLost => {
                body_ended(CallOutcome::Cancelled);
                (claim.into_held().settle_after_lost_lease(), false)
            }
            RunEnd::Stop(stop) => {
                body_ended(CallOutcome::Cancelled);
                (claim.into_held().settle_without_body(stop), false)
            }
        };
        CallStage::Settling {
            context,
            settling,
            own,
        }
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        // The remains of a dropped call belong to its span, and the watch reports the end after that.
        self.watched(|drive, _| drive.stage = CallStage::Ended);
    }
}

impl RunningBody {
    fn new(claim: Claim, reconcile: Option<PendingReconcile>) -> Self {
        let context = claim.context_with(reconcile);
        let cancels = claim.policy().on_lease_lost() == OnLeaseLost::Cancel;
        Self {
            lost: cancels.then(|| -> BoxedWait { Box::pin(context.lease_lost()) }),
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
