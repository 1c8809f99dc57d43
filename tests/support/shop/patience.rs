//! Waiting for what must happen.

use std::future::Future;
use std::time::Duration;

use idem_harness::{HANG_LIMIT, RedisServer, TcpProxy};
use idem_runtime::store::redis::{RedisStore, RedisStoreBuilder};
use idem_runtime::store::{Store, StoreError};
use idem_runtime::{Engine, EngineBuilder};

use crate::events::Events;

/// The time limits of stores and engines in tests of other subjects.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A store for tests that are not about time: it waits for as long as a busy machine takes.
pub fn patient(store: RedisStoreBuilder) -> RedisStoreBuilder {
    store.connect_timeout(PATIENCE).response_timeout(PATIENCE)
}

pub async fn connect(url: impl AsRef<str>) -> Result<RedisStore, StoreError> {
    patient(RedisStore::builder(url.as_ref())).connect().await
}

pub async fn started() -> (RedisServer, RedisStore) {
    let server = RedisServer::start();
    let store = connect(server.url()).await;
    (server, store.expect("the server is up"))
}

pub fn proxied() -> (RedisServer, TcpProxy) {
    let server = RedisServer::start();
    let proxy = TcpProxy::start(server.addr());
    (server, proxy)
}

/// An engine whose retries outlast a busy machine's delays.
pub fn persistent(engine: EngineBuilder) -> EngineBuilder {
    engine.claim_deadline(PATIENCE).complete_deadline(PATIENCE)
}

/// An engine with default settings, but for its deadlines.
pub fn engine(store: impl Store) -> Engine {
    let engine = persistent(Engine::builder(store)).build();
    engine.expect("the settings agree")
}

/// Connects a store of little patience with a healthy server: a busy machine may keep it from that at first.
pub async fn connected(store: RedisStoreBuilder) -> RedisStore {
    let connecting = async {
        loop {
            match store.clone().connect().await {
                Ok(store) => return store,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        }
    };
    patiently("the store connects", connecting).await
}

/// Waits until something has happened so many times.
pub async fn happened(events: &Events, start: &str, times: usize) {
    patiently(start, events.wait_for(start, times)).await;
}

/// Awaits something that must happen.
pub async fn patiently<F: Future>(what: &str, work: F) -> F::Output {
    let outcome = tokio::time::timeout(HANG_LIMIT, work).await;
    outcome.unwrap_or_else(|_| panic!("not within {HANG_LIMIT:?}: {what}"))
}

/// Waits for something that another process does without telling us.
pub async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let polling = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    patiently(what, polling).await;
}

/// Waits until a cluster of this one server serves all its slots.
pub async fn cluster_is_up(server: &RedisServer) {
    let is_up = || {
        let state = server.cli(&["CLUSTER", "INFO"]);
        state.contains("cluster_state:ok")
    };
    until("the cluster is up", is_up).await;
}
