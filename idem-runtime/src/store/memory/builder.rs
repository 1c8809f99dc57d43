//! The bounds of a memory store.

use std::sync::Arc;

use super::used::Room;
use super::{Inner, MemoryStore, SHARDS};
use crate::env::clock::{Clock, SystemClock};
use crate::env::striped::Padded;
use crate::store::{Listeners, Watchers};

/// The calendar time at the zero of this clock, in microseconds since 1970.
fn began_us(clock: &dyn Clock) -> u64 {
    let since = u64::try_from(clock.now().as_micros()).unwrap_or(u64::MAX);
    clock.calendar_us().saturating_sub(since)
}

/// Configures a [`MemoryStore`].
#[derive(Debug)]
#[must_use]
pub struct MemoryStoreBuilder {
    clock: Arc<dyn Clock>,
    max_entries: usize,
    max_bytes: usize,
}

impl MemoryStoreBuilder {
    pub(super) fn new() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            max_entries: 1_000_000,
            max_bytes: 1 << 30,
        }
    }

    /// The maximum number of records; default 1,000,000. A claim above it is refused.
    pub fn max_entries(mut self, max_entries: usize) -> Self {
        self.max_entries = max_entries;
        self
    }

    /// The maximum memory of the records, in bytes; default 1 GiB.
    ///
    /// Bookkeeping is included. A claim above it is refused; an answer of a running body is kept all the same.
    pub fn max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// The clock by which records and leases end; default the machine's.
    ///
    /// Waits and time-outs go by [that of the engine](crate::EngineBuilder::clock), which a test sets to the same: see
    /// [testing](crate::guide::testing).
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Builds the store.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        MemoryStore(Arc::new(Inner {
            parts: (0..SHARDS).map(|_| Padded::default()).collect(),
            began_us: began_us(&*self.clock),
            clock: self.clock,
            room: Room::new(self.max_entries, self.max_bytes),
            watchers: Watchers::default(),
            listeners: Listeners::default(),
        }))
    }
}
