//! Waiting for a notification, by the machine's time: a notification takes time, and the fixture's clock may stand
//! still.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::task::Poll;

use super::probe::Probe;

/// Whether the future completes within the fixture's patience.
pub(super) async fn in_time(p: &Probe, happens: impl Future<Output = ()>) -> bool {
    let patience = p.fixture.patience();
    let (heard, waits) = channel::<()>();
    let (rings, mut bell) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        if waits.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            let _ = rings.send(());
        }
    });
    let mut happens = pin!(happens);
    let in_time = poll_fn(|cx| {
        if happens.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        match pin!(&mut bell).poll(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(false),
            _ => Poll::Pending,
        }
    });
    let in_time = in_time.await;
    drop(heard);
    in_time
}
