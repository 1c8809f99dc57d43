//! A process that makes calls on command, and prints their events: see `History::line`.
//!
//! `worker <url> <address> <prefix> <lease ms> <wait ms>`: the store's URL, and the server's own
//! address for effects and time. Then, in lines:
//!
//! ```text
//! call <id> <key> now|hold            a call; `hold` runs its body until it is told
//! finish <id>                         ends a held body
//! burst <key> <count>                 so many calls at once; their body ends with `go`
//! soak <seed>                         calls of the window's keys until `stop`
//! window <first>                      the keys from this one on
//! ```

use std::collections::{BTreeSet, HashMap};
use std::env;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use idem_harness::{Reply, RespConn};
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Context, Engine, Observer, OnRunning, observe::Event};
use idem_tests::events::Events;
use idem_tests::lines::{heard, random, say};
use idem_tests::seeded::Seeded;
use idem_tests::shop::Failure;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

/// Number of keys in a window, and of tasks that call them.
const WINDOW: u64 = 5;
const TASKS: u64 = 8;

type Body = Result<(), Failure>;

struct Process {
    engine: Engine,
    prefix: String,
    raw: Mutex<RespConn>,
    held: Mutex<HashMap<u64, oneshot::Sender<()>>>,
    go: watch::Sender<bool>,
    stop: AtomicBool,
    window: AtomicU64,
    calls: AtomicU64,
}

/// Prints the events besides the calls.
#[derive(Debug)]
struct Told;

impl Observer for Told {
    fn observe(&self, event: &Event<'_>) {
        let words = Events::words(event);
        if ["renewed", "lease lost", "unsaved", "adopted"]
            .iter()
            .any(|start| words.starts_with(start))
        {
            say(&format!("event {words}"));
        }
    }
}

/// Connects, also to a server with faults.
async fn connect(url: &str) -> RedisStore {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        match RedisStore::connect(url).await {
            Err(error) if error.is_transient() && Instant::now() < patience => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            store => return store.expect("the server answers"),
        }
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [url, address, prefix, lease, wait] = &arguments[..] else {
        panic!("worker <url> <address> <prefix> <lease ms> <wait ms>");
    };
    let millis = |text: &String| Duration::from_millis(text.parse().expect("milliseconds"));
    let store = connect(url).await;
    let engine = Engine::builder(store)
        .prefix(prefix)
        .lease(millis(lease))
        .on_running(OnRunning::Wait(millis(wait)))
        .max_attempts(None)
        .claim_deadline(Duration::from_secs(20))
        .complete_deadline(Duration::from_secs(20))
        .observer(Told);
    let address = address.parse().expect("an address");
    let process = Arc::new(Process {
        engine: engine.build().expect("the settings agree"),
        prefix: prefix.clone(),
        raw: Mutex::new(RespConn::open(address).expect("the server answers")),
        held: Mutex::default(),
        go: watch::Sender::new(false),
        stop: AtomicBool::new(false),
        window: AtomicU64::new(0),
        calls: AtomicU64::new(1_000_000),
    });
    say("ready");
    let mut lines = heard();
    while let Some(line) = lines.recv().await {
        process.told(&line);
    }
}

impl Process {
    fn told(self: &Arc<Self>, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        let this = Arc::clone(self);
        match words[0] {
            "call" => {
                let (id, key, hold) = (number(1), words[2].to_owned(), words[3] == "hold");
                tokio::spawn(async move { this.single(id, &key, hold).await });
            }
            "finish" => self.end(number(1)),
            "burst" => {
                let (key, count) = (words[1].to_owned(), number(2));
                tokio::spawn(async move { this.burst(key, count).await });
            }
            "go" => drop(self.go.send_replace(true)),
            "soak" => {
                let seed = number(1);
                tokio::spawn(async move { this.soak(seed).await });
            }
            "stop" => self.stop.store(true, Ordering::SeqCst),
            "window" => self.window.store(number(1), Ordering::SeqCst),
            other => panic!("not understood: {other}"),
        }
    }

    fn raw(&self, command: &[&str]) -> Reply {
        let mut raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        raw.command(command).expect("the server answers")
    }

    /// Microseconds of the server's clock.
    fn time(&self) -> u64 {
        let reply = self.raw(&["TIME"]).to_string();
        let parts = reply.lines().map(str::parse::<u64>);
        let parts: Vec<_> = parts.map(|part| part.expect("a number")).collect();
        parts[0] * 1_000_000 + parts[1]
    }

