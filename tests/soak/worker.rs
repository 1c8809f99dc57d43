//! A worker process: `worker <settings in JSON>`.
//!
//! It prints `ready` and `calls <n>` now and then, and `stopped` after it received `stop`; an audit ends by itself.

use std::io::{self, BufRead};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fmt::Write as _, panic, process, thread};

use futures_util::future::OptionFuture;
use idem_runtime::observe::MetricsObserver;
use idem_runtime::{Engine, Observer, observe::Event};
use idem_tests::checker::journal::{Journal, now};
use idem_tests::checker::{Family, History};
use idem_tests::events::Events;
use idem_tests::lines::say;
use idem_tests::seeded::Seeded;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::books::Books;
use crate::mix::{self, Ending, Plan};
use crate::stores::{self, Connected};
use crate::{calls, metrics};

/// The settings of a process.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Settings {
    /// Calls every answered key once more, and nothing else.
    pub(crate) audits: bool,
    pub(crate) store: String,
    pub(crate) url: String,
    pub(crate) dir: PathBuf,
    pub(crate) number: u32,
    pub(crate) seed: u64,
    pub(crate) lease: Duration,
    /// The port of its metrics.
    pub(crate) metrics: Option<u16>,
}

pub(crate) struct Worker {
    pub(crate) engine: Engine,
    pub(crate) journal: Arc<Journal>,
    pub(crate) number: u32,
    pub(crate) books: Books,
    /// Where effects land that a reconcile hook can see.
    pub(crate) effects: PathBuf,
    next: AtomicU32,
    stop: AtomicBool,
}

/// Longer than a busy machine takes for a reply.
const PATIENCE: Duration = Duration::from_secs(20);

/// Writes what matters of the engine's events: to understand a history, not to judge it.
#[derive(Debug)]
struct Watching(Arc<Journal>);

impl Observer for Watching {
    fn observe(&self, event: &Event<'_>) {
        let words = Events::words(event).replace('\n', " ");
        let matters = ["unsaved", "lease lost", "adopted", "warning"];
        if matters.iter().any(|start| words.starts_with(start)) || words.ends_with(" late") {
            let key = event.key.map_or("-".to_owned(), ToString::to_string);
            self.0.write(format_args!("event 0 {key} {words}"));
        }
    }
}

