//! Catches a panic as a value, before which the call is settled.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

pub(crate) type Panic = Box<dyn Any + Send>;

pub(crate) fn poll<F: Future>(
    body: Pin<&mut F>,
    cx: &mut Context<'_>,
) -> Poll<Result<F::Output, Panic>> {
    match catch_unwind(AssertUnwindSafe(|| body.poll(cx))) {
        Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(panic) => Poll::Ready(Err(panic)),
    }
}

/// Polls to the end.
///
/// # Errors
///
/// The future panics.
pub async fn unwind<F: Future>(mut body: Pin<&mut F>) -> Result<F::Output, Panic> {
    poll_fn(|cx| poll(body.as_mut(), cx)).await
}
