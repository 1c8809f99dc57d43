//! A process that makes calls on command: `idem-worker <url> <address> <prefix> <lease ms> <wait ms>`.
//!
//! The store's URL, and the server's own address for effects. Then, in lines:
//!
//! ```text
//! call <key> now|hold        a call; the body of `hold` waits for `go`
//! burst <key> <count>        so many calls at once, whose body waits for `go`
//! go                         ends the bodies that wait
//! ```
//!
//! It prints `start <fence> <attempt>`, `held` and `effect` of a body, and `return <answer>` or `end <why>` of a call.

use std::collections::BTreeSet;
use std::env;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idem_harness::RespConn;
use idem_runtime::{Context, Engine, OnRunning};
use idem_tests::lines::{heard, random, say};
use idem_tests::shop::{Failure, PATIENCE, connect};
use tokio::sync::watch;
use tokio::task::JoinSet;

struct Process {
    engine: Engine,
    prefix: String,
    raw: Mutex<RespConn>,
    go: watch::Sender<bool>,
    /// Calls of the burst that have begun.
    begun: AtomicU64,
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [url, address, prefix, lease, wait] = &arguments[..] else {
        panic!("worker <url> <address> <prefix> <lease ms> <wait ms>");
    };
    let millis = |text: &String| Duration::from_millis(text.parse().expect("milliseconds"));
    let store = connect(url).await;
    let engine = Engine::builder(store.expect("the server answers"))
        .prefix(prefix)
        .lease(millis(lease))
        .on_running(OnRunning::Wait(millis(wait)))
        .max_attempts(None)
        .claim_deadline(PATIENCE)
        .complete_deadline(PATIENCE);
    let address = address.parse().expect("an address");
    let process = Arc::new(Process {
        engine: engine.build().expect("the settings agree"),
        prefix: prefix.clone(),
        raw: Mutex::new(RespConn::open(address).expect("the server answers")),
        go: watch::Sender::new(false),
        begun: AtomicU64::new(0),
    });
    say("ready");
    let mut lines = heard();
    while let Some(line) = lines.recv().await {
        let this = Arc::clone(&process);
        let words: Vec<_> = line.split(' ').map(ToOwned::to_owned).collect();
        match &words[..] {
            [word, key, how] if word == "call" => {
                let (key, hold) = (key.clone(), how == "hold");
                tokio::spawn(async move { this.single(&key, hold).await });
            }
            [word, key, count] if word == "burst" => {
                let (key, count) = (key.clone(), count.parse().expect("a number"));
                tokio::spawn(async move { this.burst(key, count).await });
            }
            [word] if word == "go" => drop(process.go.send_replace(true)),
            _ => panic!("not understood: {line}"),
        }
    }
}

impl Process {
    async fn call(&self, key: &str, hold: bool) -> Result<String, Failure> {
        let body = async |context: Context| {
            let fence = context.fence().await?.get();
            say(&format!("start {fence} {}", context.attempt()));
            if hold {
                say("held");
                let mut go = self.go.subscribe();
                go.wait_for(|go| *go).await.expect("the sender lives");
            }
            let mut raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
            let counted = raw.command(&["INCR", &format!("{}:effects:{key}", self.prefix)]);
            counted.expect("the server answers");
            say("effect");
            Ok(random())
        };
        self.engine.operation("work").key(key).run(body).await
    }

    async fn single(&self, key: &str, hold: bool) {
        match self.call(key, hold).await {
            Ok(answer) => say(&format!("return {answer}")),
            Err(Failure::Idem(error)) => say(&format!("end {:?}", error.kind())),
            Err(other) => say(&format!("end {other:?}")),
        }
    }

    /// Ends with `burst <answers> <errors> <different answers> <one of them>`.
    async fn burst(self: Arc<Self>, key: String, count: u64) {
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            let (this, key) = (Arc::clone(&self), key.clone());
            tasks.spawn(async move {
                if this.begun.fetch_add(1, Ordering::SeqCst) + 1 == count {
                    say("begun");
                }
                this.call(&key, true).await
            });
        }
        let answers = tasks.join_all().await;
        let good: BTreeSet<_> = answers.iter().filter_map(|one| one.as_ref().ok()).collect();
        let errors = answers.iter().filter(|one| one.is_err()).count();
        let first = good.first().map_or("none", |answer| answer.as_str());
        let answers = answers.len() - errors;
        say(&format!("burst {answers} {errors} {} {first}", good.len()));
    }
}
