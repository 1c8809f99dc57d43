//! A process of the shop, which prints its steps.
//!
//! `idem-orders <database> <url> <manner>`: `sqlite`, `postgres` or `mariadb`, and the place of the record of a burst:
//! `inside` the transaction of the order, or under a `lease`. It prints `waits` while the server is
//! down, then `ready`, and then reads lines:
//!
//! ```text
//! orders <number> …       takes these orders, each until it has an answer; ends with `done`
//! burst <number> <count>  so many calls of one order at once; their body ends with `go`
//! ```
//!
//! It prints `step <task> <number> <step>` throughout, `answer <number> ran|replayed <answer>`, and
//! `again <number> <why>` before a retry of an order.

mod burst;
mod flow;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, BufRead, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, thread};

use idem_runtime::store::Owner;
use idem_runtime::store::sql::SqlStore;
use idem_runtime::{Engine, OnRunning};
use idem_tests::orders::database::{Database, InMariaDb, InPostgres, InSqlite, OUTAGE, PATIENCE};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::burst::Go;
use self::flow::{Clerk, Manner};

/// Number of orders that a worker takes at once.
const TASKS: usize = 3;
const CONNECTIONS: u32 = 20;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [database, url, manner] = &arguments[..] else {
        panic!("idem-orders <database> <url> <manner>");
    };
    let manner = match &**manner {
        "inside" => Manner::Inside,
        "lease" => Manner::Lease,
        other => panic!("not a manner: {other}"),
    };
    match &**database {
        "sqlite" => work::<InSqlite>(url, manner).await,
        "postgres" => work::<InPostgres>(url, manner).await,
        "mariadb" => work::<InMariaDb>(url, manner).await,
        other => panic!("not a database: {other}"),
    }
}

fn say(line: &str) {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").expect("somebody listens");
}

/// A text that no other body can have answered.
fn random() -> String {
    let mut text = String::new();
    for byte in Owner::random().as_bytes() {
        write!(text, "{byte:02x}").expect("a string takes anything");
    }
    text
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

async fn work<D: Database>(url: &str, manner: Manner) {
    let engine = Engine::builder(store::<D>(url).await)
        .on_running(OnRunning::Wait(PATIENCE))
        .lease(Duration::from_secs(1))
        .max_attempts(None)
        .claim_deadline(PATIENCE)
        .complete_deadline(PATIENCE);
    let clerk = Arc::new(Clerk::<D> {
        engine: engine.build().expect("the settings agree"),
        pool: D::pool(url, CONNECTIONS),
        manner,
    });
    say("ready");
    let (sender, mut lines) = mpsc::unbounded_channel();
    thread::spawn(move || {
        let lines = io::stdin().lock().lines().map_while(Result::ok);
        lines.for_each(|line| drop(sender.send(line)));
    });
    let go = Arc::new(Go::new(false));
    while let Some(line) = lines.recv().await {
        let words: Vec<_> = line.split(' ').collect();
        let (clerk, go) = (Arc::clone(&clerk), Arc::clone(&go));
        match words[..] {
            ["orders", ..] => take(&clerk, words[1..].iter().map(number).collect()).await,
            ["burst", order, count] => {
                let count = count.parse().expect("a number");
                tokio::spawn(clerk.burst(number(&order), count, go));
            }
            ["go"] => drop(go.send_replace(true)),
            _ => panic!("not understood: {line}"),
        }
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
