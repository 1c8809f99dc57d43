//! A process of the tests of SQL stores.
//!
//! `worker calls <url> <keys> <calls>`: so many calls, each tried until it has its answer. Tells
//! `effect <key>` for each body that ran, and `done`.
//!
//! `worker purge <url>`: purges one record in ten seconds until it is killed.

use std::env;
use std::io::{self, Write as _};
use std::time::Duration;

use idem_runtime::store::sql::{Backend, MySql, Postgres, Purge, SqlStore, Sqlite};
use idem_runtime::{Engine, Error};
use tokio::task::JoinSet;

const TASKS: u64 = 8;

fn say(line: &str) {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").expect("somebody listens");
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let url = arguments[1].as_str();
    match url.split_once(':') {
        Some(("sqlite", _)) => work::<Sqlite>(&arguments).await,
        Some(("postgres", _)) => work::<Postgres>(&arguments).await,
        Some(("mysql", _)) => work::<MySql>(&arguments).await,
        _ => panic!("no URL of a database"),
    }
}

async fn work<B: Backend>(arguments: &[String]) {
    let store = SqlStore::<B>::builder(&arguments[1]).response_timeout(Duration::from_secs(20));
    let store = store.connect().await.expect("the database is there");
    store.migrate().await.expect("the table is created");
    let number = |at: usize| arguments[at].parse::<u64>().expect("a number");
    match arguments[0].as_str() {
        "calls" => calls(store, number(2), number(3)).await,
        "purge" => {
            let slow = Purge::default().batch(1).pause(Duration::from_secs(10));
            let _task = store.spawn_purge(slow);
            say("begun");
            std::future::pending::<()>().await;
        }
        other => panic!("not understood: {other}"),
    }
}

async fn calls<B: Backend>(store: SqlStore<B>, keys: u64, calls: u64) {
    let builder = Engine::builder(store).prefix("worker");
    let builder = builder.claim_deadline(Duration::from_mins(1));
    let engine = builder.build().expect("the settings agree");
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let engine = engine.clone();
        tasks.spawn(async move {
            for call in (task..calls).step_by(TASKS.try_into().expect("a few")) {
                let key = call % keys;
                loop {
                    let answer: Result<u64, Error> = engine
                        .operation("work")
                        .key(&key)
                        .run(async |_| {
                            say(&format!("effect {key}"));
                            Ok(key)
                        })
                        .await;
                    match answer {
                        Ok(answer) => break assert_eq!(answer, key),
                        Err(error) if error.is_retryable() => say(&format!("again {error}")),
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        });
    }
    tasks.join_all().await;
    say("done");
}
