//! Calls that a shutdown waits for although they hold no claim.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::context::Context;
use crate::engine::Core;
use crate::operation::RecordKey;
use crate::padded::Lane;
use crate::record::Header;

/// A call that is on its way to its claim or its answer.
pub(crate) struct Entered {
    pub(crate) core: Arc<Core>,
    lane: Lane,
}

impl Entered {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self {
            lane: core.entering.up(),
            core: Arc::clone(core),
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.core.entering.down(self.lane);
        self.core.left();
    }
}

/// A call that runs its body without a lease: without protection, or in a transaction.
pub(crate) struct Unleased {
    core: Arc<Core>,
    pub(crate) key: RecordKey,
    max_run: Duration,
}

impl Unleased {
    pub(crate) fn new(core: &Arc<Core>, key: RecordKey, max_run: Duration) -> Self {
        core.unleased.fetch_add(1, Ordering::SeqCst);
        Self {
            core: Arc::clone(core),
            key,
            max_run,
        }
    }

    /// What the body can ask.
    pub(crate) fn context(&self) -> Context {
        self.context_with(None)
    }

    /// As [`context`](Self::context), with the claim of a call in a transaction.
    pub(crate) fn context_with(&self, within: Option<Header>) -> Context {
        Context::unleased(self.core.id, self.key.clone(), within, self.max_run)
    }
}

impl Drop for Unleased {
    fn drop(&mut self) {
        self.core.unleased.fetch_sub(1, Ordering::SeqCst);
        self.core.left();
    }
}

impl Core {
    /// One less of those that a shutdown waits for.
    pub(crate) fn left(&self) {
        if self.closing.load(Ordering::SeqCst) {
            self.keeper.idle().notify_waiters();
        }
    }
}