pub(crate) fn main(settings: &str) {
    let settings: Settings = serde_json::from_str(settings).expect("settings of this program");
    panic::set_hook(Box::new(|info| {
        let message = info.payload().downcast_ref::<&str>().copied();
        if message != Some(calls::PANIC) {
            eprintln!("soak worker {}: {info}", process::id());
            // A planned panic of a body is the end of its call; any other panic ends the worker, and the soak fails.
            process::abort();
        }
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime starts").block_on(async {
        let worker = Worker::connect(&settings).await;
        say("ready");
        if settings.audits {
            worker.audit(&settings).await;
        } else {
            worker.work(&settings).await;
        }
        worker.shut_down().await;
    });
}

impl Worker {
    async fn connect(settings: &Settings) -> Arc<Self> {
        let (number, dir, lease) = (settings.number, &settings.dir, settings.lease);
        // Before the first call: handles of an operation are made at it.
        let metrics: Option<MetricsObserver> =
            OptionFuture::from(settings.metrics.map(metrics::serve)).await;
        let journal = Journal::open(dir, number).expect("the directory is there");
        let journal = Arc::new(journal);
        let Connected { engine, books } =
            stores::connect(&settings.store, &settings.url, dir).await;
        let mut observers: Vec<Arc<dyn Observer>> = vec![Arc::new(Watching(Arc::clone(&journal)))];
        observers.extend(metrics.map(|metrics| Arc::new(metrics) as Arc<dyn Observer>));
        let mut engine = engine
            .prefix(stores::PREFIX)
            .instance(format!("worker-{number}"))
            .lease(lease)
            .max_attempts(None)
            .observer(observers);
        if lease > PATIENCE {
            // Nothing is to depend on how fast the machine is.
            engine = engine.claim_deadline(PATIENCE).complete_deadline(PATIENCE);
        }
        Arc::new(Self {
            engine: engine.build().expect("the settings agree"),
            journal,
            number,
            books,
            effects: dir.join("effects"),
            next: AtomicU32::new(1),
            stop: AtomicBool::new(false),
        })
    }

    async fn shut_down(&self) {
        let shutdown = self.engine.shutdown(Duration::from_mins(1)).await;
        let how = shutdown.map_or_else(|left| left.to_string(), |()| "in order".to_owned());
        self.journal.write(format_args!("stopped 0 - {how}"));
        say("stopped");
    }

    /// The number of the next call, or of an operator's command.
    pub(crate) fn next(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Prints the number of calls that were begun.
    fn report(&self) {
        say(&format!("calls {}", self.next.load(Ordering::Relaxed) - 1));
    }

    async fn work(self: &Arc<Self>, settings: &Settings) {
        let this = Arc::clone(self);
        thread::spawn(move || {
            // Until then, or until the soak is gone.
            let mut lines = io::stdin().lock().lines().map_while(Result::ok);
            lines.find(|line| line == "stop");
            this.stop.store(true, Ordering::SeqCst);
        });
        let mut tasks = JoinSet::new();
        for task in 0..stores::tasks(&settings.store) {
            let this = Arc::clone(self);
            let mut seeded = Seeded::new(settings.seed ^ task << 40 ^ u64::from(self.number) << 20);
            tasks.spawn(async move {
                while !this.stop.load(Ordering::SeqCst) {
                    this.turn(&mut seeded).await;
                }
            });
        }
        while !self.stop.load(Ordering::SeqCst) {
            self.report();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        tasks.join_all().await;
    }

    /// One call, and what its caller does next.
    async fn turn(self: &Arc<Self>, seeded: &mut Seeded) {
        let (family, key) = mix::key(seeded, now(), self.books.are_kept());
        if matches!(family, Family::Reset | Family::Unknown) && seeded.percent(6) {
            return self.operate(&key, seeded.percent(50)).await;
        }
        let mut plan = mix::plan(seeded, family, key);
        let down = self.call(plan.clone()).await == "down";
        if down && family == Family::Corrected {
            plan.payload = 1;
            plan.ending = Ending::Answer;
            self.call(plan).await;
        }
        // A task whose calls are refused immediately would call without end.
        tokio::time::sleep(Duration::from_millis(seeded.below(6))).await;
    }

    /// A new process repeats every answered key, and reads its record.
    async fn audit(self: &Arc<Self>, settings: &Settings) {
        let history = History::read(&settings.dir).expect("the journals can be read");
        let mut answered = Vec::new();
        for (key, calls) in history.keys {
            let calls = calls.calls.iter().filter(|call| call.answer().is_some());
            let mut payloads: Vec<_> = calls.map(|call| call.payload).collect();
            payloads.sort_unstable();
            payloads.dedup();
            answered.extend(payloads.into_iter().map(|payload| (key.clone(), payload)));
        }
        let answered = Arc::new(Mutex::new(answered));
        let mut tasks = JoinSet::new();
        for _ in 0..16 {
            let (this, keys) = (Arc::clone(self), Arc::clone(&answered));
            let next = move || keys.lock().unwrap_or_else(PoisonError::into_inner).pop();
            tasks.spawn(async move {
                while let Some((key, payload)) = next() {
                    this.recorded(&key).await;
                    this.call(Plan::audit(key.into(), payload)).await;
                    this.report();
                }
            });
        }
        tasks.join_all().await;
        let rows = self.books.rows().await.expect("the ledger can be read");
        for (key, answer) in rows {
            self.journal.write(format_args!("row 0 {key} {answer}"));
        }
    }

    /// Attempts in the record of a key.
    async fn recorded(&self, key: &str) {
        let call = self.engine.operation(Family::of_key(key).names().1);
        let Ok(Some(entry)) = call.key(key).entry().await else {
            return;
        };
        let mut words = String::new();
        for attempt in entry.recorded_attempts() {
            let (fence, end) = (attempt.fence.get(), attempt.end.as_str());
            write!(words, " {fence}:{end}").expect("a string takes anything");
        }
        if !words.is_empty() {
            self.journal.write(format_args!("recorded 0 {key}{words}"));
        }
    }
}
