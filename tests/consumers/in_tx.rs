//! Consumers whose record, rows and answer are committed in one transaction.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idem_harness::{MariaDbServer, PostgresServer, TestDir};
use idem_runtime::consumer::{
    BrokerError, Consumer, ConsumerError, DeadLetterReason, Delivery, MemoryDelivery, MemoryQueue,
    Raw, Source, Summary, Verdict,
};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::sql::{MySqlStore, PostgresStore, SqliteStore};
use idem_runtime::{Classify, Context, Engine, ErrorKind, Policy};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, MySqlPool, PgConnection, PgPool, SqlitePool};
use tokio::sync::Notify;

#[derive(Debug, Deserialize, Serialize, Classify)]
enum BillError {
    #[class(business)]
    NoSuchAccount,
    #[class(system)]
    BankDown,
    #[class(unknown)]
    TimedOut,
}

type Collected = Result<(), BillError>;

/// A queue whose broker does not count deliveries.
struct Uncounted(MemoryQueue);
struct UncountedDelivery(MemoryDelivery);

impl Source for Uncounted {
    type Delivery = UncountedDelivery;

    async fn next(&mut self) -> Result<Option<UncountedDelivery>, BrokerError> {
        Ok(self.0.next().await?.map(UncountedDelivery))
    }
}

impl Delivery for UncountedDelivery {
    fn id(&self) -> Option<Cow<'_, str>> {
        self.0.id()
    }

    fn attempt(&self) -> Option<u32> {
        None
    }

    fn payload(&self) -> &[u8] {
        self.0.payload()
    }

    async fn extend(&self, time: Duration) -> Result<(), BrokerError> {
        self.0.extend(time).await
    }

    async fn settle(self, verdict: Verdict) -> Result<(), BrokerError> {
        self.0.settle(verdict).await
    }
}

/// A database with a table of bills, a queue, and a count of bodies.
struct Desk {
    // Before the server, so that its connections are closed first.
    pool: PgPool,
    engine: Engine,
    server: PostgresServer,
    queue: MemoryQueue,
    bodies: Arc<AtomicU32>,
}

impl Desk {
    async fn new() -> Self {
        let server = PostgresServer::start();
        let store = PostgresStore::connect(&server.url()).await.unwrap();
        store.migrate().await.unwrap();
        let pool = PgPool::connect(&server.url()).await.unwrap();
        let table = sqlx::query("CREATE TABLE bills (id text)");
        table.execute(&pool).await.unwrap();
        Self {
            pool,
            engine: Engine::new(store),
            server,
            queue: MemoryQueue::new(),
            bodies: Arc::default(),
        }
    }

    fn consumer(&self) -> Consumer {
        Consumer::new(self.engine.clone(), "bills.collect").retry_after(Duration::from_millis(10))
    }

    /// Consumes the closed queue with a handler that writes a row and ends as the number of its body says.
    async fn run<S: Source>(
        &self,
        source: S,
        consumer: Consumer,
        end: fn(u32) -> Collected,
    ) -> Summary {
        self.queue.close();
        let bodies = Arc::clone(&self.bodies);
        let consumer = consumer.in_tx(self.pool.clone());
        let handled = consumer.run(source, move |Raw(id), db, _| {
            let bodies = Arc::clone(&bodies);
            Box::pin(async move {
                write(db, &id).await;
                end(bodies.fetch_add(1, Ordering::Relaxed) + 1)
            })
        });
        handled.await.unwrap()
    }

    fn bodies(&self) -> u32 {
        self.bodies.load(Ordering::Relaxed)
    }

    async fn rows(&self) -> i64 {
        let rows = sqlx::query_scalar("SELECT count(*) FROM bills");
        rows.fetch_one(&self.pool).await.unwrap()
    }
}

async fn write(db: &mut PgConnection, payload: &[u8]) {
    let row = sqlx::query("INSERT INTO bills VALUES ($1)").bind(String::from_utf8_lossy(payload));
    row.execute(db).await.unwrap();
}

fn dead(reason: DeadLetterReason) -> Vec<(String, DeadLetterReason)> {
    vec![("m-1".to_owned(), reason)]
}

#[tokio::test]
async fn messages_that_were_sent_often_write_their_row_once() {
    let desk = Desk::new().await;
    for message in 0..200 {
        let id = format!("m-{}", message % 20);
        desk.queue.send(&id, &id);
    }
    let summary = desk
        .run(desk.queue.clone(), desk.consumer(), |_| Ok(()))
        .await;
    assert_eq!((summary.acknowledged, summary.retried), (200, 0));
    assert_eq!((desk.bodies(), desk.rows().await), (20, 20));
}

