//! Notifies the followers of a flight, also from another runtime's thread.
//!
//! To wake a task of another thread is a system call, and contends for a lock that the woken thread needs as well.
//! For many followers that costs more than the message and the read before it. Therefore one task is spawned on
//! the runtime of the first follower, and wakes them there. If that runtime is blocked or gone, the engine's own thread
//! notifies them after a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

/// This many followers are woken one by one: another task would cost as much.
const FEW: usize = 4;
/// How long a runtime may take to start the waking task.
const MOMENT: Duration = Duration::from_millis(1);

/// Sends the signals of a flight to its followers.
pub(super) struct Notifier<T> {
    sender: watch::Sender<T>,
    /// The runtime of the first follower.
    runtime: Option<Handle>,
}

impl<T: Clone + Send + Sync + 'static> Notifier<T> {
    /// Creates the sender on the runtime of the first follower.
    pub(super) fn new(signal: T) -> Self {
        Self {
            sender: watch::Sender::new(signal),
            runtime: Handle::try_current().ok(),
        }
    }

    pub(super) fn follow(&self) -> watch::Receiver<T> {
        self.sender.subscribe()
    }

    pub(super) fn has_followers(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    pub(super) fn notify(&self, signal: T) {
        self.sender.send_replace(signal);
    }

    /// Sends the last signal, from the engine's own thread.
    pub(super) fn notify_last(self, signal: T) -> Option<LastSignal<T>> {
        if self.sender.receiver_count() <= FEW {
            self.notify(signal);
            return None;
        }
        let Self { sender, runtime } = self;
        let last = LastSignal(Arc::new(LastSignalState {
            sender,
            signal,
            sent: AtomicBool::new(false),
        }));
        let state = Arc::clone(&last.0);
        runtime?.spawn(async move { state.send() });
        Some(last)
    }
}

/// A flight's last signal, on its way through the followers' runtime.
///
/// When this is dropped unsent, it is sent from here.
pub(crate) struct LastSignal<T: Clone>(Arc<LastSignalState<T>>);

struct LastSignalState<T> {
    sender: watch::Sender<T>,
    signal: T,
    sent: AtomicBool,
}

impl<T: Clone> LastSignalState<T> {
    fn send(&self) {
        if !self.sent.swap(true, Ordering::Relaxed) {
            self.sender.send_replace(self.signal.clone());
        }
    }
}

impl<T: Clone> LastSignal<T> {
    /// Waits until the signal is sent, and sends it after a pause.
    pub(crate) async fn sent(self) {
        if !self.0.sent.load(Ordering::Relaxed) {
            tokio::time::sleep(MOMENT).await;
        }
    }
}

impl<T: Clone> Drop for LastSignal<T> {
    fn drop(&mut self) {
        self.0.send();
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    /// A runtime that has to be driven, and its followers.
    fn followers(count: usize) -> (Runtime, Notifier<u8>, Vec<watch::Receiver<u8>>) {
        let runtime = Builder::new_current_thread().build().unwrap();
        let notifier = runtime.block_on(async { Notifier::new(0) });
        let receivers = (0..count).map(|_| notifier.follow()).collect();
        (runtime, notifier, receivers)
    }

    fn all_received(receivers: &[watch::Receiver<u8>], signal: u8) -> bool {
        receivers
            .iter()
            .all(|receiver| *receiver.borrow() == signal)
    }

    #[test]
    fn a_few_are_notified_from_the_calling_thread() {
        let (_runtime, notifier, receivers) = followers(FEW);
        assert!(notifier.notify_last(1).is_none());
        assert!(all_received(&receivers, 1));
    }

    #[test]
    fn many_are_notified_on_their_runtime() {
        let (runtime, notifier, receivers) = followers(FEW + 1);
        let last = notifier.notify_last(1);
        assert!(all_received(&receivers, 0));
        runtime.block_on(tokio::task::yield_now());
        assert!(all_received(&receivers, 1));
        drop(last);
    }

    #[test]
    fn followers_of_a_blocked_or_ended_runtime_are_notified() {
        let (_blocked, notifier, receivers) = followers(FEW + 1);
        let last = notifier.notify_last(1);
        assert!(all_received(&receivers, 0));
        drop(last);
        assert!(all_received(&receivers, 1));

        let (gone, notifier, receivers) = followers(FEW + 1);
        drop(gone);
        let here = Builder::new_current_thread().enable_time().build().unwrap();
        here.block_on(notifier.notify_last(1).unwrap().sent());
        assert!(all_received(&receivers, 1));
    }
}
