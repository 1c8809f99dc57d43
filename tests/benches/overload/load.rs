//! The process under load: callers, and the replies that they received.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{
    Engine, Error, Observer,
    observe::{Event, EventKind},
};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::audit::{Audit, audit};
use super::journal::{self, Findings, Journal, Told, Word};
use super::stores::Place;

pub(crate) const OPERATION: &str = "bench.overload";

/// Callers at a time of the closed loop that finds the peak: the best counts.
const MODERATE: [u32; 3] = [16, 64, 256];
/// Calls after which one of these ends, so that the records of a store in memory fit into it.
const MOST: u32 = 1_000_000;

/// A probe that takes longer than this has not found the store recovered.
const PROMPT: Duration = Duration::from_millis(100);
/// Prompt probes in a row of a store that has.
const PROBES: u32 = 5;
/// How long a recovery is waited for, and then the last reply.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long a shutdown may take.
const SHUTDOWN: Duration = Duration::from_secs(30);

/// The task of a process.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Task {
    pub(crate) place: Place,
    pub(crate) work: Work,
    /// Acknowledged answers that are kept for the audit.
    pub(crate) audit: u32,
    /// The file that they are kept in.
    pub(crate) journal: PathBuf,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) enum Work {
    /// A closed loop: a caller calls again when it has its reply.
    Peak { millis: u32 },
    /// An open loop: callers arrive by schedule, whatever the replies.
    Load {
        per_second: f64,
        seconds: u32,
        callers: u32,
        most: u32,
    },
    /// All at once.
    Burst { calls: u32 },
}

/// Calls answered `Ok` a second at moderate concurrency.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Peak {
    pub(crate) per_second: f64,
    pub(crate) callers: u32,
}

/// The results of a load, as the process under it saw them.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Measured {
    pub(crate) offered: u64,
    /// Arrivals when as many callers as may be had no reply yet.
    pub(crate) not_offered: u64,
    /// How long calls were offered; of a burst, until the last reply.
    pub(crate) lasted_s: f64,
    pub(crate) admitted: u64,
    /// Of those, how many while calls were offered.
    pub(crate) admitted_in_time: u64,
    pub(crate) refused_shed: u64,
    pub(crate) refused_unavailable: u64,
    pub(crate) refused_other: u64,
    pub(crate) others: BTreeMap<String, u64>,
    /// Callers without a reply a minute after the end.
    pub(crate) without_reply: u64,
    pub(crate) admitted_ms: Option<Latency>,
    pub(crate) refused_ms: Option<Latency>,
    /// From the arrival of a caller until the runtime let it call.
    pub(crate) delayed_ms: Option<Latency>,
    pub(crate) rss_begin_mb: f64,
    pub(crate) rss_peak_mb: f64,
    pub(crate) rss_end_mb: f64,
    pub(crate) rss_growth_mb: f64,
    /// The part of the growth that is the benchmark's own.
    pub(crate) journal_mb: f64,
    /// From the end of the load; `None`: not within a minute.
    pub(crate) recovery_s: Option<f64>,
    /// From the end of the load until the last caller had its reply.
    pub(crate) last_reply_s: f64,
    pub(crate) shutdown: String,
    pub(crate) shutdown_s: f64,
    /// Answers that the shutdown reported as not stored.
    pub(crate) unstored: u64,
    /// Events: an answer was returned and not stored yet; and storing it was given up.
    pub(crate) unsaved: u64,
    pub(crate) given_up: u64,
    pub(crate) leases_lost: u64,
    pub(crate) runs: u64,
    pub(crate) second_starts: u64,
    pub(crate) ran_though_refused: u64,
    pub(crate) of_no_run: u64,
    pub(crate) admitted_each_second: Vec<u64>,
    /// Only of a store that ends with the process.
    pub(crate) audit: Option<Audit>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Latency {
    fn of(mut micros: Vec<u32>) -> Option<Self> {
        micros.sort_unstable();
        let last = micros.len().checked_sub(1)?;
        let at = |percent| f64::from(micros[last * percent / 100]) / 1e3;
        Some(Self {
            p50: at(50),
            p99: at(99),
            max: at(100),
        })
    }
}