#[tokio::test]
async fn a_system_error_undoes_the_rows_and_uses_up_an_attempt() {
    for counted in [true, false] {
        let desk = Desk::new().await;
        desk.queue.send("m-1", "m-1");
        let (queue, consumer) = (desk.queue.clone(), desk.consumer().dead_letter_after(3));
        let end = |_| Err(BillError::BankDown);
        if counted {
            desk.run(queue, consumer, end).await;
        } else {
            desk.run(Uncounted(queue), consumer, end).await;
        }
        assert_eq!((desk.bodies(), desk.rows().await), (3, 0), "{counted}");
        assert_eq!(desk.queue.dead_letters(), dead(DeadLetterReason::Exhausted));
    }
}

#[tokio::test]
async fn a_handler_that_panics_uses_up_its_attempts() {
    let desk = Desk::new().await;
    desk.queue.send("m-1", "m-1");
    let consumer = desk.consumer().dead_letter_after(2);
    let end = |body| panic!("body {body}");
    desk.run(desk.queue.clone(), consumer, end).await;
    assert_eq!((desk.bodies(), desk.rows().await), (2, 0));
    assert_eq!(desk.queue.dead_letters(), dead(DeadLetterReason::Exhausted));
}

#[tokio::test]
async fn a_later_attempt_commits_its_rows_alone() {
    let desk = Desk::new().await;
    desk.queue.send("m-1", "m-1");
    let end = |body| {
        if body < 3 {
            Err(BillError::BankDown)
        } else {
            Ok(())
        }
    };
    let summary = desk.run(desk.queue.clone(), desk.consumer(), end).await;
    assert_eq!((summary.retried, summary.acknowledged), (2, 1));
    assert_eq!((desk.bodies(), desk.rows().await), (3, 1));
}

/// As after acknowledgements that were lost.
#[tokio::test]
async fn deliveries_of_a_finished_message_use_up_no_attempt() {
    let desk = Desk::new().await;
    for _ in 0..10 {
        desk.queue.send("m-1", "m-1");
    }
    let consumer = desk.consumer().dead_letter_after(2).concurrency(1);
    let source = Uncounted(desk.queue.clone());
    let summary = desk.run(source, consumer, |_| Ok(())).await;
    assert_eq!((summary.acknowledged, summary.dead_letters), (10, 0));
    assert_eq!((desk.bodies(), desk.rows().await), (1, 1));
}

#[tokio::test]
async fn kept_errors_undo_the_rows_and_run_no_body_again() {
    for (end, reason) in [
        (
            (|_| Err(BillError::NoSuchAccount)) as fn(u32) -> Collected,
            DeadLetterReason::Business,
        ),
        (|_| Err(BillError::TimedOut), DeadLetterReason::Unknown),
    ] {
        let desk = Desk::new().await;
        desk.queue.send("m-1", "m-1");
        desk.queue.send("m-1", "m-1");
        let summary = desk.run(desk.queue.clone(), desk.consumer(), end).await;
        assert_eq!((summary.dead_letters, desk.bodies()), (2, 1));
        assert_eq!(desk.rows().await, 0);
        assert_eq!(desk.queue.dead_letters()[1..], dead(reason));
    }
}

/// Its transaction is rolled back, and the message is delivered again.
#[tokio::test]
async fn a_handler_that_is_dropped_at_shutdown_commits_nothing() {
    let desk = Desk::new().await;
    desk.queue.send("m-1", "m-1");
    let written = Arc::new(Notify::new());
    let consumer = desk.consumer().drain(Duration::ZERO);
    let consumer = consumer.in_tx(desk.pool.clone());
    let (handler_has, shutdown) = (Arc::clone(&written), written.notified());
    let handled = consumer.run_until(
        desk.queue.clone(),
        move |Raw(id), db, _| {
            let written = Arc::clone(&handler_has);
            Box::pin(async move {
                write(db, &id).await;
                written.notify_one();
                std::future::pending::<Collected>().await
            })
        },
        shutdown,
    );
    let summary = handled.await;
    assert_eq!(summary.unwrap().abandoned, 1);
    assert_eq!(desk.rows().await, 0);
    // As the broker delivers it again.
    let again = MemoryQueue::new();
    again.send("m-1", "m-1");
    again.close();
    let summary = desk.run(again, desk.consumer(), |_| Ok(())).await;
    assert_eq!((summary.acknowledged, desk.rows().await), (1, 1));
}

