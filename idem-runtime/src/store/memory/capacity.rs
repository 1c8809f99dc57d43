//! Bounds of a memory store, and its usage.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::store::{StoreError, StoreErrorKind};

/// The bounds of records and of bytes, and the usage.
///
/// Bounds and counters share a cache line, because a claim reads them together.
pub(super) struct Capacity {
    max: [usize; 2],
    used: [AtomicUsize; 2],
}

impl Capacity {
    pub(super) fn new(max_entries: usize, max_bytes: usize) -> Self {
        Self {
            max: [max_entries, max_bytes],
            used: Default::default(),
        }
    }

    pub(super) fn add(&self, entries: isize, bytes: isize) {
        for (used, change) in self.used.iter().zip([entries, bytes]) {
            // Most renewals and many completions change neither. Adding the two's complement subtracts.
            if change != 0 {
                used.fetch_add(change.cast_unsigned(), Ordering::Relaxed);
            }
        }
    }

    /// The records and bytes.
    pub(super) fn used(&self) -> [usize; 2] {
        (self.used.each_ref()).map(|used| used.load(Ordering::Relaxed))
    }

    /// Whether there is room for another record.
    pub(super) fn has_room(&self) -> bool {
        self.used()
            .iter()
            .zip(self.max)
            .all(|(used, max)| *used < max)
    }

    pub(super) fn full(&self) -> StoreError {
        let ([entries, bytes], [max_entries, max_bytes]) = (self.used(), self.max);
        StoreError::new(
            StoreErrorKind::Full,
            format!(
                "the memory store is full ({entries} of {max_entries} records, {bytes} of {max_bytes} bytes); \
                 raise its bounds, shorten ttl, or use a store with more room"
            ),
        )
    }
}
