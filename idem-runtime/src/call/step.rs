//! Steps: the parts of a body whose results outlive a failed attempt.

use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll, ready};

use crate::call::context::{Context, StepsOf, try_context};
use crate::call::step_log::StepStop;
use crate::call::steps::{StepEnd, StepIdentity, StepStart, Steps, Unfinished};
use crate::env::observer::EventKind;
use crate::error::{Error, ErrorKind};
use crate::identity::derived_key::step_name;
use crate::identity::fingerprint::{FingerprintBuilder, FingerprintError, ToFingerprint};
use crate::identity::key::{KeyDigest, KeyError};
use crate::outcome::chosen_life::OpenLife;
use crate::outcome::codec::Replay;
use crate::outcome::on_error::ClassifiedStep;
use crate::outcome::reconciled::{IntoReconciled, Reconciled};
use crate::outcome::stored::StoredAnswer;
use crate::outcome::{AnyOutput, Outcome, Output};
use crate::record::OutcomeKind;

tokio::task_local! {
    /// The call whose step runs.
    static INSIDE: Context;
}

/// A part of the running body whose result outlives a failed attempt.
///
/// The first attempt that reaches it runs `part` and records its result. A later attempt of the same call, after a
/// crash, a time-out or a system error, gets that result, and `part` does not run.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::cell::Cell;
///
/// use idem_runtime::{Engine, Error, ErrorKind, step, store::memory::MemoryStore};
/// # fn fault() -> Error {
/// #     Engine::builder(MemoryStore::new()).lease(std::time::Duration::ZERO).build().unwrap_err()
/// # }
///
/// let engine = Engine::new(MemoryStore::new());
/// let (charged, mailed) = (Cell::new(0), Cell::new(0));
/// let place = |mail_works: bool| {
///     let (charged, mailed) = (&charged, &mailed);
///     engine.operation("orders.place").key("order-7").run(move |_| async move {
///         let charge = step("charge", async |s| {
///             charged.set(charged.get() + 1);
///             Ok::<_, Error>(format!("charge of {}", s.key().len()))
///         })
///         .await?;
///         step("mail", async |_| {
///             mailed.set(mailed.get() + 1);
///             if mail_works { Ok(()) } else { Err(fault()) }
///         })
///         .await?;
///         Ok::<_, Error>(charge)
///     })
/// };
///
/// assert!(place(false).await.is_err());
/// assert_eq!(place(true).await?, "charge of 43");
/// assert_eq!((charged.get(), mailed.get()), (1, 2));
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
///
/// # Identity
///
/// The name identifies a step, whatever its position: steps may be inserted, reordered, in branches, in loops and in
/// parallel (`join!`). In a loop the name is a tuple: `step(("ship", item.id), …)`. The same name twice in an attempt
/// is [`ErrorKind::InvalidStep`]. A renamed step is another step, and runs.
///
/// The first part of the name is shown to operators; put confidential parts into the others.
///
/// # Results
///
/// - A value, and an error of class business, are recorded, and returned in every later attempt.
/// - An error of class system is not recorded: the next attempt runs the step again.
/// - After an error of class unknown, and after a step with [`once`](StepCall::once) that was interrupted, the next
///   attempt ends as [`ErrorKind::Unknown`] when it comes to the step, unless
///   [`reconcile`](StepCall::reconcile) finds out. A step of another task, and of a claim that is held by hand, gets
///   that error.
///
/// Without `once` and `reconcile`, a step that was interrupted runs again: its effect may happen twice, unless the
/// other side recognises [`Step::key`].
///
/// # Guarantees
///
/// A step is recorded once the store has acknowledged it, which takes one round trip and renews the lease; a result of
/// an earlier attempt takes none. It is kept as long as the record, through a take-over, a release after a system
/// error, and an unknown outcome; the call's answer replaces it. Code between steps runs in every attempt.
///
/// # Limits
///
/// A call has at most 64 steps, whose results take at most 256 KiB together, or as much as a record of the store may
/// hold. A step over these limits is refused before it starts; a result over them is returned, and later attempts get
/// [`ErrorKind::NotStored`] without a second run. Steps do not nest. A body in a transaction (`tx = …`) has none: what
/// it wrote is undone together.
///
/// # Errors
///
/// Those of `part`, and as the [`Error`] that `E` is made from:
///
/// - [`ErrorKind::Running`]: the lease is lost. Nothing was started, or the result was not recorded, since another
///   attempt may run.
/// - [`ErrorKind::Unconfirmed`]: `part` has ended, and the store did not record it within
///   [`complete_deadline`](crate::EngineBuilder::complete_deadline). [`Error::unconfirmed`] is the value.
/// - [`ErrorKind::StoreUnavailable`]: the beginning of a step could not be recorded, and nothing was started.
/// - [`ErrorKind::NotStored`], [`ErrorKind::Undecodable`], [`ErrorKind::WrongType`]: an earlier attempt finished the
///   step, and its result is not here, or cannot be read as this type.
/// - [`ErrorKind::Mismatch`]: an earlier attempt had another [`input`](StepCall::input).
/// - [`ErrorKind::Unsupported`]: the store keeps no steps.
/// - [`ErrorKind::InvalidStep`]: see above; also outside of an idempotent body.
///
/// # Cancel safety
///
/// Dropped while `part` runs, the step is unfinished. Dropped while its result is being recorded, it is recorded with
/// the next step or the end of the call.
#[allow(clippy::needless_pass_by_value, reason = "a name is written in place")]
pub fn step<N, F, R>(name: N, part: F) -> StepCall<F, R>
where
    N: StepName,
    F: FnOnce(Step) -> R,
    R: Future,
{
    StepCall::new(None, &name, part)
}

