//! What nobody waits for: on a thread of the store's own, whatever becomes of the callers' runtimes.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, mpsc};
use std::task::{Context, Waker};

use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(super) struct Background {
    /// Started by the first job. `None` where no thread could be had: then nothing is copied.
    thread: OnceLock<Option<Handle>>,
    close: Arc<Notify>,
}

impl Background {
    fn handle(&self) -> Option<&Handle> {
        let start = || {
            let close = Arc::clone(&self.close);
            let (tell, told) = mpsc::channel();
            let thread = std::thread::Builder::new().name("idem-layered".to_owned());
            let work = move || {
                if let Ok(runtime) = Builder::new_current_thread().enable_all().build() {
                    // Whoever started this thread waits for it.
                    let _ = tell.send(runtime.handle().clone());
                    runtime.block_on(close.notified());
                }
            };
            thread.spawn(work).ok()?;
            told.recv().ok()
        };
        self.thread.get_or_init(start).as_ref()
    }

    /// Begins a job here and now, so that what is sent leaves in the order of what it is about, and
    /// goes on with it on the thread if it has to wait.
    pub(super) fn run(&self, job: impl Future<Output = ()> + Send + 'static) {
        let Some(handle) = self.handle() else { return };
        let mut job: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(job);
        let pending = {
            let _entered = handle.enter();
            let mut nobody = Context::from_waker(Waker::noop());
            job.as_mut().poll(&mut nobody).is_pending()
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
