//! A process of the shop, which prints its steps.
//!
//! `idem-orders <database> <url>`: `sqlite`, `postgres` or `mariadb`. It prints `waits` while the server is down, then
//! `ready`, and then reads lines:
//!
//! ```text
//! orders <number> …  takes these orders, each until it has an answer; ends with `done`
//! ```
//!
//! It prints `step <number> <step>` throughout, `answer <number> ran|replayed <answer>`, and
//! `again <number> <why>` before a retry of an order.

mod flow;

use std::env;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream;
use idem_runtime::store::sql::SqlStore;
use idem_runtime::{Engine, OnRunning};
use idem_tests::lines::{heard, say};
use idem_tests::orders::database::{Database, InMariaDb, InPostgres, InSqlite, OUTAGE, PATIENCE};

use self::flow::Clerk;

const ORDERS_AT_ONCE: usize = 3;
const CONNECTIONS: u32 = 20;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [database, url] = &arguments[..] else {
        panic!("idem-orders <database> <url>");
    };
    match &**database {
        "sqlite" => work::<InSqlite>(url).await,
        "postgres" => work::<InPostgres>(url).await,
        "mariadb" => work::<InMariaDb>(url).await,
        other => panic!("not a database: {other}"),
    }
}

/// The server may be down for a moment when a process starts.
async fn store<D: Database>(url: &str) -> SqlStore<D::Backend> {
    let began = Instant::now();
    loop {
        match SqlStore::connect(url).await {
            Ok(store) => return store,
            Err(error) => assert!(began.elapsed() < OUTAGE, "{error}"),
        }
        say("waits");
        tokio::time::sleep(PATIENCE / 1_000).await;
    }
}

async fn work<D: Database>(url: &str) {
    let engine = Engine::builder(store::<D>(url).await)
        .on_running(OnRunning::Wait(PATIENCE))
        .lease(Duration::from_secs(1))
        .max_attempts(None)
        .claim_deadline(PATIENCE)
        .complete_deadline(PATIENCE);
    let clerk = Arc::new(Clerk::<D> {
        engine: engine.build().expect("the settings agree"),
        pool: D::pool(url, CONNECTIONS),
    });
    say("ready");
    let mut lines = heard();
    while let Some(line) = lines.recv().await {
        let words: Vec<_> = line.split(' ').collect();
        assert_eq!(words[0], "orders", "not understood: {line}");
        let serve = async |word: &&str| {
            let (clerk, number) = (Arc::clone(&clerk), word.parse().expect("a number"));
            let served = tokio::spawn(async move { clerk.serve(number).await });
            served.await.expect("the order has an answer");
        };
        let orders = stream::iter(&words[1..]);
        orders.for_each_concurrent(ORDERS_AT_ONCE, serve).await;
        say("done");
    }
}