impl Context {
    /// As [`step()`], for a task that the body has spawned.
    #[allow(clippy::needless_pass_by_value, reason = "a name is written in place")]
    pub fn step<N, F, R>(&self, name: N, part: F) -> StepCall<F, R>
    where
        N: StepName,
        F: FnOnce(Step) -> R,
        R: Future,
    {
        StepCall::new(Some(self.clone()), &name, part)
    }
}

/// The name of a step: a text, or a tuple whose first part is one, such as `("ship", item.id)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot name a step",
    label = "a text, or a tuple of a text and up to three serializable parts"
)]
pub trait StepName {
    #[doc(hidden)]
    fn __step(&self) -> (&str, Result<KeyDigest, KeyError>);
}

impl StepName for &str {
    fn __step(&self) -> (&str, Result<KeyDigest, KeyError>) {
        (self, step_name(*self))
    }
}

impl StepName for String {
    fn __step(&self) -> (&str, Result<KeyDigest, KeyError>) {
        (self, step_name(&**self))
    }
}

macro_rules! step_names {
    ($($part:ident)+) => {
        impl<$($part: serde::Serialize),+> StepName for (&str, $($part),+) {
            fn __step(&self) -> (&str, Result<KeyDigest, KeyError>) {
                (self.0, step_name(self))
            }
        }
    };
}

step_names!(A);
step_names!(A B);
step_names!(A B C);

/// The running step, as its part gets it.
#[derive(Clone, Debug)]
pub struct Step {
    context: Context,
    name: KeyDigest,
    label: String,
}

impl Step {
    /// The idempotency key for the other side: 43 characters.
    ///
    /// It is the same in every attempt of the call, and another for every step. See
    /// [`Context::derive_key`](crate::Context::derive_key).
    #[must_use]
    pub fn key(&self) -> String {
        let derived = self.context.step_key(&self.name);
        self.context.sends(&self.label, &derived);
        derived.to_string()
    }

    /// The first part of its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.label
    }

    /// The context of the call.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }
}

/// A step, to be awaited. See [`step()`].
#[must_use = "a step runs only when it is awaited"]
pub struct StepCall<F, R: Future, P = ClassifiedStep, H = NoHook> {
    /// Taken at the first poll.
    setup: Option<Setup>,
    unfinished: Unfinished,
    on_error: Option<P>,
    hook: H,
    part: Option<F>,
    /// Set at the first poll.
    stage: StepStage<R>,
    output: Option<Output<R::Output, (P, OpenLife)>>,
    running: Option<RunningStep>,
}

/// Description of a step before its start.
struct Setup {
    context: Option<Context>,
    name: Result<(KeyDigest, String), KeyError>,
    input: Result<Option<KeyDigest>, FingerprintError>,
}

/// A future that does not depend on the types of a step.
type Sending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

enum StepStage<R> {
    Beginning(Sending<Result<(), Error>>),
    Asking,
    Running(Pin<Box<R>>),
    Ending(Sending<StepEnd>),
    /// The call ends, and this is dropped with its body. If it is still there after a moment, it is not, as in a
    /// `block_on` within the body, of which the call does not hear: then this is its error.
    Stopped(Option<Error>, Sending<()>),
    Ended,
}

struct RunningStep {
    step: Step,
    /// `None`: it is not recorded.
    recorded: Option<(Steps, StepIdentity)>,
    /// Whether its beginning was recorded.
    began: bool,
}

