//! Renewals after a step of the server's clock.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::queue::nanos;
use super::{BackgroundThread, ThreadState};
use crate::env::observer::{Event, EventKind, Observer};

impl BackgroundThread {
    /// The observer of the store: the engine's observer, after the thread has seen the event.
    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.state) as _
    }
}

/// A forward step shortens each lease on the server by as much. Renewals that would have been due within the step
/// are due now; a lease that has lapsed by it is renewed as well, unless another attempt took it.
impl Observer for ThreadState {
    fn observe(&self, event: &Event<'_>) {
        if let EventKind::ClockStepped { by, forward: true } = event.kind {
            self.stepped.fetch_max(nanos(by), Ordering::SeqCst);
            self.wake.notify_one();
        }
        self.observer.observe(event);
    }
}

debug_fields!(ThreadState {});
