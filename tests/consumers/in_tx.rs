//! Consumers whose record, rows and answer are committed in one transaction.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idem_consumers::{
    BrokerError, Consumer, ConsumerError, DeadLetterReason, Delivery, MemoryDelivery, MemoryQueue,
    Raw, Source, Summary, Verdict,
};
use idem_harness::{MariaDbServer, PostgresServer, TestDir};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::sql::{MySqlStore, PostgresStore, SqliteStore};
use idem_runtime::{Classify, Engine, ErrorKind, OnDuplicate, Policy};
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

/// A queue whose broker counts deliveries in its own way, and may lose the first verdict.
struct Adapter {
    queue: MemoryQueue,
    attempt: fn(u32) -> Option<u32>,
    loses_verdict: bool,
    settled: Arc<Notify>,
}

struct AdapterDelivery {
    delivery: MemoryDelivery,
    attempt: Option<u32>,
    loses_verdict: bool,
    settled: Arc<Notify>,
}

impl Adapter {
    fn new(queue: &MemoryQueue, attempt: fn(u32) -> Option<u32>) -> Self {
        Self {
            queue: queue.clone(),
            attempt,
            loses_verdict: false,
            settled: Arc::default(),
        }
    }
}

impl Source for Adapter {
    type Delivery = AdapterDelivery;

    async fn next(&mut self) -> Result<Option<AdapterDelivery>, BrokerError> {
        let next = self.queue.next().await?;
        Ok(next.map(|delivery| AdapterDelivery {
            attempt: delivery.attempt().and_then(self.attempt),
            delivery,
            loses_verdict: std::mem::take(&mut self.loses_verdict),
            settled: Arc::clone(&self.settled),
        }))
    }
}

impl Delivery for AdapterDelivery {
    fn id(&self) -> Option<Cow<'_, str>> {
        self.delivery.id()
    }

    fn attempt(&self) -> Option<u32> {
        self.attempt
    }

    fn payload(&self) -> &[u8] {
        self.delivery.payload()
    }

    async fn extend(&self, time: Duration) -> Result<(), BrokerError> {
        self.delivery.extend(time).await
    }

    async fn settle(self, verdict: Verdict) -> Result<(), BrokerError> {
        if self.loses_verdict {
            self.delivery.settle(Verdict::Stop).await?;
            return Err(BrokerError::new("the connection is closed"));
        }
        self.delivery.settle(verdict).await?;
        self.settled.notify_one();
        Ok(())
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
            desk.run(Adapter::new(&queue, |_| None), consumer, end)
                .await;
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
    let source = Adapter::new(&desk.queue, |_| None);
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
    let short = Policy::new().lease(Duration::from_secs(1));
    let consumer = desk.consumer().policy(short).drain(Duration::ZERO);
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

/// A pool that the rest of the service uses up.
#[tokio::test]
async fn a_pool_that_is_exhausted_gives_the_message_back_and_uses_up_no_attempt() {
    let mut desk = Desk::new().await;
    let small = PgPoolOptions::new().max_connections(1);
    let small = small.acquire_timeout(Duration::from_millis(100));
    desk.pool = small.connect(&desk.server.url()).await.unwrap();
    desk.queue.send("m-1", "m-1");
    let source = Adapter::new(&desk.queue, |_| None);
    let (settled, service) = (Arc::clone(&source.settled), desk.pool.acquire().await);
    let consumer = desk.consumer().dead_letter_after(1);
    let run = desk.run(source, consumer, |_| Ok(()));
    let freed = async {
        for _ in 0..3 {
            settled.notified().await;
        }
        drop(service);
    };
    let (summary, ()) = tokio::join!(run, freed);
    assert!(summary.retried >= 3, "{summary:?}");
    assert_eq!((summary.acknowledged, summary.dead_letters), (1, 0));
    assert_eq!((desk.bodies(), desk.rows().await), (1, 1));
}

#[tokio::test]
async fn a_pool_that_is_closed_stops_the_consumer() {
    let desk = Desk::new().await;
    desk.queue.send("m-1", "m-1");
    desk.pool.close().await;
    let consumer = desk.consumer().in_tx(desk.pool.clone());
    let handled = consumer.run(desk.queue.clone(), |_: Raw, _, _| {
        Box::pin(async { Collected::Ok(()) })
    });
    let end = handled.await;
    assert!(matches!(end, Err(ConsumerError::Pool(_))), "{end:?}");
    assert_eq!(desk.queue.len(), 1);
}

/// One runs, the others wait for it, whatever the broker knows of their deliveries.
#[tokio::test]
async fn copies_at_once_use_up_no_attempt() {
    for attempt in [(|_| None) as fn(u32) -> _, |count| Some(count + 1)] {
        let desk = Desk::new().await;
        for _ in 0..12 {
            desk.queue.send("m-1", "m-1");
        }
        let source = Adapter::new(&desk.queue, attempt);
        let summary = desk.run(source, desk.consumer(), |_| Ok(())).await;
        assert_eq!((desk.bodies(), desk.rows().await), (1, 1));
        assert_eq!((summary.acknowledged, summary.dead_letters), (12, 0));
    }
}

/// As with a broker whose delayed retry is a new message.
#[tokio::test]
async fn a_transaction_that_the_handler_breaks_uses_up_an_attempt() {
    let desk = Desk::new().await;
    desk.queue.send("m-1", "m-1");
    desk.queue.close();
    let bodies = Arc::clone(&desk.bodies);
    let consumer = desk.consumer().dead_letter_after(2);
    let consumer = consumer.in_tx(desk.pool.clone());
    let source = Adapter::new(&desk.queue, |_| Some(1));
    let handled = consumer.run(source, move |_: Raw, db, _| {
        bodies.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let failed = sqlx::query("SELECT 1 / 0").execute(db).await;
            assert!(failed.is_err());
            Collected::Ok(())
        })
    });
    handled.await.unwrap();
    assert_eq!(desk.bodies(), 2);
    assert_eq!(desk.queue.dead_letters(), dead(DeadLetterReason::Exhausted));
}

