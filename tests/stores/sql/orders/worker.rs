//! A process of the shop, which prints its steps.
//!
//! `idem-orders <client> <url>`: `sqlite`, `postgres` or `mariadb` for sqlx, or another client. It prints `waits` while the server is down, then
//! `ready`, and then reads lines:
//!
//! ```text
//! stop <n> <step>    after `n` others, an order that reaches this step goes no further, and `stopped` is printed
//! orders <number> …  takes these orders, each until it has an answer; ends with `done`
//! ```
//!
//! It prints `step <number> <step>` throughout, `answer <number> ran|replayed <answer>`, and
//! `again <number> <why>` before a retry of an order.

mod clients;
mod flow;

use std::env;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream;
use idem_runtime::store::sql::SqlStore;
use idem_runtime::{Engine, OnRunning};
use idem_tests::lines::{heard, say};
use idem_tests::orders::database::{InMariaDb, InPostgres, InSqlite, OUTAGE, PATIENCE};

use self::clients::{
    Bb8Postgres, Client, DeadpoolPostgres, InDieselMySql, InDieselPostgres, InMySqlAsync, SeaMySql,
    SeaPostgres, SeaSqlite,
};
use self::flow::{Clerk, Stop};

const ORDERS_AT_ONCE: usize = 3;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [client, url] = &arguments[..] else {
        panic!("idem-orders <client> <url>");
    };
    match &**client {
        "sqlite" => work::<InSqlite>(url).await,
        "postgres" => work::<InPostgres>(url).await,
        "mariadb" => work::<InMariaDb>(url).await,
        "bb8_postgres" => work::<Bb8Postgres>(url).await,
        "deadpool_postgres" => work::<DeadpoolPostgres>(url).await,
        "mysql_async" => work::<InMySqlAsync>(url).await,
        "diesel_postgres" => work::<InDieselPostgres>(url).await,
        "diesel_mysql" => work::<InDieselMySql>(url).await,
        "sea_orm_sqlite" => work::<SeaSqlite>(url).await,
        "sea_orm_postgres" => work::<SeaPostgres>(url).await,
        "sea_orm_mariadb" => work::<SeaMySql>(url).await,
        other => panic!("not a client: {other}"),
    }
}

/// The server may be down for a moment when a process starts.
async fn store<C: Client>(url: &str, pool: &C::Pool) -> SqlStore<C::Backend> {
    let began = Instant::now();
    loop {
        match C::store(url, pool).await {
            Ok(store) => return store,
            Err(error) => assert!(began.elapsed() < OUTAGE, "{error}"),
        }
        say("waits");
        tokio::time::sleep(PATIENCE / 1_000).await;
    }
}

async fn work<C: Client>(url: &str) {
    let pool = C::pool(url);
    let engine = Engine::builder(store::<C>(url, &pool).await)
        .on_running(OnRunning::Wait(PATIENCE))
        .lease(Duration::from_secs(1))
        .max_attempts(None)
        .claim_deadline(PATIENCE)
        .complete_deadline(PATIENCE);
    let mut clerk = Clerk::<C> {
        engine: engine.build().expect("the settings agree"),
        pool,
        stop: Mutex::default(),
    };
    say("ready");
    let mut lines = heard();
    while let Some(line) = lines.recv().await {
        let words: Vec<_> = line.split(' ').collect();
        if let ["stop", passing, step] = words[..] {
            clerk.stop = Mutex::new(Some(Stop {
                passing: passing.parse().expect("a number"),
                step: step.to_owned(),
            }));
            continue;
        }
        assert_eq!(words[0], "orders", "not understood: {line}");
        let serve = async |word: &&str| clerk.serve(word.parse().expect("a number")).await;
        let orders = stream::iter(&words[1..]);
        orders.for_each_concurrent(ORDERS_AT_ONCE, serve).await;
        say("done");
    }
}
