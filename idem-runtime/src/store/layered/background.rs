//! Background jobs on a thread of the store.
//!
//! The thread does not depend on the callers' runtimes.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, mpsc};
use std::task::{Context, Waker};

use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

use crate::env::catch_unwind;
use crate::env::lock::Lock;

#[derive(Debug, Default)]
pub(super) struct Background {
    /// Started by the first job.
    thread: OnceLock<Handle>,
    starting: Lock<()>,
    close: Arc<Notify>,
}

/// Starts the thread, which runs until `close` is notified.
fn start(close: Arc<Notify>) -> Option<Handle> {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::Builder::new().name("idem-layered".to_owned());
    let work = move || {
        if let Ok(runtime) = Builder::new_current_thread().enable_all().build() {
            // The starter of this thread waits for the handle.
            let _ = sender.send(runtime.handle().clone());
            runtime.block_on(close.notified());
        }
    };
    thread.spawn(work).ok()?;
    receiver.recv().ok()
}

impl Background {
    /// The runtime of the thread. `None` if it could not be started: the next job tries again.
    fn handle(&self, start: impl FnOnce(Arc<Notify>) -> Option<Handle>) -> Option<&Handle> {
        if let Some(handle) = self.thread.get() {
            return Some(handle);
        }
        // Two callers may arrive at once; the lock lets one of them start the thread.
        let _starting = self.starting.lock();
        if self.thread.get().is_none() {
            // Just checked to be empty, under the lock.
            let _ = self.thread.set(start(Arc::clone(&self.close))?);
        }
        self.thread.get()
    }

    /// Polls a job once on the caller's thread, then in the background.
    ///
    /// So writes are sent in the order of their causes. A job ends here if it is ready, panics, or has no thread: then
    /// it is dropped.
    pub(super) fn run(&self, job: impl Future<Output = ()> + Send + 'static) {
        let Some(handle) = self.handle(start) else {
            return;
        };
        let mut job: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(job);
        let pending = {
            let _entered = handle.enter();
            let mut context = Context::from_waker(Waker::noop());
            // The panic hook has reported a panic, as one on the thread.
            catch_unwind::poll(Pin::new(&mut job), &mut context).is_pending()
        };
        if pending {
            handle.spawn(job);
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.close.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_does_not_start_is_tried_again() {
        let background = Background::default();
        assert!(background.handle(|_| None).is_none());
        assert!(background.handle(start).is_some());
        assert!(background.handle(|_| None).is_some());
    }
}
