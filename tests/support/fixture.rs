//! An engine on a store, with controlled time, observer and faults.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use idem_harness::RedisServer;
use idem_runtime::clock::ManualClock;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::{RecordKey, Store};
use idem_runtime::{__private::KeyBuilder, CallBuilder, Engine, EngineBuilder, key::Operation};
use tokio::task::JoinHandle;

use crate::events::Events;
use crate::faulty::{Fault, Faulty, StoreOperation};
use crate::shop::connect;

/// The classification that a call starts with.
pub type Classified = idem_runtime::on_error::Classified;

/// One engine with its store, clock and observer.
#[derive(Debug)]
pub struct Fixture {
    /// The engine under test; its lease is 30 s.
    pub engine: Engine,
    /// Another engine with these settings on this store, as in another process.
    pub far: Engine,
    /// The engine's clock. It is stopped until a test moves it.
    pub clock: ManualClock,
    pub events: Events,
    /// The store as the engine accesses it.
    pub store: Faulty,
    prefix: String,
    back: Back,
}

#[derive(Debug)]
enum Back {
    Memory(MemoryStore, ManualClock),
    Redis(&'static RedisServer),
}

/// The server that the tests of this process share. It dies with the process.
pub fn redis() -> &'static RedisServer {
    static SERVER: OnceLock<RedisServer> = OnceLock::new();
    // On disk, because a server without persistence causes a warning.
    SERVER.get_or_init(|| RedisServer::builder().append_only_every_second().start())
}

fn engines(
    store: &Faulty,
    prefix: &str,
    clock: &ManualClock,
    events: &Events,
    set: impl Fn(EngineBuilder) -> EngineBuilder,
) -> [Engine; 2] {
    [(); 2].map(|()| {
        let builder = Engine::builder(store.clone()).prefix(prefix);
        let builder = set(builder.clock(clock.clone()).observer(events.clone()));
        builder.build().expect("the settings are within bounds")
    })
}

impl Fixture {
    pub fn memory() -> Self {
        let time = ManualClock::new();
        let store = MemoryStore::builder().clock(time.clone()).build();
        Self::new(Arc::new(store.clone()), Back::Memory(store, time))
    }

    /// A fixture on a real Redis.
    pub async fn redis() -> Self {
        let server = redis();
        let store = connect(server.url()).await.expect("connects");
        Self::new(Arc::new(store), Back::Redis(server))
    }

    fn new(store: Arc<dyn Store>, back: Back) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("test-{}-{number}", std::process::id());
        let store = Faulty::new(store);
        let (clock, events) = (ManualClock::new(), Events::default());
        let [engine, far] = engines(&store, &prefix, &clock, &events, |builder| builder);
        Self {
            engine,
            far,
            clock,
            events,
            store,
            prefix,
            back,
        }
    }

    /// The same fixture with other settings of the engine.
    pub fn with(mut self, set: impl Fn(EngineBuilder) -> EngineBuilder) -> Self {
        let (store, prefix) = (&self.store, &self.prefix);
        let engines = engines(store, prefix, &self.clock, &self.events, set);
        [self.engine, self.far] = engines;
        self
    }

    /// A call of the operation `pay` with key 7.
    pub fn pay(&self) -> CallBuilder<Classified> {
        self.engine.operation("pay").key(&7)
    }

    /// The same call in another process.
    pub fn pay_far(&self) -> CallBuilder<Classified> {
        self.far.operation("pay").key(&7)
    }

    /// The place of the record of [`pay`](Self::pay).
    pub fn key(&self) -> RecordKey {
        let digest = KeyBuilder::new("pay", 1024).key(&7).expect("a good key");
        RecordKey::new(self.prefix.clone().into(), Operation::new("pay"), digest)
    }

    /// Injects these faults into the next operations of this kind, one each.
    pub fn fail(&self, operation: StoreOperation, faults: impl IntoIterator<Item = Fault>) {
        self.store.fail(operation, faults);
    }

    /// The number of operations of this kind so far.
    pub fn count(&self, operation: StoreOperation) -> usize {
        self.store.count(operation)
    }

    /// Waits for a task, and advances the engines' time during its sleeps.
    pub async fn finished<T>(&self, mut task: JoinHandle<T>) -> T {
        // Shorter than any deadline of a command in flight.
        let pause = Duration::from_secs(1);
        loop {
            tokio::select! {
                biased;
                output = &mut task => return output.expect("the task ends well"),
                () = self.clock.sleeper_within(pause) => self.clock.advance(pause / 10),
            }
            // Tasks woken on this thread run first.
            tokio::task::yield_now().await;
        }
    }

    /// Advances the store's time alone, as in a paused or isolated process.
    pub fn pass_in_store(&self, by: Duration) {
        match &self.back {
            Back::Memory(_, time) => time.advance(by),
            Back::Redis(server) => {
                server.advance(by, &format!("{}:", self.prefix));
            }
        }
    }

    /// Puts bytes under the key of [`pay`](Self::pay).
    pub fn plant(&self, bytes: &[u8]) {
        let life = Duration::from_hours(1);
        match &self.back {
            Back::Memory(store, _) => {
                store.plant(&self.key(), Bytes::copy_from_slice(bytes), life);
            }
            Back::Redis(server) => {
                let millis = life.as_millis().to_string();
                let name = self.key().name();
                let set: [&[u8]; 5] = [b"SET", name.as_bytes(), bytes, b"PX", millis.as_bytes()];
                server.reply(&set);
            }
        }
    }
}

/// Runs each named test on every store: `memory::name` and `redis::name`.
#[macro_export]
macro_rules! on_every_store {
    ($($name:ident),+ $(,)?) => {
        mod memory {
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name($crate::fixture::Fixture::memory()).await;
                }
            )+
        }

        mod redis {
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name($crate::fixture::Fixture::redis().await).await;
                }
            )+
        }
    };
}