/// A hook of a step, or none.
pub trait StepHook<T> {
    #[doc(hidden)]
    fn poll(&mut self, step: &Step, cx: &mut task::Context<'_>) -> Poll<Reconciled<T>>;
}

/// No hook.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHook;

impl<T> StepHook<T> for NoHook {
    fn poll(&mut self, _: &Step, _: &mut task::Context<'_>) -> Poll<Reconciled<T>> {
        Poll::Ready(Reconciled::Unknown)
    }
}

/// A hook that finds out about an unfinished step.
pub struct Hook<A, G> {
    ask: Option<A>,
    asking: Option<Pin<Box<G>>>,
}

impl<T, A, G> StepHook<T> for Hook<A, G>
where
    A: FnOnce(Step) -> G,
    G: Future<Output: IntoReconciled<T>>,
{
    fn poll(&mut self, step: &Step, cx: &mut task::Context<'_>) -> Poll<Reconciled<T>> {
        if let Some(ask) = self.ask.take() {
            self.asking = Some(Box::pin(ask(step.clone())));
        }
        match &mut self.asking {
            Some(asking) => asking.as_mut().poll(cx).map(IntoReconciled::verdict),
            None => Poll::Ready(Reconciled::Unknown),
        }
    }
}

impl<F, R: Future> StepCall<F, R> {
    fn new(context: Option<Context>, name: &impl StepName, part: F) -> Self {
        let (label, digest) = name.__step();
        Self {
            setup: Some(Setup {
                context,
                name: digest.map(|digest| (digest, label.to_owned())),
                input: Ok(None),
            }),
            unfinished: Unfinished::Again,
            on_error: Some(ClassifiedStep),
            hook: NoHook,
            part: Some(part),
            stage: StepStage::Ended,
            output: None,
            running: None,
        }
    }
}

impl<F, R: Future, P, H> StepCall<F, R, P, H> {
    /// Runs the step at most once: after an interruption its outcome is unknown.
    ///
    /// Its beginning is recorded as well, which takes another round trip. An error of class system states that nothing
    /// happened, and the next attempt runs it.
    pub fn once(mut self) -> Self {
        if self.unfinished == Unfinished::Again {
            self.unfinished = Unfinished::Unknown;
        }
        self
    }

    /// Asks `hook` about an interrupted step or an unknown outcome.
    ///
    /// `Landed` is the step's value, and is recorded; after `NotLanded` the step runs, if the claim is still held; after
    /// `Unknown` and an error the caller gets [`ErrorKind::Unknown`], the key is released as after a system error, and
    /// the next attempt asks again. The beginning of the step is recorded as well, which takes another round trip.
    pub fn reconcile<A, G>(self, hook: A) -> StepCall<F, R, P, Hook<A, G>>
    where
        A: FnOnce(Step) -> G,
        G: Future,
    {
        StepCall {
            setup: self.setup,
            unfinished: Unfinished::Asked,
            on_error: self.on_error,
            hook: Hook {
                ask: Some(hook),
                asking: None,
            },
            part: self.part,
            stage: self.stage,
            output: self.output,
            running: self.running,
        }
    }

    /// Sets the input of the step.
    ///
    /// A recorded result of another input is [`ErrorKind::Mismatch`].
    pub fn input<T: ToFingerprint + ?Sized>(mut self, input: &T) -> Self {
        let digest = FingerprintBuilder::value("idem step", input).finish();
        if let Some(setup) = &mut self.setup {
            setup.input = digest.map(|digest| Some(KeyDigest::from_bytes(*digest.as_bytes())));
        }
        self
    }

    /// The treatment of errors; default [`ClassifiedStep`]. As [`CallBuilder::on_error`](crate::CallBuilder::on_error).
    pub fn on_error<Q>(self, on_error: Q) -> StepCall<F, R, Q, H> {
        StepCall {
            setup: self.setup,
            unfinished: self.unfinished,
            on_error: Some(on_error),
            hook: self.hook,
            part: self.part,
            stage: StepStage::Ended,
            output: None,
            running: self.running,
        }
    }

