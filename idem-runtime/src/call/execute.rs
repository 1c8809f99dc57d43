//! Running a body under its claim, and settling what came of it.

use std::future::poll_fn;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::{Call, enter, replay};
use crate::answer::How;
use crate::backoff::Backoff;
use crate::begin::Start;
use crate::busy::Unleased;
use crate::cause::Cause;
use crate::claim::Claim;
use crate::clock::deadline;
use crate::context::Context;
use crate::engine::Engine;
use crate::enter::{Asking, Entry};
use crate::error::{Error, ErrorKind};
use crate::lease::Lease;
use crate::outcome::Codec;
use crate::policy::OnLeaseLost;
use crate::reconcile::{Riddle, Stop};
use crate::record::{OutcomeKind, State};
use crate::settle::Settled;
use crate::store::ReadReply;
use crate::stored::Stored;
use crate::unwind::{self, Panic};

/// What waiting leads to, boxed: much larger than the body of most calls, which the caller holds besides,
/// and compiled once.
type Waiting<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A call that was let in.
enum Opened<O, P> {
    Answered(O),
    Asks {
        engine: Engine,
        codec: Codec<O, P>,
        asking: Asking,
    },
}

fn open<O, P>(call: Call<O, P>) -> Opened<O, P> {
    let Call {
        inputs,
        engine,
        codec,
        overrides,
    } = call;
    match enter(inputs, engine, overrides) {
        Err(error) => Opened::Answered(codec.refuse(error)),
        Ok((engine, Entry::Known(stored))) => Opened::Answered(replay(&engine, &codec, &stored)),
        Ok((engine, Entry::Asks(asking))) => Opened::Asks {
            engine,
            codec,
            asking,
        },
    }
}

/// Answers the call from its record, or runs `body` under a claim and stores its result.
///
/// It begins where this is called, so that the future holds little besides the body: an expansion calls it
/// where it awaits. On a replay `body` is not polled, so nothing of it has run. It is `None` when this
/// returns early, because it was dropped before its key was given back.
pub fn run<O, P, F>(
    call: Call<O, P>,
    body: Pin<&mut Option<F>>,
) -> impl Future<Output = O> + use<'_, O, P, F>
where
    F: Future<Output = O>,
{
    let mut opened = open(call);
    async move {
        match opened {
            Opened::Answered(answer) => answer,
            Opened::Asks {
                ref engine,
                ref codec,
                ref mut asking,
            } => {
                let turn = match asking.await {
                    Err(error) => return codec.refuse(error),
                    Ok(Start::Done(stored)) => return replay(engine, codec, &stored),
                    Ok(start) => Turn::new(start),
                };
                execute(engine, codec, turn, body).await
            }
        }
    }
}

/// As [`run`], with a body that runs in a task of its own and so to its end, whatever becomes of the
/// caller.
pub async fn finish<O, P, F>(call: Call<O, P>, body: F) -> O
where
    F: Future<Output = O> + Send + 'static,
    O: Send + 'static,
    P: Send + Sync + 'static,
{
    let (engine, codec, asking) = match open(call) {
        Opened::Answered(answer) => return answer,
        Opened::Asks {
            engine,
            codec,
            asking,
        } => (engine, codec, asking),
    };
    let start = match asking.await {
        Err(error) => return codec.refuse(error),
        Ok(Start::Done(stored)) => return replay(&engine, &codec, &stored),
        Ok(start) => start,
    };
    let turn = Turn::new(start);
    let (operation, refuse) = (turn.context.operation().clone(), codec.refusal());
    let scoped = Engine::scoped();
    let task = async move {
        let body = pin!(Some(body));
        execute(&engine, &codec, turn, body).await
    };
    // Nothing awaits between the grant and this, so no claim is lost on the way.
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return task.await;
    };
    let task = match scoped {
        Some(scoped) => runtime.spawn(async move { scoped.scope(task).await }),
        None => runtime.spawn(task),
    };
    match task.await.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(output) => output,
        Err(Ok(panic)) => resume_unwind(panic),
        Err(Err(_)) => refuse(
            Error::new(ErrorKind::ShuttingDown, operation)
                .detail("the runtime was shut down while the body ran"),
        ),
    }
}

