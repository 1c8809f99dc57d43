//! A worker process: calls by chance, each in the journal before and after what counts.
//!
//! `worker <store> <url> <dir> <number> <seed> <lease ms> <port of metrics or ->`; `audit …` instead calls the keys of `<dir>/audit` once.
//! It prints `calls <n>` now and then, and `stopped` after it received `stop`.

use std::fmt::Write as _;
use std::io::{self, BufRead};
use std::num::NonZeroU16;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fs, process, thread};

use futures_util::future::OptionFuture;
use idem_runtime::observe::MetricsObserver;
use idem_runtime::{
    Context, Engine, ErrorKind, Observer, OnCancel, OnRunning, Reconciled, admin::EntryState,
};
use idem_tests::lines::say;
use idem_tests::seeded::Seeded;
use tokio::task::JoinSet;

use crate::body::Body;
use crate::books::Books;
use crate::clock::now;
use crate::journal::Journal;
use crate::metrics;
use crate::mix::{self, Ending, Family, Plan};
use crate::outcome::{Failure, Receipt, told};
use crate::stores::{self, Connected};
use crate::watching::Watching;

/// Calls that a process makes at once. What a store does when it is offered more than it can do is another test's.
fn tasks(store: &str) -> u64 {
    match store {
        "sqlite" => 8,
        "postgres" | "mariadb" => 20,
        _ => 48,
    }
}

pub(crate) struct Worker {
    pub(crate) engine: Engine,
    pub(crate) journal: Arc<Journal>,
    number: u32,
    books: Books,
    /// Where effects land that a reconcile hook can see.
    effects: PathBuf,
    next: AtomicU32,
    stop: AtomicBool,
}

