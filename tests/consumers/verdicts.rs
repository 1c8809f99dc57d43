//! The verdict on a message by the result of its call: of a plain consumer, and of one whose record, rows and answer are
//! one transaction. One table for both: a consumer in a transaction has the verdicts of every consumer.

use std::time::Duration;

use bb8_postgres::{PostgresConnectionManager, bb8};
use idem_consumers::{
    Consumer, DeadLetterReason as Reason, MemoryQueue, OnBusinessError, Summary, Verdict,
};
use idem_harness::{MariaDbServer, PostgresServer, TestDir};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::sql::{MySqlStore, PostgresStore, SqliteStore};
use idem_runtime::{CallError, Context, Engine, OnDuplicate, Policy};
use idem_tests::payment::Runs;
use sqlx::{AssertSqlSafe, MySqlPool, PgPool, SqlitePool};
use tokio_postgres::NoTls;

use super::adapter::{Adapter, Fault};
use super::desk::BillError::{self, BankDown, NoSuchAccount, NoSuchBill, TimedOut};

type End = fn(u32) -> Result<(), BillError>;

/// Messages, a consumer of them, and what becomes of both. The name is that of the operation as well.
#[derive(Clone)]
struct Case {
    name: &'static str,
    /// The ids, and the payloads, which are numbers.
    messages: Vec<(String, &'static str)>,
    consumer: fn(Consumer) -> Consumer,
    fault: Fault,
    attempt: fn(u32) -> Option<u32>,
    /// The result of the handler, by the number of the body.
    end: End,
    bodies: u32,
    rows: i64,
    /// Acknowledged, retried, unsettled.
    settled: [u64; 3],
    /// The reason of each dead letter.
    dead: Vec<Reason>,
}

fn case(name: &'static str, messages: Vec<(String, &'static str)>, end: End) -> Case {
    Case {
        name,
        messages,
        consumer: |consumer| consumer,
        fault: Fault::None,
        attempt: Some,
        end,
        bodies: 1,
        rows: 0,
        settled: [0; 3],
        dead: Vec::new(),
    }
}

impl Case {
    fn with(self, consumer: fn(Consumer) -> Consumer) -> Self {
        Self { consumer, ..self }
    }

    /// The broker's count of deliveries is another one.
    fn counted(self, attempt: fn(u32) -> Option<u32>) -> Self {
        Self { attempt, ..self }
    }

    fn is(self, bodies: u32, rows: i64, settled: [u64; 3], dead: &[Reason]) -> Self {
        let dead = dead.to_vec();
        Self {
            bodies,
            rows,
            settled,
            dead,
            ..self
        }
    }
}

/// One message, sent so often.
fn copies(count: usize) -> Vec<(String, &'static str)> {
    vec![("m-1".to_owned(), "7"); count]
}

