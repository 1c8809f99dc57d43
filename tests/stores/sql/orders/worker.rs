//! A process of the shop, which prints its steps.
//!
//! `idem-orders <database> <url>`: `sqlite`, `postgres` or `mariadb`. It prints `waits` while the server is down, then
//! `ready`, and then reads lines:
//!
//! ```text
//! orders <number> …  takes these orders, each until it has an answer; ends with `done`
//! ```
//!
//! It prints `step <task> <number> <step>` throughout, `answer <number> ran|replayed <answer>`, and
//! `again <number> <why>` before a retry of an order.

mod flow;

use std::collections::VecDeque;
use std::env;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use idem_runtime::store::sql::SqlStore;
use idem_runtime::{Engine, OnRunning};
use idem_tests::lines::{heard, say};
use idem_tests::orders::database::{Database, InMariaDb, InPostgres, InSqlite, OUTAGE, PATIENCE};
use tokio::task::JoinSet;

use self::flow::Clerk;

/// Number of orders that a worker takes at once.
const TASKS: usize = 3;
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
        take(&clerk, words[1..].iter().map(number).collect()).await;
    }
}

fn number(word: &&str) -> u64 {
    word.parse().expect("a number")
}

/// Takes several orders at once.
async fn take<D: Database>(clerk: &Arc<Clerk<D>>, orders: VecDeque<u64>) {
    let orders = Arc::new(Mutex::new(orders));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (clerk, orders) = (Arc::clone(clerk), Arc::clone(&orders));
        tasks.spawn(async move {
            let next = || {
                let mut orders = orders.lock().unwrap_or_else(PoisonError::into_inner);
                orders.pop_front()
            };
            while let Some(number) = next() {
                clerk.serve(task, number).await;
            }
        });
    }
    tasks.join_all().await;
    say("done");
}
