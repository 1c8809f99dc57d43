//! Counters of the fast store's use.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a [`LayeredStore`](super::LayeredStore), since it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayeredStats {
    /// Requests that a copy answered, without a request to the durable store.
    pub hits: u64,
    /// Requests for which there was no copy that could answer.
    pub misses: u64,
    /// Requests and copies that failed or took too long.
    pub failures: u64,
    /// Requests and copies that skipped the fast store.
    ///
    /// Requests that went directly to the durable store, and copies that were not made, because the fast store is
    /// degraded, overloaded, or not trusted at the moment.
    pub skipped: u64,
    /// Copies in progress.
    pub writing: u64,
    /// Whether the fast store failed so often that only probes query it.
    pub degraded: bool,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) skipped: AtomicU64,
    pub(super) writing: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    pub(super) fn read(&self, degraded: bool) -> LayeredStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LayeredStats {
            hits: read(&self.hits),
            misses: read(&self.misses),
            failures: read(&self.failures),
            skipped: read(&self.skipped),
            writing: self.writing.load(Ordering::Acquire),
            degraded,
        }
    }
}
