//! Notifies followers from a thread on which none of them runs.
//!
//! To wake a task of another thread is a system call, and contends for a lock that the woken thread needs as well.
//! For many followers that costs more than the message and the read before it. Therefore one task is spawned on
//! the runtime of the first follower, and wakes them there. That runtime may be blocked, or gone; then they are
//! notified from here after all, a moment later.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

/// This many followers are woken one by one: another task would cost as much.
const FEW: usize = 4;
/// How long a runtime may take to start the task that wakes the followers.
const MOMENT: Duration = Duration::from_millis(1);

/// Sends the result of a flight to its followers.
pub(super) struct Tell<T> {
    sender: watch::Sender<T>,
    /// The runtime of the first follower.
    runtime: Option<Handle>,
}

impl<T: Clone + Send + Sync + 'static> Tell<T> {
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

    pub(super) fn is_watched(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    pub(super) fn tell(&self, signal: T) {
        self.sender.send_replace(signal);
    }

    /// Sends the last signal, from the engine's own thread.
    pub(super) fn tell_from_afar(self, signal: T) -> Option<Word<T>> {
        if self.sender.receiver_count() <= FEW {
            self.tell(signal);
            return None;
        }
        let Self { sender, runtime } = self;
        let word = Word(Arc::new(WordState {
            sender,
            signal,
            told: AtomicBool::new(false),
        }));
        let inner = Arc::clone(&word.0);
        runtime?.spawn(async move { inner.tell() });
        Some(word)
    }
}

/// A last signal that a task on the followers' runtime sends. When this is dropped, it is sent from here.
pub(crate) struct Word<T: Clone>(Arc<WordState<T>>);

struct WordState<T> {
    sender: watch::Sender<T>,
    signal: T,
    told: AtomicBool,
}

impl<T: Clone> WordState<T> {
    fn tell(&self) {
        if !self.told.swap(true, Ordering::Relaxed) {
            self.sender.send_replace(self.signal.clone());
        }
    }
}

impl<T: Clone> Word<T> {
    /// Waits until the signal is sent, or for a moment.
    pub(crate) async fn told(self) {
        if !self.0.told.load(Ordering::Relaxed) {
            tokio::time::sleep(MOMENT).await;
        }
    }
}

impl<T: Clone> Drop for Word<T> {
    fn drop(&mut self) {
        self.0.tell();
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    /// A runtime that does nothing unless it is driven, and followers that wait there.
    fn followers(count: usize) -> (Runtime, Tell<u8>, Vec<watch::Receiver<u8>>) {
        let runtime = Builder::new_current_thread().build().unwrap();
        let tell = runtime.block_on(async { Tell::new(0) });
        let told = (0..count).map(|_| tell.follow()).collect();
        (runtime, tell, told)
    }

    fn all_heard(told: &[watch::Receiver<u8>], signal: u8) -> bool {
        told.iter().all(|told| *told.borrow() == signal)
    }

    #[test]
    fn a_few_are_told_where_it_is_known() {
        let (_runtime, tell, told) = followers(FEW);
        assert!(tell.tell_from_afar(1).is_none());
        assert!(all_heard(&told, 1));
    }

    #[test]
    fn many_are_told_where_they_wait() {
        let (runtime, tell, told) = followers(FEW + 1);
        let word = tell.tell_from_afar(1);
        assert!(all_heard(&told, 0));
        runtime.block_on(tokio::task::yield_now());
        assert!(all_heard(&told, 1));
        drop(word);
    }

    #[test]
    fn where_nothing_goes_on_they_are_told_all_the_same() {
        let (_blocked, tell, told) = followers(FEW + 1);
        let word = tell.tell_from_afar(1);
        assert!(all_heard(&told, 0));
        drop(word);
        assert!(all_heard(&told, 1));

        let (gone, tell, told) = followers(FEW + 1);
        drop(gone);
        let here = Builder::new_current_thread().enable_time().build().unwrap();
        here.block_on(tell.tell_from_afar(1).unwrap().told());
        assert!(all_heard(&told, 1));
    }
}
