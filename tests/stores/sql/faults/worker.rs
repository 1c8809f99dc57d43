//! A process of the tests of SQL stores.
//!
//! `worker purge <url>`: purges one record in ten seconds until it is killed.
//!
//! `worker clock <url>`: prints the clock events that it observes. Then reads lines: `call <key>`, and `hold <key>`,
//! whose body never ends. Prints `effect <key>` for each body that begins, and `called <key>`.

use std::env;
use std::io::{self, Write as _};
use std::time::Duration;

use idem_runtime::store::sql::{Backend, MySql, Postgres, Purge, SqlStore, Sqlite};
use idem_runtime::{Engine, Error, Observer, observe::Event};
use idem_tests::events::Events;
use tokio::sync::mpsc;

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
    match arguments[0].as_str() {
        "purge" => {
            let slow = Purge::default().batch(1).pause(Duration::from_secs(10));
            let _task = store.spawn_purge(slow);
            say("begun");
            std::future::pending::<()>().await;
        }
        "clock" => clock(store).await,
        other => panic!("not understood: {other}"),
    }
}

#[derive(Debug)]
struct Told;

impl Observer for Told {
    fn observe(&self, event: &Event<'_>) {
        let words = Events::words(event);
        if words.starts_with("clock") {
            say(&words);
        }
    }
}

async fn clock<B: Backend>(store: SqlStore<B>) {
    let engine = Engine::builder(store).prefix("worker").observer(Told);
    let engine = engine.build().expect("the settings agree");
    let (lines, mut line) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let read = io::stdin().lines().map_while(Result::ok);
        read.for_each(|line| drop(lines.send(line)));
    });
    say("begun");
    while let Some(line) = line.recv().await {
        let (what, key) = line.split_once(' ').expect("a word and a key");
        let (holds, name) = (what == "hold", key.to_owned());
        let call = engine.operation("work").key(key);
        let call = call.run(async move |_| {
            say(&format!("effect {name}"));
            if holds {
                std::future::pending::<()>().await;
            }
            Ok::<_, Error>(())
        });
        if holds {
            tokio::spawn(call);
        } else {
            call.await.expect("nothing is in its way");
            say(&format!("called {key}"));
        }
    }
}
