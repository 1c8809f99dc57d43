//! How much room the records take.
//!
//! Every claim asks whether there is room, and every write changes how much there is. Were that one number
//! for all, threads would wait for it at each call. So a part keeps to itself what it has changed, until
//! that is more than a *grain*; the grains of all parts together are under one percent of the bounds, and
//! only where less than that is left are they asked one by one. A small store has no grain, and tells of
//! every change.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::SHARDS;
use crate::env::striped::Padded;

/// How many entries and bytes more or less there are than before.
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

/// The bounds, and how much is taken of what they leave.
pub(super) struct Room {
    pub(super) max_entries: usize,
    pub(super) max_bytes: usize,
    /// Apart from the rest, which is only read.
    told: Padded<Told>,
}

#[derive(Default)]
struct Told {
    entries: AtomicUsize,
    bytes: AtomicUsize,
}

/// A part keeps to itself this part of the bounds at most.
const GRAIN: usize = SHARDS * 128;

impl Room {
    pub(super) fn new(max_entries: usize, max_bytes: usize) -> Self {
        Self {
            max_entries,
            max_bytes,
            told: Padded::default(),
        }
    }

    /// Counts what a part has changed, now or later: `untold` is what it has not told yet.
    pub(super) fn count(&self, untold: &mut Change, change: Change) {
        untold.add(change);
        let much = |change: isize, max: usize| change.unsigned_abs() > max / GRAIN;
        if much(untold.entries, self.max_entries) || much(untold.bytes, self.max_bytes) {
            self.tell(untold);
        }
    }

    /// Counts all that a part has changed.
    pub(super) fn tell(&self, untold: &mut Change) {
        let Change { entries, bytes } = std::mem::take(untold);
        // To subtract is to add the complement.
        (self.told.entries).fetch_add(entries.cast_unsigned(), Ordering::Relaxed);
        (self.told.bytes).fetch_add(bytes.cast_unsigned(), Ordering::Relaxed);
    }

    /// Entries and bytes, as far as they were told.
    pub(super) fn told(&self) -> (usize, usize) {
        (
            self.told.entries.load(Ordering::Relaxed),
            self.told.bytes.load(Ordering::Relaxed),
        )
    }

    /// Whether there is room for another record, if so many parts have not told everything.
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