fn cases() -> Vec<Case> {
    let down_twice: End = |body| if body < 3 { Err(BankDown) } else { Ok(()) };
    let (down, done): (End, End) = (|_| Err(BankDown), |_| Ok(()));
    let (refused, silent): (End, End) = (|_| Err(NoSuchAccount), |_| Err(TimedOut));
    let lossy: End = |_| Err(NoSuchBill { number: 7 });
    let two_payloads = || [copies(1), vec![("m-1".to_owned(), "8")]].concat();
    let often = (0..200).map(|message| (format!("m-{}", message % 20), "7"));
    let no_message = vec![("m-1".to_owned(), "not JSON")];
    vec![
        // By the result of the handler.
        case("a system error is retried", copies(1), down_twice).is(3, 1, [1, 2, 0], &[]),
        case("attempts are used up", copies(1), down)
            .with(|it| it.dead_letter_after(3))
            .is(3, 0, [0, 3, 0], &[Reason::Exhausted]),
        case("the broker counts no attempts", copies(1), down)
            .with(|it| it.dead_letter_after(3))
            .counted(|_| None)
            .is(3, 0, [0, 3, 0], &[Reason::Exhausted]),
        case("a panic uses up an attempt", copies(1), |it| panic!("{it}"))
            .with(|it| it.dead_letter_after(2))
            .is(2, 0, [0, 2, 0], &[Reason::Exhausted]),
        case("a business error", copies(2), refused).is(1, 0, [0; 3], &[Reason::Business; 2]),
        case("a business error is acknowledged", copies(1), refused)
            .with(|it| it.on_business_error(OnBusinessError::Acknowledge))
            .is(1, 0, [1, 0, 0], &[]),
        Case {
            fault: Fault::LosesVerdict,
            ..case("a business error whose verdict is lost", copies(1), refused)
                .with(|it| it.policy(Policy::new().on_duplicate(OnDuplicate::Reject)))
                .is(1, 0, [0, 0, 1], &[Reason::Business])
        },
        Case {
            fault: Fault::LosesVerdict,
            ..case("a business error that is not stored", copies(1), lossy).is(
                1,
                0,
                [0, 0, 1],
                &[Reason::Business],
            )
        },
        case("an unknown outcome", copies(2), silent).is(1, 0, [0; 3], &[Reason::Unknown; 2]),
        // Messages of one id.
        case("sent often", often.collect(), done).is(20, 20, [200, 0, 0], &[]),
        case("another message of the id", two_payloads(), done)
            .with(|it| it.concurrency(1))
            .is(1, 1, [1, 0, 0], &[Reason::Mismatch]),
        case("another payload that is not compared", two_payloads(), done)
            .with(|it| it.concurrency(1).compare_payload(false))
            .is(1, 1, [2, 0, 0], &[]),
        case("a payload that is no message", no_message, done).is(
            0,
            0,
            [0; 3],
            &[Reason::InvalidPayload],
        ),
        // As after acknowledgements that were lost.
        case("deliveries of a finished message", copies(10), done)
            .with(|it| it.concurrency(1).dead_letter_after(2))
            .counted(|_| None)
            .is(1, 1, [10, 0, 0], &[]),
        // One runs, the others wait for it, whatever the broker knows of their deliveries.
        case("copies at once", copies(12), done)
            .counted(|_| None)
            .is(1, 1, [12, 0, 0], &[]),
        case("copies at once, delivered before", copies(12), done)
            .counted(|count| Some(count + 1))
            .is(1, 1, [12, 0, 0], &[]),
    ]
}

impl Case {
    /// The closed queue, its source, and a count of bodies.
    fn queue(&self) -> (MemoryQueue, Adapter<MemoryQueue>, Runs) {
        let queue = MemoryQueue::new();
        for (id, payload) in &self.messages {
            queue.send(id, payload);
        }
        queue.close();
        let source = Adapter::new(queue.clone(), self.fault).attempt(self.attempt);
        (queue, source, Runs::default())
    }

    fn consumer(&self, engine: &Engine) -> Consumer {
        let consumer = Consumer::new(engine.clone(), self.name);
        (self.consumer)(consumer.retry_after(Duration::from_millis(10)))
    }

    fn check(&self, database: &str, (queue, summary): (&MemoryQueue, Summary), bodies: u32) {
        let name = format!("{database}: {}", self.name);
        let it = summary;
        let settled = [it.acknowledged, it.retried, it.unsettled];
        assert_eq!((bodies, settled), (self.bodies, self.settled), "{name}");
        let letters = queue.dead_letters();
        assert!(letters.iter().all(|(id, _)| id == "m-1"), "{name}");
        let dead: Vec<_> = letters.into_iter().map(|(_, reason)| reason).collect();
        assert_eq!((dead, queue.len()), (self.dead.clone(), 0), "{name}");
    }
}

#[tokio::test]
async fn a_message_has_the_verdict_of_its_call() {
    let engine = Engine::new(MemoryStore::new());
    for case in cases() {
        let (queue, source, bodies) = case.queue();
        let (end, count) = (case.end, bodies.clone());
        let handler = move |_: u32, _: Context| std::future::ready(end(count.start()));
        let summary = case.consumer(&engine).run(source, handler).await.unwrap();
        case.check("memory", (&queue, summary), bodies.count());
    }
}

