//! `ttl = forever`.

use idem_harness::RedisServer;
use idem_runtime::FOREVER;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::redis::RedisStore;

use crate::prelude::*;

const YEAR: Duration = Duration::from_hours(24 * 365);

on_each_database!(an_answer_is_kept_for_ever);

async fn an_answer_is_kept_for_ever<B: Kind>() {
    let (_test_database, store) = opened::<B>().await;
    let engines = [
        Engine::builder(store.clone()).ttl(FOREVER).build().unwrap(),
        Engine::new(store.clone()),
    ];
    for (name, engine) in ["default", "call"].iter().zip(&engines) {
        let call = || match *name {
            "call" => engine.operation("keep").key(name).ttl(FOREVER),
            _ => engine.operation("keep").key(name),
        };
        let first: Result<u32, Error> = call().run(async |_| Ok(7)).await;
        assert_eq!(first, Ok(7));
        store.age(YEAR * 20).await.unwrap();
        let purged = store.purge(Purge::default()).await.unwrap();
        assert_eq!(purged, 0);
        let again: Result<u32, Error> = call().run(async |_| unreachable!("answered")).await;
        assert_eq!(again, Ok(7));
        let entry = call().entry().await.unwrap().unwrap();
        let age = entry.age();
        assert!(age >= YEAR * 20 && age < YEAR * 21, "{age:?}");
        assert!(entry.left() > YEAR * 1_000, "{:?}", entry.left());
    }
}

async fn refuses(store: impl Store + Clone) {
    let built = Engine::builder(store.clone()).ttl(FOREVER).build();
    let error = built.expect_err("it cannot");
    assert_eq!(error.kind(), &ErrorKind::InvalidPolicy);
    let engine = Engine::new(store);
    let call = engine.operation("keep").key(&1).ttl(FOREVER);
    let answer: Result<u32, Error> = call.run(async |_| unreachable!("refused")).await;
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::InvalidPolicy);
    assert!(error.to_string().contains("forever"), "{error}");
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn other_stores_refuse() {
    refuses(MemoryStore::new()).await;
    let server = RedisServer::start();
    refuses(RedisStore::connect(&server.url()).await.unwrap()).await;
}