/// Does the task, and prints what it measured. The process ends with it: unstored answers are lost then.
pub(crate) fn run(task: &Task) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let memory = MemoryStore::new();
    let store = runtime.block_on(task.place.store(memory));
    let events = Arc::new(Events::default());
    let engine = Engine::builder(Arc::clone(&store)).observer(Arc::clone(&events));
    let engine = engine.build().unwrap();
    let callers = Arc::new(Callers::new(engine.clone()));
    if let Work::Peak { millis } = task.work {
        let peak = runtime.block_on(peak(&callers, Duration::from_millis(millis.into())));
        return say(&serde_json::to_string(&peak).unwrap());
    }
    let begin = rss("VmRSS:");
    say("begun");
    let offered = callers.offer(runtime.handle(), task.work);
    let ended = Instant::now();
    let recovery = runtime.block_on(callers.recovery(ended));
    let drained = runtime.block_on(async { timeout(PATIENCE, callers.all_have_replies()).await });
    let last_reply = ended.elapsed();
    let asked = Instant::now();
    let shutdown = runtime.block_on(engine.shutdown(SHUTDOWN));
    let shutdown_took = asked.elapsed();
    let (peak, end) = (rss("VmHWM:"), rss("VmRSS:"));
    let mut findings = callers.journal.findings();
    // A burst lasts until its callers have their replies; those of the probes come later.
    let lasted = match task.work {
        Work::Burst { calls } => {
            let mut burst = findings.told.iter().filter(|told| told.key < calls);
            let last = burst.by_ref().map(|told| told.at).max();
            Duration::from_micros(last.unwrap_or_default().into())
        }
        _ => offered.lasted,
    };
    // The probes are no part of the load.
    let load = u32::try_from(offered.offered).unwrap();
    let acknowledged = findings.acknowledged(task.audit as usize);
    findings.told.retain(|told| told.key < load);
    let audit = if let Place::Memory = task.place {
        Some(runtime.block_on(audit(store, acknowledged)))
    } else {
        journal::write(&task.journal, &acknowledged);
        None
    };
    let unfinished = shutdown.err();
    let mut measured = Measured {
        offered: offered.offered,
        not_offered: offered.not_offered,
        lasted_s: lasted.as_secs_f64(),
        without_reply: match drained {
            Ok(()) => 0,
            Err(_) => callers.waiting.load(Ordering::SeqCst).into(),
        },
        rss_begin_mb: begin,
        rss_peak_mb: peak,
        rss_end_mb: end,
        rss_growth_mb: peak - begin,
        journal_mb: findings.bytes as f64 / 1e6,
        recovery_s: recovery.map(|time| time.as_secs_f64()),
        last_reply_s: last_reply.as_secs_f64(),
        shutdown: match unfinished {
            None => "Ok".to_owned(),
            Some(left) => format!(
                "{} waiting, {} running, {} storing, {} unstored",
                left.waiting, left.running, left.storing, left.unstored
            ),
        },
        shutdown_s: shutdown_took.as_secs_f64(),
        unstored: unfinished.map_or(0, |left| left.unstored as u64),
        unsaved: events.unsaved.load(Ordering::SeqCst),
        given_up: events.given_up.load(Ordering::SeqCst),
        leases_lost: events.leases_lost.load(Ordering::SeqCst),
        audit,
        ..Measured::of(&findings)
    };
    let end = lasted.as_micros();
    let is_in_time = |told: &&Told| u128::from(told.at) <= end;
    let in_time = findings
        .told
        .iter()
        .filter(|told| told.is_acknowledged())
        .filter(is_in_time);
    measured.admitted_in_time = in_time.count() as u64;
    say(&serde_json::to_string(&measured).unwrap());
}