    /// Starts the step, without polling anything.
    fn start(
        &mut self,
        Setup {
            context,
            name,
            input,
        }: Setup,
    ) -> Result<StepStart, Error> {
        let step = admitted(context, name)?;
        let input = input.map_err(|error| step.context.refused_step(error))?;
        let (start, recorded) = match step.context.steps() {
            StepsOf::Record(steps) => {
                let identity = steps.identify((step.label.clone(), &step.name), input.as_ref());
                (
                    steps.start(&identity, self.unfinished)?,
                    Some((steps.clone(), identity)),
                )
            }
            StepsOf::Transaction => return Err(step.in_transaction()),
            StepsOf::Unprotected if self.unfinished != Unfinished::Again => {
                return Err(step.unprotected());
            }
            StepsOf::Unprotected | StepsOf::Disabled(_) => (StepStart::Run(false), None),
        };
        self.running = Some(RunningStep {
            step,
            recorded,
            began: false,
        });
        Ok(start)
    }
}

/// A step of this context, or of the task's body. Refused outside of a body, and inside of another step.
pub(super) fn admitted(
    context: Option<Context>,
    name: Result<(KeyDigest, String), KeyError>,
) -> Result<Step, Error> {
    let context = context.or_else(try_context).ok_or_else(|| {
        invalid(
            "",
            "it is outside of an idempotent body; in a task of its own, use `Context::step`",
        )
    })?;
    let (name, label) = name.map_err(|error| context.refused_step(error))?;
    let step = Step {
        context,
        name,
        label,
    };
    if INSIDE
        .try_with(|outer| outer.is_same_call(&step.context))
        .unwrap_or(false)
    {
        return Err(step.invalid("it is inside of another step; steps do not nest"));
    }
    Ok(step)
}

impl Step {
    #[cfg(feature = "_sql")]
    pub(super) fn digest(&self) -> &KeyDigest {
        &self.name
    }

    fn invalid(&self, why: &str) -> Error {
        let operation = self.context.operation().as_str();
        let error = invalid(operation, &format!("step `{}`: {why}", self.label));
        // The body may discard the error.
        self.context.emit(EventKind::Refused { error: &error });
        error
    }

    pub(super) fn in_transaction(&self) -> Error {
        self.invalid(
            "a body in a transaction has no steps: what it writes is kept or undone as a whole",
        )
    }

