//! The memory store as a fixture of the conformance suite.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use idem_conformance::{BoxFuture, Fixture, Plant};
use idem_runtime::clock::{Clock, ManualClock, Sleep, SystemClock};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::{RecordKey, Store};

/// A memory store of its own, with a stopped clock.
#[derive(Debug)]
pub struct InMemory {
    store: MemoryStore,
    clock: ManualClock,
    drift: Duration,
}

/// A running clock with a server's millisecond resolution, which tests can advance.
#[derive(Debug)]
struct Running(ManualClock);

impl Clock for Running {
    fn now(&self) -> Duration {
        let now = SystemClock.now().as_millis();
        Duration::from_millis(now.try_into().expect("not in 500 million years")) + self.0.now()
    }

    fn calendar(&self) -> SystemTime {
        SystemClock.calendar()
    }

    fn sleep_until(&self, moment: Duration) -> Sleep {
        SystemClock.sleep_until(moment.saturating_sub(self.0.now()))
    }
}

impl InMemory {
    /// A store with room for `max_entries` records.
    pub fn new(max_entries: usize) -> Self {
        let clock = ManualClock::new();
        Self::by(clock.clone(), clock, Duration::ZERO, max_entries)
    }

    /// The same with a running clock, like that of a server.
    pub fn running(max_entries: usize) -> Self {
        let clock = ManualClock::new();
        let drift = Duration::from_secs(20);
        Self::by(Running(clock.clone()), clock, drift, max_entries)
    }

    fn by(runs: impl Clock, clock: ManualClock, drift: Duration, max_entries: usize) -> Self {
        let store = MemoryStore::builder()
            .clock(runs)
            .max_entries(max_entries)
            .build();
        Self {
            store,
            clock,
            drift,
        }
    }

    pub fn memory(&self) -> MemoryStore {
        self.store.clone()
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

    fn drift(&self) -> Duration {
        self.drift
    }

    fn scarce(&self) -> BoxFuture<'_, Option<Arc<dyn Fixture>>> {
        let scarce = match self.drift {
            Duration::ZERO => Self::new(40),
            _ => Self::running(40),
        };
        Box::pin(async { Some(Arc::new(scarce) as Arc<dyn Fixture>) })
    }
}
