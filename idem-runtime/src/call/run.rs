//! The part of a call that depends on the types of its body and its output.

use std::future::{Future, poll_fn};
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use super::description::Call;
use super::drive::{Drive, OwnedBody, PolledBody};
use crate::call::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::identity::operation::Operation;
use crate::outcome::{AnyOutput, Output};

/// A call in progress.
#[must_use = "the body runs only when the call is awaited"]
pub struct Run<'b, O, P, F> {
    // A dropped call drops its body first, so that what the body owns, such as an open transaction, is dropped before
    // its key is released.
    body: TypedBody<'b, O, P, F>,
    drive: Drive,
}

/// The body and the output of a call.
struct TypedBody<'b, O, P, F> {
    /// `None` once the body has completed or was dropped; never polled after that.
    body: Pin<&'b mut Option<F>>,
    output: Output<O, P>,
}

/// Replays the stored answer, or runs `body` under a claim and stores its result.
///
/// The call is admitted when this function is called, and claims its key when the future is polled: so the future
/// stores little besides the body. An expansion awaits it at once. On a replay `body` is not polled, so no part of it
/// has run. The future leaves `None` in `body`: the body is dropped before its key is released.
pub fn run<O, P, F>(
    call: Call,
    mut output: Output<O, P>,
    body: Pin<&mut Option<F>>,
) -> Run<'_, O, P, F>
where
    F: Future<Output = O>,
{
    let drive = Drive::admit(call, output.any());
    let body = TypedBody { body, output };
    Run { body, drive }
}

/// No field is pinned: the body is pinned by the caller.
impl<O, P, F> Unpin for Run<'_, O, P, F> {}

impl<O, P, F: Future<Output = O>> Future for Run<'_, O, P, F> {
    type Output = O;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O> {
        let Self { body, drive } = &mut *self;
        match drive.poll(cx, body) {
            Poll::Ready(()) => Poll::Ready(body.output.take()),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<O, P, F: Future<Output = O>> PolledBody for TypedBody<'_, O, P, F> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
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

impl<O, P, F> Drop for Run<'_, O, P, F> {
    fn drop(&mut self) {
        self.drive.drop_body(&mut self.body);
    }
}

impl<O, P, F> OwnedBody for TypedBody<'_, O, P, F> {
    fn drop_body(&mut self) {
        self.body.set(None);
    }
}

debug_fields!([O, P, F] Run<'_, O, P, F> {});

/// As [`run`], with the body in a task of its own, which survives its caller.
pub fn run_in_task<O, P, F>(
    call: Call,
    mut output: Output<O, P>,
    body: F,
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
        let task = async move {
            let body = pin!(Some(body));
            let body = TypedBody { body, output };
            Run { body, drive }.await
        };
        let task = in_span(task);
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

/// Runs the task in the caller's span, so that the body's events stay part of it. If the caller has gone, the span
/// lasts until the body has ended.
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