pub(crate) fn main(arguments: &[String]) {
    let [manner, store, url, dir, number, seed, lease, port] = arguments else {
        panic!("worker <store> <url> <dir> <number> <seed> <lease ms> <port of metrics or ->");
    };
    panic::set_hook(Box::new(|info| {
        let message = info.payload().downcast_ref::<&str>().copied();
        if message != Some(PANIC) {
            eprintln!("soak worker {}: {info}", process::id());
        }
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let number: u32 = number.parse().expect("a number");
    let seed: u64 = seed.parse().expect("a seed");
    let lease = Duration::from_millis(lease.parse().expect("milliseconds"));
    let work = async {
        // Before the first call: handles of an operation are made at it.
        let metrics = OptionFuture::from(port.parse().ok().map(metrics::serve)).await;
        let worker = Worker::connect(store, url, Path::new(dir), number, (lease, metrics)).await;
        say("ready");
        match &**manner {
            "audit" => worker.audit(Path::new(dir)).await,
            _ => worker.work(seed, tasks(store)).await,
        }
        worker.shut_down().await;
    };
    runtime.expect("a runtime starts").block_on(work);
}

/// Longer than a busy machine takes for a reply.
const PATIENCE: Duration = Duration::from_secs(20);

const PANIC: &str = "a body of the soak panics";

impl Worker {
    async fn connect(
        store: &str,
        url: &str,
        dir: &Path,
        number: u32,
        (lease, metrics): (Duration, Option<MetricsObserver>),
    ) -> Arc<Self> {
        let journal = Journal::open(&dir.join(format!("worker-{number}.log")));
        let journal = Arc::new(journal.expect("the directory is there"));
        let Connected { engine, books } = stores::connect(store, url, dir).await;
        let mut observers: Vec<Arc<dyn Observer>> = vec![Arc::new(Watching(Arc::clone(&journal)))];
        observers.extend(metrics.map(|metrics| Arc::new(metrics) as Arc<dyn Observer>));
        let mut engine = engine
            .prefix("soak")
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

    async fn work(self: &Arc<Self>, seed: u64, count: u64) {
        let this = Arc::clone(self);
        thread::spawn(move || {
            // Until then, or until the soak is gone.
            let mut lines = io::stdin().lock().lines().map_while(Result::ok);
            lines.find(|line| line == "stop");
            this.stop.store(true, Ordering::SeqCst);
        });
        let mut tasks = JoinSet::new();
        for task in 0..count {
            let this = Arc::clone(self);
            let mut seeded = Seeded::new(seed ^ task << 40 ^ u64::from(self.number) << 20);
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
        self.report();
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
        // One that is refused at once would call without end.
        tokio::time::sleep(Duration::from_millis(seeded.below(6))).await;
    }

    /// A fresh process calls every answered key once more.
    async fn audit(self: &Arc<Self>, dir: &Path) {
        let keys = fs::read_to_string(dir.join("audit")).expect("the keys are there");
        let keys: Vec<_> = keys.lines().map(ToOwned::to_owned).collect();
        let keys = Arc::new(Mutex::new(keys));
        let mut tasks = JoinSet::new();
        for _ in 0..16 {
            let (this, keys) = (Arc::clone(self), Arc::clone(&keys));
            let next = move || keys.lock().unwrap_or_else(PoisonError::into_inner).pop();
            tasks.spawn(async move {
                while let Some(line) = next() {
                    let (key, payload) = line.split_once(' ').expect("a key and a payload");
                    this.recorded(key).await;
                    this.call(Plan {
                        key: key.to_owned(),
                        family: Family::of_key(key),
                        payload: payload.parse().expect("a payload"),
                        on_running: OnRunning::Wait(Duration::from_secs(5)),
                        pause: Duration::ZERO,
                        fence: false,
                        ending: Ending::Answer,
                        leaves: None,
                    })
                    .await;
                    this.report();
                }
            });
        }
        tasks.join_all().await;
    }

    /// Prints the number of calls that were begun.
    fn report(&self) {
        say(&format!("calls {}", self.next.load(Ordering::Relaxed) - 1));
    }

    /// What the record of a key remembers of its attempts.
    async fn recorded(&self, key: &str) {
        let call = self.engine.operation(Family::of_key(key).names().1);
        let Ok(Some(entry)) = call.key(key).entry().await else {
            return;
        };
        let mut words = String::new();
        for attempt in entry.recorded_attempts() {
            let (fence, end) = (attempt.fence.get(), attempt.end);
            write!(words, " {fence}:{end}").expect("a string takes anything");
        }
        if !words.is_empty() {
            self.journal.write(format_args!("recorded 0 {key}{words}"));
        }
    }

    /// A call, from its beginning to its end. Returns its outcome.
    async fn call(self: &Arc<Self>, plan: Plan) -> String {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (key, payload) = (plan.key.clone(), plan.payload);
        self.journal
            .write(format_args!("call {id} {key} {payload}"));
        let this = Arc::clone(self);
        // In a task of its own, where it may panic.
        let told = tokio::spawn(async move {
            let leaves = plan.leaves;
            let made = Box::pin(this.made(id, plan));
            match leaves {
                None => told(&made.await),
                Some(after) => (tokio::time::timeout(after, made).await)
                    .map_or_else(|_| "gone".to_owned(), |answer| told(&answer)),
            }
        });
        let told = told.await.unwrap_or_else(|_| "panic".to_owned());
        self.journal.write(format_args!("told {id} {key} {told}"));
        told
    }

    async fn made(self: Arc<Self>, id: u32, plan: Plan) -> Result<Receipt, Failure> {
        let call = self.engine.operation(plan.family.names().1);
        let call = call.key(&plan.key).fingerprint(&plan.payload);
        let call = call.on_running(plan.on_running);
        match plan.family {
            Family::Once => {
                let call = call.max_attempts(Some(NonZeroU16::MIN));
                call.run(|cx| self.body(cx, id, &plan)).await
            }
            Family::Unknown => {
                let call = call.on_cancel(OnCancel::Unknown);
                call.run(|cx| self.body(cx, id, &plan)).await
            }
            Family::Finished => {
                let this = Arc::clone(&self);
                let body = async move |cx| this.body(cx, id, &plan).await;
                call.finish(move |cx| async move { body(cx).await }).await
            }
            Family::Reconciled => {
                let hook = async |_| self.reconcile(id, &plan.key);
                call.run_reconciled(hook, |cx| self.body(cx, id, &plan))
                    .await
            }
            Family::Booked => self.books.book(&self, call, id, &plan).await,
            Family::Plain | Family::Reset | Family::Corrected => {
                call.run(|cx| self.body(cx, id, &plan)).await
            }
        }
    }

    async fn body(&self, context: Context, id: u32, plan: &Plan) -> Result<Receipt, Failure> {
        let key = &*plan.key;
        let body = self.started(&context, id, key);
        if plan.fence {
            // Nothing has happened yet if it cannot be had.
            match context.fence().await {
                Ok(fence) => {
                    let fence = fence.get();
                    self.journal.write(format_args!("fence {id} {key} {fence}"))
                }
                Err(_) => return body.ends(Err(Failure::Down)),
            };
        }
        if !plan.pause.is_zero() {
            tokio::time::sleep(plan.pause).await;
        }
        let answer = Receipt(self.answer(id, plan));
        let lands = plan.ending == Ending::Answer
            || (plan.ending == Ending::Unknown && id.is_multiple_of(2));
        let answer = match plan.family {
            Family::Reconciled if lands => Receipt(self.land(key, &answer.0)),
            _ => answer,
        };
        body.ends(ending(plan, answer))
    }

    fn started<'a>(&'a self, context: &Context, id: u32, key: &'a str) -> Body<'a> {
        let (attempt, digest) = (context.attempt(), context.key());
        self.journal
            .write(format_args!("start {id} {key} {attempt} {digest}"));
        Body {
            journal: &self.journal,
            id,
            key,
            ended: false,
        }
    }

    /// An answer that no other body gives, and that names the payload.
    fn answer(&self, id: u32, plan: &Plan) -> String {
        format!("{}.{id}/{}", self.number, plan.payload)
    }

    /// The effect of a body in a place that knows its key: the first one counts.
    fn land(&self, key: &str, answer: &str) -> String {
        let (place, draft) = (
            self.effects.join(key),
            self.effects.join(answer.replace('/', "-")),
        );
        fs::write(&draft, answer).expect("the disk has room for effects");
        // A link appears whole or not at all.
        drop(fs::hard_link(&draft, &place));
        drop(fs::remove_file(&draft));
        fs::read_to_string(&place).expect("an effect has landed")
    }

    fn reconcile(&self, id: u32, key: &str) -> Reconciled<Receipt> {
        let found = fs::read_to_string(self.effects.join(key));
        let verdict = if id.is_multiple_of(10) {
            "unknown"
        } else if found.is_ok() {
            "landed"
        } else {
            "not"
        };
        self.journal
            .write(format_args!("hook {id} {key} {verdict}"));
        match (verdict, found) {
            ("landed", Ok(answer)) => Reconciled::Landed(Receipt(answer)),
            ("not", _) => Reconciled::NotLanded,
            _ => Reconciled::Unknown,
        }
    }

    /// An operator reads the record of a key, and resets it, or resolves an unknown outcome.
    async fn operate(&self, key: &str, resolves: bool) {
        let family = Family::of_key(key);
        let call = self.engine.operation(family.names().1).key(key);
        let Ok(Some(entry)) = call.entry().await else {
            return;
        };
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let resolves = resolves || family == Family::Unknown;
        if matches!(entry.state(), EntryState::Running { .. })
            || (resolves && entry.state() != EntryState::Unknown)
        {
            return;
        }
        let (word, answer) = if resolves {
            ("resolve", format!(" {}.{id}/0", self.number))
        } else {
            ("reset", String::new())
        };
        self.journal
            .write(format_args!("{word} {id} {key} begin{answer}"));
        let done = if resolves {
            entry.resolve(&Receipt(answer.trim().to_owned())).await
        } else {
            entry.reset().await
        };
        let how = match done {
            Ok(()) => "done",
            // It may yet happen.
            Err(error) if *error.kind() == ErrorKind::StoreUnavailable => "perhaps",
            Err(_) => "failed",
        };
        self.journal
            .write(format_args!("{word} {id} {key} {how}{answer}"));
    }
}

impl Worker {
    /// The row of a body in a transaction: its answer.
    pub(crate) fn receipt(&self, id: u32, plan: &Plan) -> Receipt {
        Receipt(self.answer(id, plan))
    }

    /// A body in a transaction, around its statements.
    pub(crate) async fn booked(
        &self,
        context: &Context,
        id: u32,
        plan: &Plan,
        statements: impl Future<Output = Result<Receipt, Failure>>,
    ) -> Result<Receipt, Failure> {
        let body = self.started(context, id, &plan.key);
        // It holds locks for that long.
        if !plan.pause.is_zero() {
            tokio::time::sleep(plan.pause.min(Duration::from_millis(20))).await;
        }
        match statements.await {
            Ok(receipt) => body.ends(ending(plan, receipt)),
            Err(error) => body.ends(Err(error)),
        }
    }
}

fn ending(plan: &Plan, answer: Receipt) -> Result<Receipt, Failure> {
    match plan.ending {
        Ending::Answer => Ok(answer),
        Ending::Declined => Err(Failure::Declined(answer)),
        Ending::Down => Err(Failure::Down),
        Ending::Unknown => Err(Failure::Unknown),
        #[allow(clippy::panic, reason = "that is what it is for")]
        Ending::Panic => panic::panic_any(PANIC),
    }
}
