//! Operations whose names a store keeps only in part.

use idem_harness::{RedisServer, TestDir};
use idem_runtime::store::sql::Sqlite;
use idem_runtime::{Engine, Error, admin::EntryFilter};
use idem_tests::{shop, sql};

use super::filled::engine;

/// A possible default of the attribute, longer than a column.
const LONG: &str = "shop::payments::providers::somewhere::far::away::charge_card";
const LONG_TOO: &str = "shop::payments::providers::somewhere::far::away::refund_card";

async fn unknown(engine: &Engine, operation: &str) {
    let call = engine
        .operation(operation.to_owned())
        .key(&7)
        .on_error(idem_runtime::on_error::Unknown);
    let paid: Result<u32, Box<dyn std::error::Error + Send + Sync>> =
        call.run(|_| async { Err("no reply".into()) }).await;
    paid.unwrap_err();
}

async fn answer(engine: &Engine, operation: &str) -> u32 {
    let call = engine.operation(operation.to_owned()).key(&7);
    let paid: Result<u32, Error> = call.run(|_| async { unreachable!("it is settled") }).await;
    paid.unwrap()
}

/// Resolves the records listed by this name, and returns their listed operations.
async fn settle_all(engine: &Engine, operation: Option<&str>) -> Vec<String> {
    let entries = engine.entries().state(EntryFilter::Unknown);
    let mut entries = match operation {
        Some(operation) => entries.operation(operation.to_owned()),
        None => entries,
    };
    let mut called = Vec::new();
    while let Some(page) = entries.next_page().await.unwrap() {
        assert_eq!(page.unreadable(), 0);
        for entry in page {
            called.push(entry.operation().to_owned());
            entry.resolve(&7_u32).await.unwrap();
        }
    }
    called.sort();
    called
}

#[tokio::test]
async fn names_that_begin_alike_are_listed_together_in_redis() {
    let server = RedisServer::start();
    let engine = engine(shop::connect(server.url()).await.unwrap());
    for operation in [LONG, LONG_TOO, "zahlung.ausführen"] {
        unknown(&engine, operation).await;
    }
    // Neither has the name of the other.
    assert_eq!(settle_all(&engine, Some(LONG)).await, [&LONG[..48]; 2]);
    assert_eq!(settle_all(&engine, None).await, ["zahlung.ausf__hren"]);
    for operation in [LONG, LONG_TOO, "zahlung.ausführen"] {
        assert_eq!(answer(&engine, operation).await, 7);
    }
}

#[tokio::test]
async fn names_are_those_of_sql_unless_they_are_too_long() {
    let dir = TestDir::new("operations").unwrap();
    let url = format!("sqlite:{}?mode=rwc", dir.path().join("idem.db").display());
    let store = sql::connect::<Sqlite>(url).await;
    store.migrate().await.unwrap();
    let engine = engine(store);
    for operation in [LONG, LONG_TOO, "zahlung.ausführen"] {
        unknown(&engine, operation).await;
    }
    assert_eq!(settle_all(&engine, Some(LONG)).await, [LONG]);
    let rest = [LONG_TOO, "zahlung.ausführen"];
    assert_eq!(settle_all(&engine, None).await, rest);
    for name in [&*"a".repeat(300), "zero\0byte"] {
        unknown(&engine, name).await;
        let unknown = engine.entries().state(EntryFilter::Unknown);
        let page = unknown.page_size(10).next_page().await.unwrap().unwrap();
        assert_eq!((page.entries().len(), page.unreadable()), (0, 1));
        assert_eq!(settle_all(&engine, Some(name)).await, [name]);
        assert_eq!(answer(&engine, name).await, 7);
    }
}