    pub(super) fn unprotected(&self) -> Error {
        self.invalid(
            "the call runs without protection, so that nothing records whether the step was run before",
        )
    }
}

fn invalid(operation: &str, why: &str) -> Error {
    let operation = if operation.is_empty() {
        "step"
    } else {
        operation
    };
    Error::new(ErrorKind::InvalidStep, operation.to_owned()).detail(why)
}

/// No field is pinned: the futures are boxed.
impl<F, R: Future, P, H> Unpin for StepCall<F, R, P, H> {}

impl<F, R, P, H, T, E> Future for StepCall<F, R, P, H>
where
    F: FnOnce(Step) -> R,
    R: Future<Output = Result<T, E>>,
    Result<T, E>: Outcome<P>,
    H: StepHook<T>,
{
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Result<T, E>> {
        let this = &mut *self;
        if let (Some(on_error), Some(setup)) = (this.on_error.take(), this.setup.take()) {
            this.output = Some(Output::new(on_error, OpenLife));
            let start = this.start(setup);
            this.stage = this.started(start);
        }
        loop {
            let next = match &mut this.stage {
                StepStage::Beginning(sent) => match ready!(sent.as_mut().poll(cx)) {
                    Ok(()) => this.run(),
                    Err(error) => this.refuse(error),
                },
                StepStage::Asking => match this.running.as_ref() {
                    Some(running) => match ready!(this.hook.poll(&running.step, cx)) {
                        Reconciled::Landed(value) => this.end(Ok(value)),
                        Reconciled::NotLanded => this.begin(),
                        Reconciled::Unknown => this.stop(StepStop::Undecided),
                    },
                    None => StepStage::Ended,
                },
                StepStage::Running(part) => {
                    let running = this.running.as_ref();
                    let context = running.map(|running| running.step.context.clone());
                    let mut poll = || part.as_mut().poll(cx);
                    let result = ready!(match context {
                        Some(context) => INSIDE.sync_scope(context, poll),
                        None => poll(),
                    });
                    this.end(result)
                }
                StepStage::Ending(sent) => match ready!(sent.as_mut().poll(cx)) {
                    StepEnd::Kept => StepStage::Ended,
                    StepEnd::Unkept(error) => this.refuse(error),
                },
                StepStage::Stopped(error, moment) => {
                    ready!(moment.as_mut().poll(cx));
                    match error.take() {
                        Some(error) => this.refuse(error),
                        None => StepStage::Ended,
                    }
                }
                StepStage::Ended => {
                    let output = this.output.as_mut().expect("it was set at the first poll");
                    return Poll::Ready(output.take());
                }
            };
            this.stage = next;
        }
    }
}

impl<F, R, P, H, T, E> StepCall<F, R, P, H>
where
    F: FnOnce(Step) -> R,
    R: Future<Output = Result<T, E>>,
    Result<T, E>: Outcome<P>,
{
    fn started(&mut self, start: Result<StepStart, Error>) -> StepStage<R> {
        let start = match start {
            Ok(start) => start,
            Err(error) => return self.refuse(error),
        };
        let running = self.running.as_ref();
        let recorded = running.and_then(|running| running.recorded.clone());
        match (start, recorded) {
            (StepStart::Run(true), _) => self.begin(),
            (StepStart::Replay(stored), Some((steps, step))) => {
                let output = self.output.as_mut();
                match output.map(|output| read(output.any(), &steps, &step, &stored)) {
                    Some(Err(error)) => self.refuse(error),
                    _ => StepStage::Ended,
                }
            }
            (StepStart::Unknown, _) if self.unfinished == Unfinished::Asked => {
                if let Some(running) = &mut self.running {
                    running.began = true;
                }
                StepStage::Asking
            }
            (StepStart::Unknown, _) => self.stop(StepStop::Unknown),
            _ => self.run(),
        }
    }

    fn refuse(&mut self, error: Error) -> StepStage<R> {
        if let Some(output) = &mut self.output {
            output.any().refuse(error);
        }
        StepStage::Ended
    }

    /// Records that the step begins. Refused, if the lease is lost.
    fn begin(&mut self) -> StepStage<R> {
        let Some(running) = &mut self.running else {
            return StepStage::Ended;
        };
        running.began = true;
        match (running.recorded.clone(), &mut self.output) {
            (Some((steps, step)), Some(output)) => {
                let [value, _] = output.any().schemas();
                StepStage::Beginning(Box::pin(steps.begin(step, value)))
            }
            _ => self.run(),
        }
    }

    fn run(&mut self) -> StepStage<R> {
        match (self.part.take(), &self.running) {
            (Some(part), Some(running)) => StepStage::Running(Box::pin(part(running.step.clone()))),
            _ => StepStage::Ended,
        }
    }

    fn end(&mut self, result: Result<T, E>) -> StepStage<R> {
        let (Some(output), Some(running)) = (&mut self.output, &mut self.running) else {
            return StepStage::Ended;
        };
        output.value = Some(result);
        match running.recorded.take() {
            Some((steps, step)) => {
                let output = output.any();
                let ([value, _], encoded) = (output.schemas(), output.write(&steps.core.format));
                StepStage::Ending(Box::pin(steps.end((step, value), encoded, running.began)))
            }
            None => StepStage::Ended,
        }
    }

    /// Ends the call at this step.
    fn stop(&mut self, why: StepStop) -> StepStage<R> {
        let running = self.running.as_ref();
        let recorded = running.and_then(|running| running.recorded.as_ref());
        let (Some(running), Some((steps, identity))) = (running, recorded) else {
            return StepStage::Ended;
        };
        let (context, error) = (&running.step.context, steps.stop(identity, why));
        // The call drops its body, and this with it. A task of the body's, and the holder of a claim, go on.
        if try_context().is_some_and(|body| body.is_same_call(context)) {
            StepStage::Stopped(Some(error), steps.clone().moment())
        } else {
            self.refuse(error)
        }
    }
}

/// Replaces the output by the result of an earlier attempt.
pub(super) fn read(
    output: &mut dyn AnyOutput,
    steps: &Steps,
    step: &StepIdentity,
    stored: &StoredAnswer,
) -> Result<(), Error> {
    if !steps.reads(stored, output.schemas()) {
        return Err(steps.other_type(step));
    }
    let read = output.read(stored);
    read.map_err(|undecodable| steps.undecodable(step, &undecodable.to_string()))
}

debug_fields!([F, R: Future, P, H] StepCall<F, R, P, H> {});

debug_fields!([A, G] Hook<A, G> {});

impl Error {
    /// The value of a [step](crate::step()) whose result the store has not confirmed.
    ///
    /// `None` for any other error, for a step that ended with an error, and for a value that cannot be read as a `T`.
    #[must_use]
    pub fn unconfirmed<T: Replay>(&self) -> Option<T> {
        let stored = self.held()?.downcast_ref::<StoredAnswer>()?;
        match stored.outcome() {
            OutcomeKind::Value => stored.decode().ok(),
            _ => None,
        }
    }
}
