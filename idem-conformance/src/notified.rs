//! Waits for notifications, by the machine's clock: the fixture's clock may stand still.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use std::time::Duration;

use idem_runtime::key::KeyDigest;
use idem_runtime::store::Store;
use idem_runtime::store::author::{Hearing, Listener};

/// Whether the future completes within the fixture's patience.
pub(crate) async fn in_time(patience: Duration, happens: impl Future<Output = ()>) -> bool {
    let (done, is_done) = channel::<()>();
    let (timeout, mut timed_out) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        if is_done.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
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

#[derive(Debug, Default)]
struct Notifications {
    hearing: Option<Hearing>,
    keys: Vec<KeyDigest>,
    waker: Option<Waker>,
}

/// A listener that remembers its notifications.
#[derive(Debug, Default)]
pub(crate) struct NotificationLog(Mutex<Notifications>);

impl NotificationLog {
    fn change(&self, change: impl FnOnce(&mut Notifications)) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    async fn until(&self, is_so: impl Fn(&Notifications) -> bool) {
        poll_fn(|cx| {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.waker = Some(cx.waker().clone());
            if is_so(&state) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Forgets its notifications.
    pub(crate) fn clear(&self) {
        self.change(|state| state.keys.clear());
    }

    /// Whether it is notified of a resolution of this key in time.
    pub(crate) async fn is_told(&self, patience: Duration, key: KeyDigest) -> bool {
        in_time(patience, self.until(|state| state.keys.contains(&key))).await
    }
}

impl Listener for NotificationLog {
    fn hearing(&self, hearing: Hearing) {
        self.change(|state| state.hearing = Some(hearing));
    }

    fn resolved(&self, key: &KeyDigest) {
        self.change(|state| state.keys.push(*key));
    }

    fn warn(&self, _: &str) {}
}

/// Subscribes; from its return on every notification is received. `None`: the store has no notifications, or its
/// server does not allow them, which the contract permits.
pub(crate) async fn listen(
    store: &dyn Store,
    prefix: &Arc<str>,
    patience: Duration,
) -> Option<Arc<NotificationLog>> {
    let log: Arc<NotificationLog> = Arc::default();
    let listener: Arc<dyn Listener> = log.clone();
    if !store.listen(prefix, Arc::downgrade(&listener)) {
        return None;
    }
    let opens = log.until(|state| matches!(state.hearing, Some(Hearing::All | Hearing::Never)));
    assert!(
        in_time(patience, opens).await,
        "the store said that it notifies listeners, and then not that it does so"
    );
    let hearing = log.0.lock().unwrap_or_else(PoisonError::into_inner).hearing;
    (hearing == Some(Hearing::All)).then_some(log)
}
