//! `ttl = forever`.

use idem_harness::RedisServer;
use idem_runtime::FOREVER;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::redis::RedisStore;

use super::prelude::*;

const YEAR: Duration = Duration::from_hours(24 * 365);

on_each_database!(an_answer_is_kept_for_ever);

async fn an_answer_is_kept_for_ever<B: Database>() {
    let (_test_database, store) = opened::<B>().await;
    let forever = Engine::builder(store.clone()).ttl(FOREVER).build().unwrap();
    let default = Engine::new(store.clone());
    let first = || forever.operation("keep").key("default");
    let second = || default.operation("keep").key("call").ttl(FOREVER);
    let calls = || [first(), second()];
    for call in calls() {
        let answer: Result<u32, Error> = call.run(async |_| Ok(7)).await;
        assert_eq!(answer, Ok(7));
    }
    store.age(YEAR * 20).await.unwrap();
    assert_eq!(store.purge(Purge::default()).await.unwrap(), 0);
    for call in calls() {
        let answer: Result<u32, Error> = call.run(async |_| unreachable!("answered")).await;
        assert_eq!(answer, Ok(7));
    }
    for call in calls() {
        let entry = call.entry().await.unwrap().unwrap();
        let age = entry.age();
        assert!(age >= YEAR * 20 && age < YEAR * 21, "{age:?}");
        assert!(entry.left() > YEAR * 1_000, "{:?}", entry.left());
    }
}

#[tokio::test]
async fn other_stores_refuse() {
    let server = RedisServer::start();
    let redis = RedisStore::connect(&server.url()).await.unwrap();
    let stores: [Arc<dyn Store>; 2] = [Arc::new(MemoryStore::new()), Arc::new(redis)];
    for store in stores {
        let built = Engine::builder(Arc::clone(&store)).ttl(FOREVER).build();
        assert_eq!(built.unwrap_err().kind(), &ErrorKind::InvalidPolicy);
        let engine = Engine::new(store);
        let call = engine.operation("keep").key(&1).ttl(FOREVER);
        let answer: Result<u32, Error> = call.run(async |_| unreachable!("refused")).await;
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::InvalidPolicy);
        assert!(error.to_string().contains("forever"), "{error}");
        assert!(!error.is_retryable());
    }
}
