//! `worker clock <url>`: a process with an engine on a file, which prints the clock events that it observes.
//!
//! It reads lines: `call <key>`, and `hold <key>`, whose body never ends. It prints `effect <key>` for each body that
//! begins, and `called <key>`.

use std::env;

use idem_runtime::store::sql::SqliteStore;
use idem_runtime::{Engine, Error, Observer, observe::Event};
use idem_tests::events::Events;
use idem_tests::lines::{heard, say};

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

#[tokio::main(worker_threads = 2)]
async fn main() {
    let url = env::args().nth(2).expect("the URL of a file");
    let store = SqliteStore::connect(url).await.expect("a file");
    store.migrate().await.expect("the table is created");
    let engine = Engine::builder(store).prefix("worker").observer(Told);
    let engine = engine.build().expect("the settings agree");
    let mut lines = heard();
    say("begun");
    while let Some(line) = lines.recv().await {
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
