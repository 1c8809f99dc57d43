//! Catches a panic of an adapter or a handler as a value, so that the delivery can be settled.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

type Panic = Box<dyn Any + Send>;

/// Polls to the end, or to a panic.
pub(crate) async fn unwind<F: Future>(mut future: Pin<&mut F>) -> Result<F::Output, Panic> {
    poll_fn(
        |cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        },
    )
    .await
}