/// What a body runs with.
struct Turn {
    /// Made where the call was made, whatever task the body runs in.
    context: Context,
    /// `None`: it runs without protection.
    claim: Option<Claim>,
    /// Counts a body without a claim as one that runs.
    unprotected: Option<Box<Unleased>>,
}

impl Turn {
    fn new(start: Start) -> Self {
        let of = |claim: Claim, riddle| {
            let context = claim.context_with(riddle);
            Self {
                context,
                claim: Some(claim),
                unprotected: None,
            }
        };
        match start {
            Start::Run(claim) => of(claim, None),
            Start::Reconcile(claim, riddle) => of(claim, Some(riddle)),
            Start::Unprotected(call) => Self {
                context: call.context(),
                claim: None,
                unprotected: Some(call),
            },
            Start::Done(_) => unreachable!("an answer is replayed"),
        }
    }
}

/// How running a body ended.
enum End<O> {
    Output(O),
    Panic(Panic),
    LeaseLost,
    Stop(Box<Stop>),
}

/// A body and its claim. Dropped, the body goes first: what it holds, an open transaction say, is
/// undone before its key is given back.
struct Running<'a, F> {
    body: Pin<&'a mut Option<F>>,
    claim: Option<Claim>,
}

impl<F> Drop for Running<'_, F> {
    fn drop(&mut self) {
        self.body.set(None);
    }
}

impl<F: Future> Running<'_, F> {
    /// Polls the body to its end, or until it may not go on.
    async fn end(&mut self, context: &Context) -> End<F::Output> {
        let cancels = (self.claim.as_ref())
            .is_some_and(|claim| claim.policy().on_lease_lost == OnLeaseLost::Cancel);
        let mut lost = cancels.then(|| Box::pin(context.lease_lost()));
        let riddle = context.riddle();
        poll_fn(|cx| {
            let body = self.body.as_mut().as_pin_mut();
            match unwind::poll(body.expect("a body is there until it has ended"), cx) {
                Poll::Ready(Ok(output)) => return Poll::Ready(End::Output(output)),
                Poll::Ready(Err(panic)) => return Poll::Ready(End::Panic(panic)),
                Poll::Pending => {}
            }
            if let Some(stop) = riddle.and_then(Riddle::stop) {
                return Poll::Ready(End::Stop(Box::new(stop)));
            }
            match &mut lost {
                Some(lost) => lost.as_mut().poll(cx).map(|()| End::LeaseLost),
                None => Poll::Pending,
            }
        })
        .await
    }
}

async fn execute<O, P, F>(
    engine: &Engine,
    codec: &Codec<O, P>,
    turn: Turn,
    body: Pin<&mut Option<F>>,
) -> O
where
    F: Future<Output = O>,
{
    let Turn {
        context,
        claim,
        unprotected: _unprotected,
    } = turn;
    let mut running = Running { body, claim };
    let end = context.scope(running.end(&context)).await;
    // Everything that the body held goes before its key does.
    running.body.set(None);
    let claim = running.claim.take();
    drop(running);
    let settled = match (end, claim) {
        (End::Output(mut output), Some(claim)) => {
            codec.annotate(&mut output, claim.how(), claim.attempt(), Duration::ZERO);
            let encoded = codec.encode(&output, &engine.core.format);
            match claim.settle(encoded).await {
                Settled::Own => return output,
                settled => Ok(settled),
            }
        }
        (End::Output(mut output), None) => {
            codec.annotate(
                &mut output,
                How::Executed,
                context.attempt(),
                Duration::ZERO,
            );
            return output;
        }
        (End::Panic(panic), claim) => {
            if let Some(claim) = claim {
                panicked(claim).await;
            }
            resume_unwind(panic)
        }
        (End::LeaseLost, Some(claim)) => Ok(lose(engine.clone(), claim).await),
        (End::Stop(stop), Some(claim)) => give_up(engine.clone(), claim, stop).await,
        (End::LeaseLost | End::Stop(_), None) => {
            unreachable!("without a claim there is nothing to lose and nothing to find out")
        }
    };
    match settled {
        Ok(settled) => adopt(engine, codec, &context, settled),
        Err(error) => codec.refuse(error),
    }
}