impl Measured {
    /// The findings of the journal.
    fn of(findings: &Findings) -> Self {
        let count = |word| {
            findings
                .told
                .iter()
                .filter(|told| told.word == word)
                .count() as u64
        };
        let acknowledged = || findings.told.iter().filter(|told| told.is_acknowledged());
        let refused = findings.told.iter().filter(|told| !told.is_acknowledged());
        let mut each_second = Vec::new();
        for told in acknowledged() {
            let second = (told.at / 1_000_000) as usize;
            if each_second.len() <= second {
                each_second.resize(second + 1, 0);
            }
            each_second[second] += 1;
        }
        Self {
            offered: 0,
            not_offered: 0,
            lasted_s: 0.0,
            admitted: acknowledged().count() as u64,
            admitted_in_time: 0,
            refused_shed: count(Word::Shed),
            refused_unavailable: count(Word::Unavailable),
            refused_other: count(Word::Other),
            others: findings.others.clone(),
            without_reply: 0,
            admitted_ms: Latency::of(acknowledged().map(|told| told.took).collect()),
            refused_ms: Latency::of(refused.map(|told| told.took).collect()),
            delayed_ms: Latency::of(findings.told.iter().map(|told| told.delayed).collect()),
            rss_begin_mb: 0.0,
            rss_peak_mb: 0.0,
            rss_end_mb: 0.0,
            rss_growth_mb: 0.0,
            journal_mb: 0.0,
            recovery_s: None,
            last_reply_s: 0.0,
            shutdown: String::new(),
            shutdown_s: 0.0,
            unstored: 0,
            unsaved: 0,
            given_up: 0,
            leases_lost: 0,
            runs: findings.runs,
            second_starts: findings.second_starts,
            ran_though_refused: findings.ran_though_refused,
            of_no_run: findings.of_no_run,
            admitted_each_second: each_second,
            audit: None,
        }
    }
}

/// To the process that started this one.
fn say(line: &str) {
    println!("{line}");
}

/// In megabytes; not a number where the system does not report it.
fn rss(field: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    kilobytes.map_or(f64::NAN, |kilobytes: f64| kilobytes / 1e3)
}

/// Each call is a task and has its lines in the journal, as under load: what the benchmark itself costs is part of
/// both figures.
async fn peak(callers: &Arc<Callers>, time: Duration) -> Peak {
    let mut best = Peak {
        per_second: 0.0,
        callers: 0,
    };
    // The first round warms up.
    for concurrency in [MODERATE[0]].into_iter().chain(MODERATE) {
        let (began, first) = (Instant::now(), callers.keys.load(Ordering::SeqCst));
        let mut loops = JoinSet::new();
        for _ in 0..concurrency {
            let callers = Arc::clone(callers);
            loops.spawn(async move {
                let mut admitted = 0_u64;
                while began.elapsed() < time && callers.keys.load(Ordering::Relaxed) - first <= MOST
                {
                    let call = callers.spawn(&Handle::current(), Instant::now());
                    admitted += u64::from(call.await.unwrap_or(false));
                }
                admitted
            });
        }
        let admitted: u64 = loops.join_all().await.into_iter().sum();
        let per_second = admitted as f64 / began.elapsed().as_secs_f64();
        if per_second > best.per_second {
            best = Peak {
                per_second,
                callers: concurrency,
            };
        }
    }
    best
}

/// The callers, each with a key of its own.
#[derive(Debug)]
struct Callers {
    engine: Engine,
    journal: Journal,
    keys: AtomicU32,
    answers: AtomicU32,
    /// Without a reply yet.
    waiting: AtomicU32,
    idle: Notify,
}

/// Callers that arrived, and arrivals that were not offered.
struct Arrivals {
    offered: u64,
    not_offered: u64,
    lasted: Duration,
}

impl Callers {
    fn new(engine: Engine) -> Self {
        Self {
            engine,
            journal: Journal::new(),
            keys: AtomicU32::new(0),
            // 0 is that of an audit.
            answers: AtomicU32::new(1),
            waiting: AtomicU32::new(0),
            idle: Notify::new(),
        }
    }

