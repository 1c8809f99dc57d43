//! Futures that are dropped half-way.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// When a future is dropped after its last poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    AtOnce,
    /// With the result of the awaited future.
    Woken,
}

/// The output of a future, unless dropped after this many polls.
pub async fn dropped_after<T>(
    polls: usize,
    dropped: Dropped,
    future: impl Future<Output = T>,
) -> Option<T> {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 && dropped == Dropped::AtOnce => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