fn panicked(claim: Claim) -> Waiting<()> {
    Box::pin(claim.panicked())
}

/// The lease was lost, and the body was dropped for it.
fn lose(engine: Engine, claim: Claim) -> Waiting<Settled> {
    Box::pin(async move {
        let (lease, wait) = (Arc::clone(claim.lease()), claim.policy().wait());
        claim.cancelled().await;
        winner(&engine, &lease, wait).await
    })
}

/// The body was dropped before it began.
fn give_up(engine: Engine, claim: Claim, stop: Box<Stop>) -> Waiting<Result<Settled, Error>> {
    Box::pin(async move {
        match *stop {
            Stop::Undecided => {
                let operation = claim.operation().clone();
                let attempts = claim.attempt();
                match claim.undecided().await {
                    Settled::Own => {
                        let (core, now) = (&engine.core, Duration::ZERO);
                        let cause = Some(Cause::Undecided);
                        Err(core.unknown(&operation, attempts, cause, now))
                    }
                    settled => Ok(settled),
                }
            }
            Stop::Answered { record, left } => {
                claim.give_back().await;
                Ok(Settled::Adopted { record, left })
            }
            Stop::Refused(error) => {
                claim.give_back().await;
                Err(error)
            }
        }
    })
}

/// What a call returns whose own answer does not count.
fn adopt<O, P>(engine: &Engine, codec: &Codec<O, P>, context: &Context, settled: Settled) -> O {
    let operation = context.operation();
    match settled {
        Settled::Adopted { record, left } => match record.header.state {
            State::Done {
                outcome: OutcomeKind::Value | OutcomeKind::Error,
                ..
            } => {
                let (core, digest) = (&engine.core, context.key());
                let stored = Stored::new(core, operation, digest, record, left, true);
                replay(engine, codec, &stored)
            }
            _ => codec.refuse(engine.core.unanswered(operation, &record, left)),
        },
        Settled::Unread(error) => codec.refuse(error),
        Settled::Overtaken(retry_after) => codec.refuse(
            Error::new(ErrorKind::Running { retry_after }, operation.clone())
                .detail("another attempt took the key over, and its answer will count"),
        ),
        Settled::Own => codec.refuse(
            Error::new(
                ErrorKind::Running {
                    retry_after: Duration::ZERO,
                },
                operation.clone(),
            )
            .detail("the body lost its lease and was cancelled (`on_lease_lost = cancel`)"),
        ),
    }
}

/// Waits for the answer of the attempt that took the key over. By reading: never by claiming, since
/// there is no body any more.
async fn winner(engine: &Engine, lease: &Lease, patience: Duration) -> Settled {
    let (core, clock) = (&engine.core, &*engine.core.clock);
    let until = clock.now() + patience;
    let mut backoff = Backoff::new(&crate::record::Owner::random());
    loop {
        let now = clock.now();
        let moment = now + core.limits.claim_deadline;
        let found = deadline(clock, moment, pin!(core.read(&lease.key))).await;
        let mut running = None;
        if let Ok(Ok(ReadReply::Found { record, left })) = found {
            // The record was lost, and a call with other arguments has the key: no answer of ours.
            if !record.header.fingerprint.matches(lease.claim().fingerprint) {
                return Settled::Own;
            }
            if let State::Done { .. } = record.header.state {
                return Settled::Adopted { record, left };
            }
            running = Some(record.header.lease_left(left)).filter(|left| !left.is_zero());
        }
        if now >= until {
            return running.map_or(Settled::Own, Settled::Overtaken);
        }
        let pause = backoff.poll().min(until.saturating_sub(now));
        clock.sleep_until(now + pause).await;
    }
}