    /// One call, whose body is done at once. Whether it was answered `Ok`.
    async fn call(self: Arc<Self>, key: u32, arrived: Instant) -> bool {
        // What the runtime takes to get to it is none of the engine's doing.
        let called = Instant::now();
        let body = async |_| {
            let answer = self.answers.fetch_add(1, Ordering::Relaxed);
            self.journal.ran(key, answer);
            Ok::<_, Error>(answer)
        };
        let said = self.engine.operation(OPERATION).key(&key).run(body).await;
        self.journal.told(key, [arrived, called], &said);
        if self.waiting.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.idle.notify_waiters();
        }
        said.is_ok()
    }

    fn spawn(
        self: &Arc<Self>,
        runtime: &Handle,
        arrived: Instant,
    ) -> tokio::task::JoinHandle<bool> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let key = self.keys.fetch_add(1, Ordering::SeqCst);
        runtime.spawn(Arc::clone(self).call(key, arrived))
    }

    /// Lets callers arrive. On this thread, which is none of the runtime's: a runtime that is busy delays no
    /// arrival.
    fn offer(self: &Arc<Self>, runtime: &Handle, work: Work) -> Arrivals {
        let began = Instant::now();
        let (mut offered, mut not_offered) = (0, 0);
        match work {
            Work::Peak { .. } => {}
            Work::Burst { calls } => {
                for _ in 0..calls {
                    self.spawn(runtime, began);
                }
                offered = calls.into();
                runtime.block_on(self.all_have_replies());
            }
            Work::Load {
                per_second,
                seconds,
                callers,
                most,
            } => {
                let (time, most) = (Duration::from_secs(seconds.into()), u64::from(most));
                while began.elapsed() < time && offered < most {
                    let arrived = Instant::now();
                    let due = ((arrived - began).as_secs_f64() * per_second) as u64;
                    let due = due - offered - not_offered;
                    let room = callers.saturating_sub(self.waiting.load(Ordering::SeqCst));
                    let now = due.min(room.into()).min(most - offered);
                    for _ in 0..now {
                        self.spawn(runtime, arrived);
                    }
                    offered += now;
                    not_offered += due - now;
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        Arrivals {
            offered,
            not_offered,
            lasted: began.elapsed(),
        }
    }

    /// How long after the end of the load calls are prompt again.
    async fn recovery(self: &Arc<Self>, ended: Instant) -> Option<Duration> {
        let mut prompt = 0;
        while ended.elapsed() < PATIENCE {
            // One that is late is left alone: it is a caller as others are.
            let probe = self.spawn(&Handle::current(), Instant::now());
            match timeout(PROMPT, probe).await {
                Ok(Ok(true)) => prompt += 1,
                Ok(_) => {
                    prompt = 0;
                    sleep(PROMPT / 10).await;
                }
                Err(_) => prompt = 0,
            }
            if prompt == PROBES {
                return Some(ended.elapsed());
            }
        }
        None
    }

    async fn all_have_replies(&self) {
        loop {
            let idle = self.idle.notified();
            if self.waiting.load(Ordering::SeqCst) == 0 {
                return;
            }
            // The next burst of replies may come before this is polled.
            let _ = timeout(PROMPT, idle).await;
        }
    }
}

/// Counts the events that the default observer would print.
#[derive(Debug, Default)]
struct Events {
    unsaved: AtomicU64,
    given_up: AtomicU64,
    leases_lost: AtomicU64,
}

impl Observer for Events {
    fn observe(&self, event: &Event<'_>) {
        let count = match &event.kind {
            EventKind::Unsaved { reason } if reason.contains("given up") => &self.given_up,
            EventKind::Unsaved { .. } => &self.unsaved,
            EventKind::LeaseLost { .. } => &self.leases_lost,
            _ => return,
        };
        count.fetch_add(1, Ordering::SeqCst);
    }
}
