//! A process that makes calls with steps and stops at their points: to be killed there, or stalled.
//!
//! ```text
//! call <key> <body> <seed> [point …]   a call that stops at these points, each once
//! go <key>                             lets a call go on for good
//! hush, renew                          sends no renewals, and sends them again
//! ```
//!
//! It prints `ready`, `hushed` when no renewal is under way any more, and of each call:
//!
//! ```text
//! at <key> <point>                     it stops there
//! kept <key> <step> <value>            a step has returned what this process did
//! read <key> <step> <value>            a step has returned what another process did
//! refused <key> <step> <kind>          a step has returned an error of idem
//! answer <key> <answer>                the end of the call
//! end <key> <kind>                     the end of the call with an error of idem
//! ```

#[path = "worker/body.rs"]
mod body;
#[path = "worker/call.rs"]
mod call;
#[path = "worker/gated_store.rs"]
mod gated_store;
#[path = "worker/ledger.rs"]
mod ledger;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Parser;
use idem_runtime::__private::KeyBuilder;
use idem_runtime::store::Store;
use idem_runtime::store::layered::LayeredStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::sql::{Backend, Postgres, SqlStore, Sqlite};
use idem_runtime::{Engine, OnLeaseLost, OnRunning};
use idem_tests::lines::{heard, say};
use idem_tests::orders::database::{Database as _, InPostgres, InSqlite};
use idem_tests::seeded::Seeded;

use self::body::{Body, Bookings, Failure};
use self::call::Call;
use self::gated_store::{Calls, GatedStore, Renewals};
use self::ledger::Ledger;

/// The operation of all calls.
const OPERATION: &str = "orders.place";

/// Enough for the transactions that stop at the same time.
const CONNECTIONS: u32 = 16;

/// Exceeds a call's stop and a busy machine's delay of a reply.
const PATIENCE: Duration = Duration::from_mins(1);

/// Settings of a process.
#[derive(Debug, Parser)]
struct Options {
    /// Kind of the store
    #[arg(long)]
    store: String,
    /// URL of the store; of a layered one, that of the store in front
    #[arg(long)]
    url: String,
    /// URL of the durable store of a layered one
    #[arg(long)]
    durable: Option<String>,
    /// Prefix of the records
    #[arg(long)]
    prefix: String,
    /// Table of the records
    #[arg(long)]
    table: String,
    /// Directory of the ledger
    #[arg(long)]
    ledger: PathBuf,
    /// The number of this process
    #[arg(long)]
    name: usize,
    /// The lease in milliseconds
    #[arg(long)]
    lease: u64,
    /// How long a duplicate waits, in milliseconds
    #[arg(long)]
    wait: u64,
}

struct Process {
    engine: Engine,
    ledger: Ledger,
    bookings: Option<Bookings>,
    calls: Arc<Calls>,
    by_key: Mutex<HashMap<String, Arc<Call>>>,
    renewals: Renewals,
}

async fn sql<B: Backend>(url: &str, table: &str) -> SqlStore<B> {
    let store = SqlStore::<B>::builder(url).table(table);
    let store = store.connections(4).response_timeout(PATIENCE);
    store.connect().await.expect("the store is up")
}

async fn redis(url: &str) -> RedisStore {
    let store = RedisStore::builder(url).response_timeout(PATIENCE);
    store.connect().await.expect("the store is up")
}

async fn store(options: &Options) -> Arc<dyn Store> {
    let (url, table) = (&*options.url, &*options.table);
    match &*options.store {
        "sqlite" => Arc::new(sql::<Sqlite>(url, table).await),
        "postgres" => Arc::new(sql::<Postgres>(url, table).await),
        "redis" => Arc::new(redis(url).await),
        "layered" => {
            let durable = options.durable.as_deref().expect("a layered store has two");
            let durable = sql::<Postgres>(durable, table).await;
            Arc::new(LayeredStore::new(redis(url).await, durable))
        }
        other => panic!("no store: {other}"),
    }
}

/// Where rows of calls are written, in the database of the records.
fn bookings(options: &Options) -> Option<Bookings> {
    let (url, rows) = (&*options.url, format!("{}_rows", options.table));
    match (&*options.store, options.durable.as_deref()) {
        ("sqlite", _) => Some(Bookings::Sqlite(rows, InSqlite::pool(url, CONNECTIONS))),
        ("postgres", _) => Some(Bookings::Postgres(rows, InPostgres::pool(url, CONNECTIONS))),
        (_, Some(url)) => Some(Bookings::Postgres(rows, InPostgres::pool(url, CONNECTIONS))),
        _ => None,
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let options = Options::parse();
    let calls = Arc::new(Calls::default());
    let renewals = Renewals::default();
    let store = GatedStore::new(store(&options).await, Arc::clone(&calls), renewals.clone());
    let engine = Engine::builder(store)
        .prefix(&*options.prefix)
        .lease(Duration::from_millis(options.lease))
        .on_running(OnRunning::Wait(Duration::from_millis(options.wait)))
        .on_lease_lost(OnLeaseLost::Continue)
        .max_attempts(None)
        .claim_deadline(PATIENCE)
        .complete_deadline(PATIENCE);
    let process = Arc::new(Process {
        engine: engine.build().expect("the settings agree"),
        bookings: bookings(&options),
        ledger: Ledger {
            process: options.name,
            dir: options.ledger,
        },
        calls,
        by_key: Mutex::default(),
        renewals,
    });
    say("ready");
    let mut lines = heard();
    let mut hushed = None;
    while let Some(line) = lines.recv().await {
        match &*line {
            "hush" => {
                hushed = Some(process.renewals.write().await);
                say("hushed");
            }
            "renew" => drop(hushed.take()),
            line => process.obey(line),
        }
    }
}

impl Process {
    fn obey(self: &Arc<Self>, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        match words[..] {
            ["call", key, body, seed, ref points @ ..] => {
                let call = Arc::new(Call::new(key, points));
                let digest = KeyBuilder::new(OPERATION, 1024).key(key);
                self.calls.add(&digest.expect("a short key"), &call);
                by_key.insert(key.to_owned(), Arc::clone(&call));
                let seeded = Seeded::new(seed.parse().expect("a number"));
                let (this, body) = (Arc::clone(self), Body::named(body));
                tokio::spawn(async move { this.call(&call, body, seeded).await });
            }
            ["go", key] => by_key[key].go(),
            _ => panic!("not understood: {line}"),
        }
    }

    async fn call(&self, call: &Arc<Call>, body: Body, seeded: Seeded) {
        let key = &*call.key;
        let bookings = self.bookings.as_ref();
        let answer = self
            .engine
            .operation(OPERATION)
            .key(key)
            .run(async |_| body.run(call, &self.ledger, bookings, seeded).await)
            .await;
        match answer {
            Ok(answer) => say(&format!("answer {key} {answer}")),
            Err(Failure::Idem(error)) => {
                say(&format!("end {key} {}", call::kind(&error)));
            }
            Err(other) => say(&format!("end {key} {other:?}")),
        }
    }
}
