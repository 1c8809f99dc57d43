//! Counts the room that the records take.
//!
//! Every claim checks for room, and every write changes it. With one number for all parts, threads would contend for it
//! at each call. So a part keeps its changes to itself until they exceed a *grain*; the grains of all parts together
//! are under one percent of the bounds, and only if less room than that is left are the parts read one by one. A small
//! store has no grain, and publishes every change.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::SHARDS;
use crate::env::striped::Padded;

/// A change of the number of entries and bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    pub(super) entries: isize,
    pub(super) bytes: isize,
}

impl Change {
    pub(super) fn add(&mut self, other: Self) {
        self.entries += other.entries;
        self.bytes += other.bytes;
    }
}

/// The bounds, and the published counts.
pub(super) struct Room {
    pub(super) max_entries: usize,
    pub(super) max_bytes: usize,
    /// Padded against false sharing with the bounds, which are only read.
    told: Padded<Told>,
}

#[derive(Default)]
struct Told {
    entries: AtomicUsize,
    bytes: AtomicUsize,
}

/// The share of the bounds below which a part keeps its changes to itself.
const GRAIN: usize = SHARDS * 128;

impl Room {
    pub(super) fn new(max_entries: usize, max_bytes: usize) -> Self {
        Self {
            max_entries,
            max_bytes,
            told: Padded::default(),
        }
    }

    /// Adds a change of a part, and publishes it if enough are unpublished (`untold`).
    pub(super) fn count(&self, untold: &mut Change, change: Change) {
        untold.add(change);
        let much = |change: isize, max: usize| change.unsigned_abs() > max / GRAIN;
        if much(untold.entries, self.max_entries) || much(untold.bytes, self.max_bytes) {
            self.tell(untold);
        }
    }

    /// Publishes all changes of a part.
    pub(super) fn tell(&self, untold: &mut Change) {
        let Change { entries, bytes } = std::mem::take(untold);
        // Adding the two's complement subtracts.
        (self.told.entries).fetch_add(entries.cast_unsigned(), Ordering::Relaxed);
        (self.told.bytes).fetch_add(bytes.cast_unsigned(), Ordering::Relaxed);
    }

    /// The published entries and bytes.
    pub(super) fn told(&self) -> (usize, usize) {
        (
            self.told.entries.load(Ordering::Relaxed),
            self.told.bytes.load(Ordering::Relaxed),
        )
    }

    /// Whether there is room for another record, if `silent` parts have unpublished changes.
    pub(super) fn is_left(&self, silent: usize) -> bool {
        let (entries, bytes) = self.told();
        let untold = |max: usize| silent * (max / GRAIN);
        entries.saturating_add(untold(self.max_entries)) < self.max_entries
            && bytes.saturating_add(untold(self.max_bytes)) < self.max_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Change = Change {
        entries: 1,
        bytes: 252,
    };

    #[test]
    fn a_part_keeps_little_to_itself_and_that_is_reckoned_with() {
        // Two for each part.
        let room = Room::new(2 * GRAIN, 1 << 30);
        let mut untold = Change::default();
        room.count(&mut untold, ONE);
        room.count(&mut untold, ONE);
        assert_eq!(room.told(), (0, 0));
        room.count(&mut untold, ONE);
        assert_eq!((room.told(), untold.entries), ((3, 3 * 252), 0));
        let most = Change {
            entries: (2 * GRAIN - 3 - 2 * SHARDS).cast_signed(),
            bytes: 0,
        };
        room.count(&mut untold, most);
        assert!(!room.is_left(SHARDS), "all parts may have two more");
        assert!(room.is_left(SHARDS - 1));
    }

    #[test]
    fn a_small_store_tells_of_every_change() {
        let room = Room::new(2, 1 << 30);
        let mut untold = Change::default();
        room.count(&mut untold, ONE);
        assert!(room.is_left(SHARDS));
        room.count(&mut untold, ONE);
        assert!(!room.is_left(0));
    }
}
