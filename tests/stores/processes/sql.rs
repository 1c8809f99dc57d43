//! One key shared by several processes at once, in each database.

use std::collections::BTreeSet;

use idem_harness::{MariaDbServer, PostgresServer, TestDir, Worker};
use idem_tests::orders::database::{Database, InMariaDb, InPostgres, InSqlite, open_shop};
use tokio::runtime::Runtime;

/// Number of processes in a burst, and of calls in each.
const PROCESSES: usize = 4;
const EACH: usize = 250;

/// Calls one key from four processes at once, and ends their one body when all have begun.
fn burst<D: Database>(url: &str) {
    let runtime = Runtime::new().unwrap();
    runtime.block_on(open_shop::<D>(url));
    for (number, manner) in [(7, "lease"), (8, "inside")] {
        let mut workers: Vec<_> = (0..PROCESSES)
            .map(|_| {
                let worker = Worker::sibling("idem-orders").args([D::NAME, url, manner]);
                let mut worker = worker.spawn();
                worker.line_after("ready");
                worker
            })
            .collect();
        for worker in &mut workers {
            worker.send(&format!("burst {number} {EACH}"));
        }
        for worker in &mut workers {
            worker.line_after("begun");
        }
        for worker in &mut workers {
            worker.send("go");
        }
        let mut answers = BTreeSet::new();
        for worker in &mut workers {
            let told = worker.line_after("burst ");
            let words: Vec<_> = told.split(' ').collect();
            let [count, _, different, answer] = words[..] else {
                panic!("not the end of a burst: {told}");
            };
            assert_eq!((count, different), (&*EACH.to_string(), "1"), "{manner}");
            answers.insert(answer.to_owned());
        }
        assert_eq!(answers.len(), 1, "{manner}: {answers:?}");
    }
    let rows = runtime.block_on(async {
        let pool = D::pool(url, 1);
        let mut conn = pool.acquire().await.unwrap();
        let both = "SELECT count(*) FROM orders UNION ALL SELECT count(*) FROM idem_records";
        D::rows(&mut conn, both.to_owned()).await.unwrap()
    });
    assert_eq!(rows, [[2], [2]], "orders and records");
}

#[test]
fn a_burst_in_sqlite_runs_one_body() {
    let dir = TestDir::new("burst").unwrap();
    let file = dir.path().join("shop.db");
    burst::<InSqlite>(&format!("sqlite:{}?mode=rwc", file.display()));
}

#[test]
fn a_burst_in_postgres_runs_one_body() {
    let server = PostgresServer::builder().durable().start();
    burst::<InPostgres>(&server.create_database("shop"));
}

#[test]
fn a_burst_in_mariadb_runs_one_body() {
    let server = MariaDbServer::builder().durable().start();
    burst::<InMariaDb>(&server.create_database("shop"));
}
