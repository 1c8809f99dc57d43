//! The guard of a renewed lease.

use std::sync::Arc;
use std::time::Duration;

use crate::lifecycle::core::Core;
use crate::lifecycle::lease::Lease;

/// A registered lease: renewed until this is dropped.
pub(crate) struct RenewalGuard {
    pub(crate) core: Arc<Core>,
    pub(crate) lease: Arc<Lease>,
}

impl RenewalGuard {
    /// Renews the lease every third of it, beginning a third after `granted`, until it is given up.
    pub(crate) fn begin(core: Arc<Core>, lease: Arc<Lease>, granted: Duration) -> Self {
        core.background.register(&lease, granted);
        Self { core, lease }
    }
}

impl Drop for RenewalGuard {
    fn drop(&mut self) {
        self.core.background.unregister(&self.lease);
        self.core.left();
        // A call that waited for this claim without an answer queries the store.
        self.lease.wake_followers();
    }
}

debug_fields!(RenewalGuard {});
