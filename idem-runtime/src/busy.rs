//! Calls that a shutdown waits for although they hold no claim.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::context::Context;
use crate::engine::Core;
use crate::operation::RecordKey;

/// A call that is on its way to its claim or its answer.
pub(crate) struct Entered<'a>(&'a Core);

impl<'a> Entered<'a> {
    pub(crate) fn new(core: &'a Core) -> Self {
        core.entering.fetch_add(1, Ordering::SeqCst);
        Self(core)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.left(&self.0.entering);
    }
}

/// A call that runs its body without protection.
pub(crate) struct Unprotected {
    core: Arc<Core>,
    pub(crate) key: RecordKey,
    max_run: Duration,
}

impl Unprotected {
    pub(crate) fn new(core: &Arc<Core>, key: RecordKey, max_run: Duration) -> Self {
        core.unprotected.fetch_add(1, Ordering::SeqCst);
        Self {
            core: Arc::clone(core),
            key,
            max_run,
        }
    }

    /// What the body can ask.
    pub(crate) fn context(&self) -> Context {
        Context::unprotected(self.core.id, self.key.clone(), self.max_run)
    }
}

impl Drop for Unprotected {
    fn drop(&mut self) {
        self.core.left(&self.core.unprotected);
    }
}

impl Core {
    /// One less of those that a shutdown waits for.
    fn left(&self, count: &AtomicUsize) {
        count.fetch_sub(1, Ordering::SeqCst);
        if self.closing.load(Ordering::SeqCst) {
            self.keeper.idle().notify_waiters();
        }
    }
}
