//! One key shared by several processes, in each database: many at once, and a killed one.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use idem_harness::{MariaDbServer, PostgresServer, TestDir, Worker, eventually as until};
use idem_runtime::store::sql::SqlStore;
use idem_tests::orders::database::{Database, InMariaDb, InPostgres, InSqlite, open_shop};
use tokio::runtime::Runtime;

/// Number of processes in a burst, and of calls in each.
const PROCESSES: usize = 4;
const EACH: usize = 250;
/// Maximum number of statements of a burst under a lease: some of each process, and not some of each
/// call. Connecting, claiming, polling while the body runs, completing.
const FEW: u64 = 120;

/// A shop, and its database.
struct Shop {
    url: String,
    runtime: Runtime,
    place: Place,
}

/// A server of the test's own, so that its counters belong to this test.
enum Place {
    Dir { _dir: TestDir },
    Postgres(PostgresServer),
    MariaDb(MariaDbServer),
}

/// The database of the shop: another than the one that the harness queries.
const NAME: &str = "shop";

fn shop<D: Database>() -> Shop {
    let (url, place) = match D::NAME {
        "sqlite" => {
            let dir = TestDir::new("burst").expect("there is room for a file");
            let file = dir.path().join("shop.db");
            let url = format!("sqlite:{}?mode=rwc", file.display());
            (url, Place::Dir { _dir: dir })
        }
        "postgres" => {
            let server = PostgresServer::builder().durable().start();
            (server.create_database(NAME), Place::Postgres(server))
        }
        _ => {
            let server = MariaDbServer::builder().durable().start();
            (server.create_database(NAME), Place::MariaDb(server))
        }
    };
    let runtime = Runtime::new().expect("a runtime starts");
    runtime.block_on(open_shop::<D>(&url));
    Shop {
        url,
        runtime,
        place,
    }
}

impl Shop {
    /// Number of statements that the server has counted, if it counts them.
    fn statements(&self) -> Option<u64> {
        let number = match &self.place {
            Place::Dir { .. } => return None,
            Place::Postgres(server) => {
                let of_shop = format!("WHERE datname = '{NAME}'");
                // A connection reports its statistics at its end, at the latest.
                let left = format!("SELECT count(*) FROM pg_stat_activity {of_shop}");
                until("its connections end", || server.execute(&left) == "0");
                let seen = "SELECT xact_commit + xact_rollback FROM pg_stat_database";
                server.execute(&format!("{seen} {of_shop}"))
            }
            Place::MariaDb(server) => {
                let seen = server.execute("SHOW GLOBAL STATUS LIKE 'Questions'");
                seen.rsplit('\t').next().unwrap_or_default().to_owned()
            }
        };
        Some(number.parse().expect("a number"))
    }

    fn spawn<D: Database>(&self, manner: &str) -> Worker {
        let worker = Worker::sibling("idem-orders").args([D::NAME, &self.url, manner]);
        let mut worker = worker.spawn();
        worker.line_after("ready");
        worker
    }

    fn rows<D: Database>(&self, table: &str) -> i64 {
        self.runtime.block_on(async {
            let pool = D::pool(&self.url, 1);
            let mut conn = pool.acquire().await.expect("the database is up");
            let count = D::rows(&mut conn, format!("SELECT count(*) FROM {table}")).await;
            count.expect("the table is there")[0][0]
        })
    }
}

/// Calls one key from four processes at once, and ends their one body when all have begun.
fn burst<D: Database>(manner: &str) -> Option<u64> {
    let shop = shop::<D>();
    let before = shop.statements();
    let mut workers: Vec<_> = (0..PROCESSES).map(|_| shop.spawn::<D>(manner)).collect();
    let began = Instant::now();
    for worker in &mut workers {
        worker.send(&format!("burst 7 {EACH}"));
    }
    for worker in &mut workers {
        worker.line_after("begun");
    }
    for worker in &mut workers {
        worker.send("go");
    }
    let mut answers = BTreeSet::new();
    let mut calls = 0;
    for worker in &mut workers {
        let told = worker.line_after("burst ");
        let words: Vec<_> = told.split(' ').collect();
        let [count, tried, different, answer] = words[..] else {
            panic!("not the end of a burst: {told}");
        };
        assert_eq!(
            (count, different),
            (&*EACH.to_string(), "1"),
            "answers, different answers"
        );
        calls += tried.parse::<usize>().expect("a number");
        answers.insert(answer.to_owned());
    }
    let took = began.elapsed();
    drop(workers);
    let seen = shop.statements().zip(before);
    let seen = seen.map(|(after, before)| after - before);
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(shop.rows::<D>("orders"), 1);
    assert_eq!(shop.rows::<D>("idem_records"), 1);
    let again = calls - PROCESSES * EACH;
    eprintln!(
        "{} {manner}: {took:?}, {again} tried again, statements: {seen:?}",
        D::NAME
    );
    seen
}

/// All duplicates of a process share one claim and one read of the answer.
fn burst_under_a_lease<D: Database>() {
    if let Some(seen) = burst::<D>("lease") {
        assert!(seen < FEW, "{seen} statements");
    }
}

fn burst_in_transactions<D: Database>() {
    burst::<D>("inside");
}

/// A killed process keeps its key for as long as its lease, and no longer.
fn killed_under_a_lease<D: Database>() {
    let shop = shop::<D>();
    let (mut first, mut second) = (shop.spawn::<D>("lease"), shop.spawn::<D>("lease"));
    first.send("hold 7");
    first.line_after("held");
    first.kill9();
    let mut call = || {
        second.send("call 7");
        second.line_after("answer 7 ")
    };
    let age = |by: u64| {
        shop.runtime.block_on(async {
            let store = SqlStore::<D::Backend>::connect(&shop.url).await;
            let store = store.expect("the database is up");
            store
                .age(Duration::from_secs(by))
                .await
                .expect("the table is there");
        });
    };
    assert!(call().contains("Running"), "its lease has begun");
    age(30);
    assert!(call().contains("Running"), "half of its lease is left");
    assert_eq!(shop.rows::<D>("orders"), 1);
    age(30);
    let answer = call();
    assert!(answer.starts_with("placed "), "its lease is over: {answer}");
    assert_eq!(call(), answer);
    assert_eq!(
        shop.rows::<D>("orders"),
        2,
        "the second attempt ran, and no third"
    );
}

macro_rules! in_each {
    ($($test:ident)*) => {
        mod sqlite {
            $(#[test] fn $test() { super::$test::<super::InSqlite>(); })*
        }
        mod postgres {
            $(#[test] fn $test() { super::$test::<super::InPostgres>(); })*
        }
        mod mariadb {
            $(#[test] fn $test() { super::$test::<super::InMariaDb>(); })*
        }
    };
}

in_each! {
    burst_under_a_lease
    burst_in_transactions
    killed_under_a_lease
}
