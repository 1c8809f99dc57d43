//! The hit rate of claims.

use std::sync::atomic::{AtomicU32, Ordering};

/// The share of recent claims that found a record, of [`SCALE`](Self::SCALE).
#[derive(Debug)]
pub(super) struct HitRate(AtomicU32);

impl HitRate {
    pub(super) const SCALE: u32 = 1 << 16;
    /// The number of claims over which the share decays.
    const WINDOW: u32 = 64;

    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(Self::SCALE / Self::WINDOW))
    }

    pub(super) fn at_least(&self, share: u32) -> bool {
        self.0.load(Ordering::Relaxed) >= share
    }

    pub(super) fn record(&self, found: bool) {
        let update = |was: u32| {
            let is = if found {
                was + (Self::SCALE - was) / Self::WINDOW
            } else {
                was - was.div_ceil(Self::WINDOW)
            };
            (is != was).then_some(is)
        };
        // An unchanged share is no error.
        let _ = (self.0).fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    }
}
