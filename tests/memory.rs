//! The memory store as a fixture of the conformance suite.

use std::sync::Arc;
use std::time::Duration;

use idem_runtime::clock::ManualClock;
use idem_runtime::conformance::{BoxFuture, Fixture, Plant};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::{RecordKey, Store};

/// A memory store of its own, with a clock that stands still.
#[derive(Debug)]
pub struct InMemory {
    store: MemoryStore,
    clock: ManualClock,
}

impl InMemory {
    /// A store with room for `max_entries` records.
    #[must_use]
    pub fn new(max_entries: usize) -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::builder()
            .clock(clock.clone())
            .max_entries(max_entries)
            .build();
        Self { store, clock }
    }
}

impl Fixture for InMemory {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn prefix(&self) -> Arc<str> {
        "memory".into()
    }

    fn advance(&self, by: Duration) -> BoxFuture<'_, ()> {
        self.clock.advance(by);
        Box::pin(async {})
    }

    fn plant<'a>(&'a self, key: &'a RecordKey, plant: Plant) -> BoxFuture<'a, bool> {
        let Plant::Bytes { bytes, life } = plant else {
            return Box::pin(async { false });
        };
        self.store.plant(key, bytes.into(), life);
        Box::pin(async { true })
    }

    fn peek<'a>(&'a self, key: &'a RecordKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        let bytes = self.store.peek(key);
        Box::pin(async { bytes.map(Into::into) })
    }

    fn scarce(&self) -> BoxFuture<'_, Option<Arc<dyn Fixture>>> {
        Box::pin(async { Some(Arc::new(Self::new(40)) as Arc<dyn Fixture>) })
    }
}
