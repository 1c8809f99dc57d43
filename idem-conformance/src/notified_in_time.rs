//! Waits for a notification, by the machine's clock: the fixture's clock may stand still.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::task::Poll;

use super::probe::Probe;

/// Whether the future completes within the fixture's patience.
pub(super) async fn in_time(p: &Probe, happens: impl Future<Output = ()>) -> bool {
    let timeout_after = p.fixture.patience();
    let (done, is_done) = channel::<()>();
    let (timeout, mut timed_out) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        if is_done.recv_timeout(timeout_after) == Err(RecvTimeoutError::Timeout) {
            let _ = timeout.send(());
        }
    });
    let mut happens = pin!(happens);
    let in_time = poll_fn(|cx| {
        if happens.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        match pin!(&mut timed_out).poll(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(false),
            _ => Poll::Pending,
        }
    });
    let in_time = in_time.await;
    drop(done);
    in_time
}