#[tokio::test]
async fn a_handler_that_takes_too_long_is_rolled_back_and_retried() {
    let desk = Desk::new().await;
    desk.queue.send("m-1", "m-1");
    desk.queue.close();
    let bodies = Arc::clone(&desk.bodies);
    let shortest = Policy::new()
        .lease(Duration::from_secs(1))
        .max_run(Duration::from_secs(1));
    let consumer = desk.consumer().policy(shortest).in_tx(desk.pool.clone());
    let handled = consumer.run(desk.queue.clone(), move |Raw(id), db, _| {
        let body = bodies.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            write(db, &id).await;
            if body == 0 {
                std::future::pending::<()>().await;
            }
            Collected::Ok(())
        })
    });
    let summary = handled.await.unwrap();
    assert_eq!((summary.retried, summary.acknowledged), (1, 1));
    assert_eq!((desk.bodies(), desk.rows().await), (2, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_down_gives_the_message_back_and_uses_up_no_attempt() {
    let mut desk = Desk::new().await;
    let impatient = PgPoolOptions::new().acquire_timeout(Duration::from_secs(1));
    desk.pool = impatient.connect(&desk.server.url()).await.unwrap();
    desk.queue.send("m-1", "m-1");
    desk.server.kill();
    let (pool, server) = (desk.pool.clone(), &desk.server);
    let consumer = desk
        .consumer()
        .dead_letter_after(1)
        .retry_after(Duration::from_millis(200));
    let run = desk.run(desk.queue.clone(), consumer, |_| Ok(()));
    let back = async {
        // A delivery has met the dead server.
        while pool.acquire().await.is_ok() {}
        tokio::task::block_in_place(|| server.restart());
    };
    let (summary, ()) = tokio::join!(run, back);
    assert_eq!((summary.acknowledged, summary.dead_letters), (1, 0));
    assert_eq!((desk.bodies(), desk.rows().await), (1, 1));
}

#[tokio::test]
async fn a_store_without_transactions_stops_the_consumer() {
    let desk = Desk::new().await;
    desk.queue.send("m-1", "m-1");
    let engine = Engine::new(MemoryStore::new());
    let consumer = Consumer::new(engine, "bills.collect").in_tx(desk.pool.clone());
    let handled = consumer.run(desk.queue.clone(), |_: Raw, _, _| {
        Box::pin(async { Collected::Ok(()) })
    });
    let end = handled.await;
    let Err(ConsumerError::Refused(error)) = end else {
        panic!("{end:?}");
    };
    assert_eq!(*error.kind(), ErrorKind::InvalidPolicy);
    assert_eq!(desk.queue.len(), 1);
}

/// The same consumer on the other databases: sent twice, one row; a system error, none.
macro_rules! on_database {
    ($name:ident, $store:ident, $pool:ident, $connection:ident, $start:expr) => {
        #[tokio::test]
        async fn $name() {
            let (_server, url) = $start;
            let store = $store::connect(&url).await.unwrap();
            store.migrate().await.unwrap();
            let pool = $pool::connect(&url).await.unwrap();
            let table = sqlx::query("CREATE TABLE bills (id varchar(20))");
            table.execute(&pool).await.unwrap();
            let queue = MemoryQueue::new();
            for id in ["m-1", "m-1", "m-2"] {
                queue.send(id, id);
            }
            queue.close();
            let consumer = Consumer::new(Engine::new(store), "bills.collect")
                .retry_after(Duration::from_millis(10))
                .dead_letter_after(2)
                .in_tx(pool.clone());
            let summary = consumer
                .run(
                    queue.clone(),
                    |Raw(payload): Raw, db: &mut sqlx::$connection, _: Context| {
                        Box::pin(async move {
                            let id = String::from_utf8(payload).unwrap();
                            let row = AssertSqlSafe(format!("INSERT INTO bills VALUES ('{id}')"));
                            sqlx::query(row).execute(db).await.unwrap();
                            if id == "m-2" {
                                Err(BillError::BankDown)
                            } else {
                                Ok(())
                            }
                        })
                    },
                )
                .await
                .unwrap();
            assert_eq!((summary.acknowledged, summary.retried), (2, 2));
            let dead = vec![("m-2".to_owned(), DeadLetterReason::Exhausted)];
            assert_eq!(queue.dead_letters(), dead);
            let rows = sqlx::query_scalar("SELECT count(*) FROM bills");
            let rows: i64 = rows.fetch_one(&pool).await.unwrap();
            assert_eq!(rows, 1);
        }
    };
}

on_database!(
    rows_and_record_are_one_transaction_on_mariadb,
    MySqlStore,
    MySqlPool,
    MySqlConnection,
    {
        let server = MariaDbServer::start();
        let url = server.url();
        (server, url)
    }
);
on_database!(
    rows_and_record_are_one_transaction_on_sqlite,
    SqliteStore,
    SqlitePool,
    SqliteConnection,
    {
        let dir = TestDir::new("consumer").unwrap();
        let url = format!("sqlite:{}?mode=rwc", dir.path().join("shop.db").display());
        (dir, url)
    }
);
