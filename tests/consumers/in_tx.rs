//! Transactions of consumers that do not end by the handler's result.

use std::sync::Arc;
use std::time::Duration;

use idem_consumers::{
    Consumer, ConsumerError, DeadLetterReason, MemoryQueue, Raw, Source, Summary,
};
use idem_harness::PostgresServer;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::sql::Postgres;
use idem_runtime::{Engine, ErrorKind, Policy};
use idem_tests::payment::Runs;
use idem_tests::shop::engine;
use idem_tests::sql::connect;
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgConnection, PgPool};
use tokio::sync::Notify;

use super::adapter::{Adapter, Fault};
use super::desk::BillError::{self, BankDown};

type Collected = Result<(), BillError>;

/// A database with a table of bills, and a queued message.
struct Desk {
    // Before the server, so that its connections are closed first.
    pool: PgPool,
    engine: Engine,
    server: PostgresServer,
    queue: MemoryQueue,
    bodies: Runs,
}

impl Desk {
    async fn new() -> Self {
        let server = PostgresServer::start();
        let store = connect::<Postgres>(&*server.url()).await;
        store.migrate().await.unwrap();
        let pool = PgPool::connect(&server.url()).await.unwrap();
        let table = sqlx::query("CREATE TABLE bills (id text)");
        table.execute(&pool).await.unwrap();
        Self {
            pool,
            engine: engine(store),
            server,
            queue: one_message(),
            bodies: Runs::default(),
        }
    }

    fn consumer(&self) -> Consumer {
        Consumer::new(self.engine.clone(), "bills.collect").retry_after(Duration::from_millis(10))
    }

    /// Consumes with a handler that writes a row and returns this.
    async fn run<S: Source>(&self, source: S, consumer: Consumer, end: Collected) -> Summary {
        let (bodies, failed) = (self.bodies.clone(), end.is_err());
        let consumer = consumer.in_tx(self.pool.clone());
        let handled = consumer.run(source, move |Raw(id), db, _| {
            bodies.start();
            Box::pin(async move {
                write(db, &id).await;
                if failed { Err(BankDown) } else { Ok(()) }
            })
        });
        handled.await.unwrap()
    }

    /// Why a consumer with this engine ends that cannot handle its message.
    async fn end(&self, engine: &Engine) -> ConsumerError {
        let consumer = Consumer::new(engine.clone(), "bills.collect").in_tx(self.pool.clone());
        let handled = consumer.run(self.queue.clone(), |_: Raw, _, _| {
            Box::pin(async { Collected::Ok(()) })
        });
        let end = handled.await.unwrap_err();
        assert_eq!(self.queue.len(), 1);
        end
    }

    async fn bodies_and_rows(&self) -> (u32, i64) {
        let rows = sqlx::query_scalar("SELECT count(*) FROM bills");
        let rows = rows.fetch_one(&self.pool).await.unwrap();
        (self.bodies.count(), rows)
    }
}

async fn write(db: &mut PgConnection, payload: &[u8]) {
    let row = sqlx::query("INSERT INTO bills VALUES ($1)").bind(String::from_utf8_lossy(payload));
    row.execute(db).await.unwrap();
}

/// A closed queue, as the broker delivers the message again.
fn one_message() -> MemoryQueue {
    let queue = MemoryQueue::new();
    queue.send("m-1", "m-1");
    queue.close();
    queue
}

/// Its transaction is rolled back, and the message is delivered again.
#[tokio::test]
async fn a_handler_that_is_dropped_at_shutdown_commits_nothing() {
    let desk = Desk::new().await;
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
    let summary = handled.await.unwrap();
    assert_eq!((summary.abandoned, desk.queue.len()), (1, 1));
    assert_eq!(desk.bodies_and_rows().await, (0, 0));
    let summary = desk.run(one_message(), desk.consumer(), Ok(())).await;
    assert_eq!(summary.acknowledged, 1);
    assert_eq!(desk.bodies_and_rows().await, (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_down_gives_the_message_back_and_uses_up_no_attempt() {
    let mut desk = Desk::new().await;
    let impatient = PgPoolOptions::new().acquire_timeout(Duration::from_secs(1));
    desk.pool = impatient.connect(&desk.server.url()).await.unwrap();
    desk.server.kill();
    let (pool, server) = (desk.pool.clone(), &desk.server);
    let pause = Duration::from_millis(200);
    let consumer = desk.consumer().dead_letter_after(1).retry_after(pause);
    let run = desk.run(desk.queue.clone(), consumer, Ok(()));
    let back = async {
        // A delivery has met the dead server.
        while pool.acquire().await.is_ok() {}
        tokio::task::block_in_place(|| server.restart());
    };
    let (summary, ()) = tokio::join!(run, back);
    assert_eq!((summary.acknowledged, summary.dead_letters), (1, 0));
    assert_eq!(desk.bodies_and_rows().await, (1, 1));
}

#[tokio::test]
async fn a_closed_pool_or_a_store_without_transactions_stops_the_consumer() {
    let desk = Desk::new().await;
    let end = desk.end(&Engine::new(MemoryStore::new())).await;
    let ConsumerError::Refused(error) = end else {
        panic!("{end:?}");
    };
    assert_eq!(*error.kind(), ErrorKind::InvalidPolicy);
    desk.pool.close().await;
    let end = desk.end(&desk.engine).await;
    assert!(matches!(end, ConsumerError::Pool(_)), "{end:?}");
}

/// As with a broker whose delayed retry is a new message.
#[tokio::test]
async fn a_transaction_that_the_handler_breaks_uses_up_an_attempt() {
    let desk = Desk::new().await;
    let bodies = desk.bodies.clone();
    let consumer = desk.consumer().dead_letter_after(2);
    let consumer = consumer.in_tx(desk.pool.clone());
    let source = Adapter::new(desk.queue.clone(), Fault::None).attempt(|_| Some(1));
    let handled = consumer.run(source, move |_: Raw, db, _| {
        bodies.start();
        Box::pin(async move {
            let failed = sqlx::query("SELECT 1 / 0").execute(db).await;
            assert!(failed.is_err());
            Collected::Ok(())
        })
    });
    handled.await.unwrap();
    assert_eq!(desk.bodies_and_rows().await, (2, 0));
    let dead = [("m-1".to_owned(), DeadLetterReason::Exhausted)];
    assert_eq!(desk.queue.dead_letters(), dead);
}

#[tokio::test]
async fn an_exhausted_message_whose_record_is_reset_runs_again() {
    let desk = Desk::new().await;
    let consumer = || desk.consumer().dead_letter_after(2);
    let summary = desk
        .run(desk.queue.clone(), consumer(), Err(BankDown))
        .await;
    assert_eq!(summary.dead_letters, 1);
    let record = desk.engine.operation("bills.collect").key("m-1");
    let entry = record.entry().await.unwrap().expect("it is exhausted");
    entry.reset().await.unwrap();
    let summary = desk.run(one_message(), consumer(), Ok(())).await;
    assert_eq!((summary.acknowledged, summary.dead_letters), (1, 0));
}
