//! Consumers whose transactions are those of a pool of tokio-postgres.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, Pool};
use idem_consumers::{Consumer, ConsumerError, MemoryQueue, Raw, TxPool as _};
use idem_harness::PostgresServer;
use idem_runtime::store::sql::{Postgres, SqlSession as _};
use idem_runtime::{Context, Engine, Error, Policy};
use idem_tests::shop::engine;
use idem_tests::sql::connect;
use tokio::sync::Notify;
use tokio_postgres::{Client, NoTls};

use super::desk::BillError;

/// A pool of one connection, and a store of that pool.
async fn pool_and_engine(server: &PostgresServer) -> (Pool, Engine) {
    let manager = Manager::new(server.url().parse().unwrap(), NoTls);
    let pool = Pool::builder(manager).max_size(1).build().unwrap();
    let store = connect::<Postgres>(&pool).await;
    store.migrate().await.unwrap();
    server.execute("CREATE TABLE bills (id text)");
    (pool, engine(store))
}

fn one_message() -> MemoryQueue {
    let queue = MemoryQueue::new();
    queue.send("m-1", "m-1");
    queue.close();
    queue
}

async fn write(db: &Client, id: &[u8]) {
    let id = str::from_utf8(id).unwrap();
    let insert = "INSERT INTO bills VALUES ($1)";
    assert_eq!(db.execute(insert, &[&id]).await.unwrap(), 1);
}

/// The pool has its connection back without the transaction.
#[tokio::test]
async fn a_handler_that_is_dropped_at_shutdown_leaves_the_pool_no_transaction() {
    let server = PostgresServer::start();
    let (pool, engine) = pool_and_engine(&server).await;
    let short = Policy::new().lease(Duration::from_secs(1));
    let consumer = Consumer::new(engine, "bills.collect").policy(short);
    let written = Arc::new(Notify::new());
    let (handler_has, shutdown) = (Arc::clone(&written), written.notified());
    let consumer = consumer.drain(Duration::ZERO).in_tx(pool.clone());
    let handled = consumer.run_until(
        one_message(),
        move |Raw(id), db, _| {
            let written = Arc::clone(&handler_has);
            Box::pin(async move {
                write(db, &id).await;
                written.notify_one();
                std::future::pending::<Result<(), BillError>>().await
            })
        },
        shutdown,
    );
    assert_eq!(handled.await.unwrap().abandoned, 1);
    let client = pool.get().await.unwrap();
    write(&client, b"theirs").await;
    assert_eq!(server.execute("SELECT id FROM bills"), "theirs");
}

/// It is part of the handler's transaction.
#[tokio::test]
async fn a_call_within_a_handler_takes_the_transaction_of_its_message() {
    let server = Arc::new(PostgresServer::start());
    let (pool, engine) = pool_and_engine(&server).await;
    let consumer = Consumer::new(engine.clone(), "bills.collect").in_tx(pool);
    let handled = consumer.run(one_message(), move |Raw(id), db, _| {
        let (engine, server) = (engine.clone(), Arc::clone(&server));
        Box::pin(async move {
            let call = engine.operation("bills.write").key("m-1").in_tx(db);
            let written = call.run(async |db, _: Context| {
                write(db, &id).await;
                Ok::<_, Error>(())
            });
            written.await.unwrap();
            let others = server.execute("SELECT count(*) FROM bills");
            assert_eq!(others, "0", "it is committed before its message");
            Ok::<_, BillError>(())
        })
    });
    assert_eq!(handled.await.unwrap().acknowledged, 1);
}

#[tokio::test]
async fn a_closed_pool_stops_the_consumer() {
    let server = PostgresServer::start();
    let (pool, engine) = pool_and_engine(&server).await;
    let consumer = Consumer::new(engine, "bills.collect").in_tx(pool.clone());
    pool.close();
    let handled = consumer.run(one_message(), |_: Raw, _, _| {
        Box::pin(async { Ok::<_, BillError>(()) })
    });
    let end = handled.await.unwrap_err();
    assert!(matches!(end, ConsumerError::Pool(_)), "{end:?}");
}

/// PostgreSQL rolls an aborted transaction back at its `COMMIT`, without an error.
#[tokio::test]
async fn an_aborted_transaction_is_not_committed() {
    let server = PostgresServer::start();
    let (pool, _engine) = pool_and_engine(&server).await;
    let mut tx = pool.acquire().await.unwrap();
    assert_eq!(tx.depth(), 0);
    tx.begin().await.unwrap();
    write(&tx, b"lost").await;
    tx.batch_execute("SELECT 1 / 0").await.unwrap_err();
    let refused = tx.commit().await.unwrap_err();
    assert!(refused.is_of_server(), "{refused:?}");
    assert_eq!(tx.depth(), 1);
    tx.rollback().await.unwrap();
    assert_eq!(tx.depth(), 0);
    assert_eq!(server.execute("SELECT count(*) FROM bills"), "0");
}
