//! A process: an engine on two layers.

use std::sync::Arc;

use idem_harness::RedisServer;
use idem_runtime::store::RecordKey;
use idem_runtime::store::author::ReadCache;
use idem_runtime::store::layered::{LayeredStats, LayeredStore, LayeredStoreBuilder};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::testing::{Faulty, StoreOperation};
use idem_runtime::{__private::KeyBuilder, CallBuilder, Engine, OnRunning, key::Operation};
use idem_tests::events::Events;
use idem_tests::payment::{PayError, Receipt, Runs};
use idem_tests::shop::{PATIENCE, connect, persistent, until};

pub(crate) const PREFIX: &str = "fixture";
const PAY: &str = "pay";

pub(crate) type Classified = idem_runtime::__private::Classified;

pub(crate) struct Fixture {
    pub(crate) engine: Engine,
    pub(crate) store: LayeredStore,
    pub(crate) events: Events,
    pub(crate) runs: Runs,
}

impl Fixture {
    /// On servers of its own.
    pub(crate) async fn alone() -> (RedisServer, Faulty, Self) {
        let (server, durable) = (RedisServer::start(), memory());
        let fixture = Self::on(&server, &durable).await;
        (server, durable, fixture)
    }

    /// On a Redis that is up. Its deadlines suit a busy machine.
    pub(crate) async fn on(server: &RedisServer, durable: &Faulty) -> Self {
        let fast = connect(server.url()).await.unwrap();
        Self::with(fast, durable, patient)
    }

    pub(crate) fn with(
        fast: impl ReadCache,
        durable: &Faulty,
        set: impl FnOnce(LayeredStoreBuilder) -> LayeredStoreBuilder,
    ) -> Self {
        let store = LayeredStore::over(Arc::new(fast), Arc::new(durable.clone()));
        let store = set(store).build();
        let events = Events::default();
        let engine = persistent(Engine::builder(store.clone()))
            .prefix(PREFIX)
            .observer(events.clone())
            .on_running(OnRunning::Wait(PATIENCE))
            .build();
        Self {
            engine: engine.unwrap(),
            store,
            events,
            runs: Runs::default(),
        }
    }

    /// Counts bodies together with those of another process.
    pub(crate) fn sharing(mut self, other: &Self) -> Self {
        self.runs = other.runs.clone();
        self
    }

    pub(crate) fn call(&self, key: &str) -> CallBuilder<Classified> {
        self.engine.operation(PAY).key(key).fingerprint(key)
    }

    pub(crate) async fn pay(&self, key: &str) -> Result<Receipt, PayError> {
        let body = async |_| {
            let run = self.runs.start();
            Ok(Receipt { run })
        };
        self.call(key).run(body).await
    }

    pub(crate) fn stats(&self) -> LayeredStats {
        self.store.stats()
    }

    /// Waits until all pending copies are made.
    pub(crate) async fn settle(&self) {
        until("the copies are made", || self.stats().writing == 0).await;
    }

    pub(crate) fn key(name: &str) -> RecordKey {
        let digest = KeyBuilder::new(PAY, 64).key(&name).unwrap();
        RecordKey::new(PREFIX.into(), Operation::new(PAY), digest)
    }

    /// The name of its copy while no answered key was reset.
    pub(crate) fn copy_name(name: &str) -> String {
        let key = Self::key(name);
        let prefix = format!("{PREFIX}:+0");
        RecordKey::new(prefix.into(), key.operation().clone(), *key.digest()).name()
    }
}

/// Claims and completions that a durable store was sent.
pub(crate) fn asked(durable: &Faulty) -> (usize, usize) {
    let sent = [StoreOperation::Claim, StoreOperation::Complete].map(|kind| durable.count(kind));
    sent.into()
}

pub(crate) fn memory() -> Faulty {
    Faulty::new(MemoryStore::new())
}

/// Longer than anything takes.
pub(crate) fn patient(store: LayeredStoreBuilder) -> LayeredStoreBuilder {
    store.patience(PATIENCE)
}
