//! Bounds of a memory store, and its usage.
//!
//! Every claim checks for room, and every write changes the usage. Threads would contend for one number of all shards
//! at each call, so a shard keeps its change to itself until it exceeds a *grain*. The grains of all shards together
//! are under one percent of the bounds, and only with less room than that are the shards read one by one. A small store
//! has no grain, and publishes every change.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::store::{StoreError, StoreErrorKind};

/// Few enough to sweep cheaply, and enough for little contention between threads.
pub(super) const SHARDS: usize = 32;

/// The share of a bound below which a shard keeps its change to itself.
const GRAIN: usize = SHARDS * 128;

/// A change of the number of records and of their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) entries: isize,
    pub(super) bytes: isize,
}

/// A bound, and the published usage.
struct Bounded {
    max: usize,
    used: AtomicUsize,
}

impl Bounded {
    fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn publish(&self, change: isize) {
        // Adding the two's complement subtracts.
        self.used
            .fetch_add(change.cast_unsigned(), Ordering::Relaxed);
    }

    fn exceeds_grain(&self, change: isize) -> bool {
        change.unsigned_abs() > self.max / GRAIN
    }

    fn has_room(&self, unpublished: usize) -> bool {
        let grains = unpublished * (self.max / GRAIN);
        self.used().saturating_add(grains) < self.max
    }
}

pub(super) struct Capacity {
    entries: Bounded,
    bytes: Bounded,
}

impl Capacity {
    pub(super) fn new(max_entries: usize, max_bytes: usize) -> Self {
        let bounded = |max| Bounded {
            max,
            used: AtomicUsize::new(0),
        };
        Self {
            entries: bounded(max_entries),
            bytes: bounded(max_bytes),
        }
    }

    /// Publishes the change of a shard if it exceeds the grain.
    pub(super) fn update(&self, unpublished: &mut Usage) {
        let &mut Usage { entries, bytes } = unpublished;
        if self.entries.exceeds_grain(entries) || self.bytes.exceeds_grain(bytes) {
            self.publish(unpublished);
        }
    }

    /// Publishes the change of a shard.
    pub(super) fn publish(&self, unpublished: &mut Usage) {
        let Usage { entries, bytes } = std::mem::take(unpublished);
        self.entries.publish(entries);
        self.bytes.publish(bytes);
    }

    /// The published records and bytes.
    pub(super) fn used(&self) -> (usize, usize) {
        (self.entries.used(), self.bytes.used())
    }

    /// Whether there is room for another record, if this many shards have unpublished changes.
    pub(super) fn has_room(&self, unpublished: usize) -> bool {
        self.entries.has_room(unpublished) && self.bytes.has_room(unpublished)
    }

    pub(super) fn full(&self) -> StoreError {
        let (entries, bytes) = self.used();
        let (max_entries, max_bytes) = (self.entries.max, self.bytes.max);
        StoreError::new(
            StoreErrorKind::Full,
            format!(
                "the memory store is full ({entries} of {max_entries} records, {bytes} of {max_bytes} bytes); \
                 raise its bounds, shorten ttl, or use a store with more room"
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(usage: &mut Usage, entries: usize) {
        usage.entries += entries.cast_signed();
        usage.bytes += 252 * entries.cast_signed();
    }

    #[test]
    fn a_shard_keeps_a_grain_to_itself_which_the_check_for_room_adds() {
        // A grain of two records.
        let capacity = Capacity::new(2 * GRAIN, 1 << 40);
        let mut unpublished = Usage::default();
        for _ in 0..2 {
            add(&mut unpublished, 1);
            capacity.update(&mut unpublished);
        }
        assert_eq!(capacity.used(), (0, 0));
        add(&mut unpublished, 1);
        capacity.update(&mut unpublished);
        assert_eq!(capacity.used(), (3, 3 * 252));
        assert_eq!(unpublished.entries, 0);
        add(&mut unpublished, 2 * GRAIN - 3 - 2 * SHARDS);
        capacity.update(&mut unpublished);
        assert!(
            !capacity.has_room(SHARDS),
            "each shard may have two records more"
        );
        assert!(capacity.has_room(SHARDS - 1));
    }

    #[test]
    fn a_small_store_publishes_every_change() {
        let capacity = Capacity::new(2, 1 << 30);
        let mut unpublished = Usage::default();
        add(&mut unpublished, 1);
        capacity.update(&mut unpublished);
        assert!(capacity.has_room(SHARDS));
        add(&mut unpublished, 1);
        capacity.update(&mut unpublished);
        assert!(!capacity.has_room(0));
    }
}