/// The verdict was lost, and the answer is found in the record, also where repeats are to be refused.
#[tokio::test]
async fn a_business_error_whose_verdict_is_lost_is_a_dead_letter() {
    let desk = Desk::new().await;
    desk.queue.send("m-1", "m-1");
    let mut source = Adapter::new(&desk.queue, Some);
    source.loses_verdict = true;
    let rejects = Policy::new().on_duplicate(OnDuplicate::Reject);
    let end = |_| Err(BillError::NoSuchAccount);
    let summary = desk.run(source, desk.consumer().policy(rejects), end).await;
    assert_eq!((summary.unsettled, summary.dead_letters), (1, 1));
    assert_eq!((desk.bodies(), desk.rows().await), (1, 0));
    assert_eq!(desk.queue.dead_letters(), dead(DeadLetterReason::Business));
}

#[tokio::test]
async fn an_exhausted_message_whose_record_is_reset_runs_again() {
    let desk = Desk::new().await;
    desk.queue.send("m-1", "m-1");
    let consumer = || desk.consumer().dead_letter_after(2);
    let down = |_| Err(BillError::BankDown);
    desk.run(desk.queue.clone(), consumer(), down).await;
    assert_eq!(desk.queue.dead_letters(), dead(DeadLetterReason::Exhausted));
    let record = desk.engine.operation("bills.collect").key("m-1");
    let entry = record.entry().await.unwrap().expect("it is exhausted");
    entry.reset().await.unwrap();
    let again = MemoryQueue::new();
    again.send("m-1", "m-1");
    again.close();
    let summary = desk.run(again, consumer(), |_| Ok(())).await;
    assert_eq!((summary.acknowledged, summary.dead_letters), (1, 0));
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
                    |Raw(payload), db: &mut sqlx::$connection, _| {
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

// ---- review: each of these fails ----