/// The consumer's own loop lost the first verdict. Finds a message whose dead letter is lost: it was acknowledged.
#[tokio::test]
async fn a_rejected_duplicate_of_a_business_error_is_a_dead_letter() {
    let engine = Engine::new(MemoryStore::new());
    let business = Verdict::DeadLetter(Reason::Business);
    for (id, end, expected) in [
        ("a value", Ok(()), Verdict::Acknowledge),
        ("a business error", Err(NoSuchAccount), business),
        ("not stored", Err(NoSuchBill { number: 7 }), business),
    ] {
        let call = || {
            let call = engine.operation("bills.collect").key(id);
            call.on_duplicate(OnDuplicate::Reject)
        };
        let refused = || call().run(async |_: Context| end.map_err(CallError::Body));
        let first = refused().await;
        assert!(!matches!(first, Err(CallError::Refused(_))), "{first:?}");
        match refused().await {
            Err(CallError::Refused(error)) => assert_eq!(Verdict::of(&error), expected, "{id}"),
            other => panic!("{id}: {other:?}"),
        }
    }
}

/// The same in a transaction. Its rows are there if the handler succeeds. `$insert` is its statement.
macro_rules! in_a_transaction {
    ($store:ident, $url:expr, $Sqlx:ident, $pool:expr, |$db:ident, $row:ident| $insert:expr) => {
        let store = $store::connect($url).await.unwrap();
        store.migrate().await.unwrap();
        let (engine, sqlx, pool) = (
            Engine::new(store),
            $Sqlx::connect($url).await.unwrap(),
            $pool,
        );
        let table = sqlx::query("CREATE TABLE bills (id integer)");
        table.execute(&sqlx).await.unwrap();
        for case in cases() {
            let (queue, source, bodies) = case.queue();
            let (end, count) = (case.end, bodies.clone());
            let consumer = case.consumer(&engine).in_tx(pool.clone());
            let ended = consumer.run(source, move |bill: u32, $db, _| {
                let count = count.clone();
                Box::pin(async move {
                    let $row = format!("INSERT INTO bills VALUES ({bill})");
                    $insert.await.unwrap();
                    end(count.start())
                })
            });
            let summary = ended.await.unwrap();
            case.check(stringify!($pool), (&queue, summary), bodies.count());
            let rows = sqlx::query_scalar("SELECT count(*) FROM bills");
            let rows: i64 = rows.fetch_one(&sqlx).await.unwrap();
            assert_eq!(rows, case.rows, "{}: {}", stringify!($pool), case.name);
            let emptied = sqlx::query("DELETE FROM bills").execute(&sqlx).await;
            emptied.unwrap();
        }
    };
    ($store:ident, $Sqlx:ident, $url:expr) => {
        let pool = $Sqlx::connect($url).await.unwrap();
        in_a_transaction!($store, $url, $Sqlx, pool, |db, row| sqlx::query(
            AssertSqlSafe(row)
        )
        .execute(&mut *db));
    };
}

#[tokio::test]
async fn rows_and_record_are_one_transaction_on_postgres() {
    let server = PostgresServer::start();
    in_a_transaction!(PostgresStore, PgPool, &*server.url());
}

#[tokio::test]
async fn rows_and_record_are_one_transaction_of_deadpool_postgres() {
    let server = PostgresServer::start();
    let manager = deadpool_postgres::Manager::new(server.url().parse().unwrap(), NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).max_size(1);
    let pool = pool.build().unwrap();
    in_a_transaction!(PostgresStore, &*server.url(), PgPool, pool, |db, row| db
        .execute(&row, &[]));
}

#[tokio::test]
async fn rows_and_record_are_one_transaction_of_bb8_postgres() {
    let server = PostgresServer::start();
    let manager = PostgresConnectionManager::new(server.url().parse().unwrap(), NoTls);
    let pool = bb8::Pool::builder().max_size(1).build_unchecked(manager);
    in_a_transaction!(PostgresStore, &*server.url(), PgPool, pool, |db, row| db
        .execute(&row, &[]));
}

#[tokio::test]
async fn rows_and_record_are_one_transaction_on_mariadb() {
    let server = MariaDbServer::start();
    in_a_transaction!(MySqlStore, MySqlPool, &*server.url());
}

#[tokio::test]
async fn rows_and_record_are_one_transaction_on_sqlite() {
    let dir = TestDir::new("consumer").unwrap();
    let url = format!("sqlite:{}?mode=rwc", dir.path().join("shop.db").display());
    in_a_transaction!(SqliteStore, SqlitePool, &*url);
}
