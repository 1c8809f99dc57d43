//! Warnings to an operator about a fast store that other clients can write to.

use std::future::pending;

use idem_runtime::store::layered::LayeredStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Engine, EngineBuilder, codec::EncryptionKeys};
use idem_tests::events::Events;

use crate::prelude::*;

/// The warnings of an engine on this store.
fn warnings(
    store: impl Store,
    settings: impl FnOnce(EngineBuilder) -> EngineBuilder,
) -> Vec<String> {
    let events = Events::default();
    let engine = settings(Engine::builder(store).observer(events.clone()));
    engine.build().unwrap();
    let all = events.all().into_iter();
    all.filter(|event| event.contains("can give any answer"))
        .collect()
}

/// An unconnected store may turn out to be any server.
fn shared() -> impl Store {
    let fast = LazyStore::new(pending::<Result<MemoryStore, _>>);
    LayeredStore::new(fast, MemoryStore::new())
}

#[tokio::test]
async fn a_shared_fast_store_without_encryption_is_warned_about() {
    let told = warnings(shared(), |engine| engine);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("`EngineBuilder::encrypt`"), "{told:?}");
    let keys = EncryptionKeys::new(7, [7; 32]);
    assert_eq!(warnings(shared(), |engine| engine.encrypt(keys)), [""; 0]);
}

#[tokio::test]
async fn a_fast_store_in_the_process_needs_no_encryption() {
    let private = LayeredStore::new(MemoryStore::new(), MemoryStore::new());
    assert_eq!(warnings(private, |engine| engine), [""; 0]);
    assert_eq!(warnings(MemoryStore::new(), |engine| engine), [""; 0]);
}

/// The Redis keeps nothing on disk, evicts and has too few replicas: what it forgets costs time only.
#[tokio::test]
async fn a_redis_in_front_that_may_forget_is_not_warned_about() {
    let server = RedisServer::builder()
        .arg("--maxmemory", "1gb")
        .arg("--maxmemory-policy", "allkeys-lru")
        .start();
    let redis = RedisStore::builder(server.url()).allow_eviction();
    let redis = redis.connect().await.unwrap();
    assert_eq!(Store::warnings(&redis).len(), 2);
    let front = redis.clone();
    let lazy = LazyStore::new(move || {
        let front = front.clone();
        async { Ok(front) }
    });
    let lazy = LayeredStore::new(lazy, MemoryStore::new());
    assert_eq!(lazy.warnings(), [""; 0]);
    assert_eq!(
        LayeredStore::new(redis, MemoryStore::new()).warnings(),
        [""; 0]
    );
}

#[tokio::test]
async fn a_redis_in_front_that_takes_no_copies_is_warned_about() {
    let primary = RedisServer::start();
    let server = RedisServer::builder()
        .args(["--replicaof", "127.0.0.1", &primary.port().to_string()])
        .start();
    let redis = RedisStore::connect(server.url()).await.unwrap();
    let told = LayeredStore::new(redis, MemoryStore::new()).warnings();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("no answer is copied to it"), "{told:?}");
}
