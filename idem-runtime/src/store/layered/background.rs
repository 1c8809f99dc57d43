//! Background jobs on a thread of the store.
//!
//! The thread does not depend on the callers' runtimes.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, mpsc};
use std::task::{Context, Waker};

use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(super) struct Background {
    /// Started by the first job. `None` if no thread could be started: then nothing is copied.
    thread: OnceLock<Option<Handle>>,
    close: Arc<Notify>,
}

impl Background {
    fn handle(&self) -> Option<&Handle> {
        let start = || {
            let close = Arc::clone(&self.close);
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
        };
        self.thread.get_or_init(start).as_ref()
    }

    /// Polls a job once on the caller's thread, then moves it to the background.
    ///
    /// So writes are sent in the order of their causes. A job that is ready ends here.
    pub(super) fn run(&self, job: impl Future<Output = ()> + Send + 'static) {
        let Some(handle) = self.handle() else { return };
        let mut job: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(job);
        let pending = {
            let _entered = handle.enter();
            let mut context = Context::from_waker(Waker::noop());
            job.as_mut().poll(&mut context).is_pending()
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
