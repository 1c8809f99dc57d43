//! Operations that a listing refuses, and its continuation after a fault.

use std::num::NonZeroU16;
use std::sync::Arc;

use idem_harness::RedisServer;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Engine, ErrorKind, admin::EntryFilter, store::Store};
use idem_tests::faulty::{Fault, Faulty, StoreOperation};

use super::filled::{PREFIX, engine, fill};

#[tokio::test]
async fn a_cursor_of_another_listing_is_refused() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    fill(&store, PREFIX, 10..20).await;
    let other = Engine::builder(Arc::clone(&store)).prefix("shop-2").build();
    let engine = engine(store);
    let page = engine
        .entries()
        .page_size(3)
        .next_page()
        .await
        .unwrap()
        .unwrap();
    let cursor = page.cursor().unwrap();
    assert!(cursor.len() <= 200, "{cursor}");
    let tampered = format!("{cursor}x");
    for entries in [
        other.unwrap().entries().after(cursor),
        engine.entries().operation("pay").after(cursor),
        engine.entries().after(&cursor[1..]),
        engine.entries().after(tampered),
        engine.entries().after(""),
    ] {
        let error = entries.count().await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidCursor);
        assert!(!error.is_retryable());
    }
    let rest = engine.entries().after(cursor).state(EntryFilter::Any);
    assert_eq!(rest.count().await.unwrap(), 7);
}

#[tokio::test]
async fn exhausted_records_of_unlimited_attempts_take_a_number() {
    let engine = Engine::builder(MemoryStore::new())
        .max_attempts(None)
        .build()
        .unwrap();
    let exhausted = || engine.entries().state(EntryFilter::Exhausted);
    let error = exhausted().count().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidPolicy, "{error}");
    let three = exhausted().min_attempts(NonZeroU16::new(3).unwrap());
    assert_eq!(three.count().await.unwrap(), 0);
}

#[tokio::test]
async fn a_listing_goes_on_after_a_fault() {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    fill(&memory, PREFIX, 10..60).await;
    let store = Faulty::new(memory);
    let engine = engine(store.clone());
    store.fail(
        StoreOperation::List,
        [Fault::None, Fault::Lost, Fault::ReplyLost, Fault::Twice],
    );
    assert_eq!(
        engine.entries().count().await.unwrap(),
        50,
        "it is sent again"
    );
    let mut entries = engine.entries().page_size(50);
    store.fail(
        StoreOperation::List,
        [Fault::None, Fault::None, Fault::Refused],
    );
    let error = entries.next_page().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::StoreUnavailable, "{error}");
    let page = entries.next_page().await.unwrap().unwrap();
    assert_eq!(page.entries().len(), 50, "what was found before is in it");
    assert!(entries.next_page().await.unwrap().is_none());
}

#[tokio::test]
async fn a_user_without_the_right_to_scan_gets_its_name() {
    let rules = "on >secret ~shop* &shop* +@all -scan";
    let server = RedisServer::builder().acl_user("app", rules).start();
    let store = RedisStore::builder(server.url_as("app", "secret")).checked_prefix(PREFIX);
    let engine = engine(store.connect().await.unwrap());
    let error = engine.entries().count().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::StoreUnavailable);
    assert!(
        !error.is_retryable() && error.to_string().contains("`+scan`"),
        "{error}"
    );
}