    fn effect(&self, id: u64, key: &str) {
        self.raw(&["INCR", &format!("{}:effects:{key}", self.prefix)]);
        say(&format!("effect {id} {key}"));
    }

    fn end(&self, id: u64) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let body = held.remove(&id).expect("the body is held");
        body.send(()).expect("the body waits");
    }

    /// A call, printed from its beginning to its end. Returns true when it has an answer.
    async fn call(&self, id: u64, key: &str, body: impl Future<Output = Body>) -> bool {
        say(&format!("invoke {id} {key} {}", self.time()));
        let call = self.engine.operation("work").key(key);
        let answer = call
            .run(async |context: Context| {
                let (time, fence) = (
                    self.time(),
                    context.fence().await.map_err(Failure::from)?.get(),
                );
                let attempt = context.attempt();
                say(&format!("start {id} {key} {time} {fence} {attempt}"));
                let ending = body.await;
                if ending.is_err() {
                    say(&format!("failed {id} {key}"));
                }
                ending.map(|()| random())
            })
            .await;
        match &answer {
            Ok(answer) => say(&format!("return {id} {key} {} {answer}", self.time())),
            Err(Failure::Idem(error)) => say(&format!("end {id} {key} {:?}", error.kind())),
            Err(other) => say(&format!("end {id} {key} {other:?}")),
        }
        answer.is_ok()
    }

    fn hold(&self, id: u64) -> oneshot::Receiver<()> {
        let (sender, ending) = oneshot::channel();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.insert(id, sender);
        ending
    }

    async fn single(&self, id: u64, key: &str, hold: bool) {
        let body = async {
            if hold {
                let ending = self.hold(id);
                say(&format!("event held {id}"));
                ending.await.expect("the sender waits for the body");
            }
            self.effect(id, key);
            Ok(())
        };
        self.call(id, key, body).await;
    }

    /// Ends with `burst <answers> <errors> <different answers> <one of them>`.
    async fn burst(self: Arc<Self>, key: String, count: u64) {
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            let (this, key) = (Arc::clone(&self), key.clone());
            tasks.spawn(async move {
                if this.calls.fetch_add(1, Ordering::SeqCst) + 1 == 1_000_000 + count {
                    say("begun");
                }
                let body = async |_| {
                    let mut go = this.go.subscribe();
                    go.wait_for(|go| *go).await.expect("the sender lives");
                    this.effect(0, &key);
                    Ok::<_, Failure>(random())
                };
                this.engine.operation("work").key(&key).run(body).await
            });
        }
        let answers = tasks.join_all().await;
        let good: BTreeSet<_> = answers.iter().filter_map(|one| one.as_ref().ok()).collect();
        let errors = answers.iter().filter(|one| one.is_err()).count();
        let first = good.first().map_or("none", |answer| answer.as_str());
        let answers = answers.len() - errors;
        say(&format!("burst {answers} {errors} {} {first}", good.len()));
    }

    /// A body that takes a while and may fail before or after its effect.
    async fn chance(&self, id: u64, key: &str, mut seeded: Seeded) -> Body {
        let pause = async |seeded: &mut Seeded| {
            tokio::time::sleep(Duration::from_millis(seeded.below(10))).await;
        };
        pause(&mut seeded).await;
        if seeded.percent(10) {
            return Err(Failure::Down);
        }
        self.effect(id, key);
        pause(&mut seeded).await;
        if seeded.percent(20) {
            return Err(Failure::Down);
        }
        Ok(())
    }

    async fn try_once(&self, key: &str, seeded: &mut Seeded) -> bool {
        let id = self.calls.fetch_add(1, Ordering::SeqCst);
        let chance = Seeded::new(seeded.below(u64::MAX));
        self.call(id, key, self.chance(id, key, chance)).await
    }

    /// Ends with `stopped`.
    async fn soak(self: Arc<Self>, seed: u64) {
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let (this, mut seeded) = (Arc::clone(&self), Seeded::new(seed ^ task << 32));
            tasks.spawn(async move {
                while !this.stop.load(Ordering::SeqCst) {
                    let first = this.window.load(Ordering::SeqCst);
                    let key = format!("k{}", first + seeded.below(WINDOW));
                    this.try_once(&key, &mut seeded).await;
                }
            });
        }
        tasks.join_all().await;
        say("stopped");
    }
}
