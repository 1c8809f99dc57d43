//! Calls with fresh keys, and what became of each.

use std::error::Error as _;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Engine, Error, Observer, OnRunning, observe::Event};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// A lease that does not end here, so that a body that runs again has not been allowed to.
const LEASE: Duration = Duration::from_mins(1);

/// Pause of a caller after each call.
const PAUSE: Duration = Duration::from_millis(5);

/// Prints no event.
#[derive(Debug)]
struct Silent;

impl Observer for Silent {
    fn observe(&self, _: &Event<'_>) {}
}

/// The engine of a process.
pub(super) fn engine(store: RedisStore, patience: Duration) -> Engine {
    let engine = Engine::builder(store)
        .lease(LEASE)
        .on_running(OnRunning::Reject)
        .observer(Silent)
        .claim_deadline(patience)
        .complete_deadline(patience);
    engine.build().expect("the settings agree")
}

/// A call and its end.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its key.
    pub key: u64,
    /// When it was made.
    pub began: Instant,
    /// Whether its body ran.
    pub ran: bool,
    /// Its answer, or why it was refused.
    pub answer: Result<u64, Error>,
}

impl Call {
    /// Calls. Each body that runs has another answer.
    pub(super) async fn make(engine: &Engine, key: u64) -> Self {
        static ANSWERS: AtomicU64 = AtomicU64::new(0);
        let ran = AtomicBool::new(false);
        let began = Instant::now();
        let call = engine.operation("trial").key(&key);
        let answer = call
            .run(|_| async {
                ran.store(true, Ordering::Relaxed);
                Ok::<u64, Error>(ANSWERS.fetch_add(1, Ordering::Relaxed))
            })
            .await;
        Self {
            key,
            began,
            ran: ran.into_inner(),
            answer,
        }
    }

    /// Why it was refused, with the causes.
    pub fn refusal(&self) -> Option<String> {
        let error = self.answer.as_ref().err()?;
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            write!(text, ": {error}").expect("a string takes anything");
            cause = error.source();
        }
        Some(text)
    }
}

/// The calls of one client.
#[derive(Debug)]
pub struct Calls {
    pub(super) engine: Engine,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    going: JoinSet<Vec<Call>>,
    pub(super) made: Vec<Call>,
}

impl Calls {
    /// Calls again and again, in this number of tasks.
    pub(super) fn start(runtime: &Runtime, engine: Engine, tasks: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicUsize::new(0));
        let mut going = JoinSet::new();
        for _ in 0..tasks {
            let (engine, stop, answered) =
                (engine.clone(), Arc::clone(&stop), Arc::clone(&answered));
            going.spawn_on(repeat(engine, stop, answered), runtime.handle());
        }
        Self {
            engine,
            stop,
            answered,
            going,
            made: Vec::new(),
        }
    }

    /// How many have an answer.
    pub(super) fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for those that are under way.
    pub(super) async fn ended(&mut self) {
        while let Some(made) = self.going.join_next().await {
            self.made.extend(made.expect("calls do not panic"));
        }
    }
}

async fn repeat(engine: Engine, stop: Arc<AtomicBool>, answered: Arc<AtomicUsize>) -> Vec<Call> {
    let mut made = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let call = Call::make(&engine, fresh()).await;
        answered.fetch_add(usize::from(call.answer.is_ok()), Ordering::Relaxed);
        made.push(call);
        tokio::time::sleep(PAUSE).await;
    }
    made
}

/// A key that no call has used.
pub(super) fn fresh() -> u64 {
    static KEYS: AtomicU64 = AtomicU64::new(0);
    KEYS.fetch_add(1, Ordering::Relaxed)
}
