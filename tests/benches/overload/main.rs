//! The behaviour of a store under more load than it can serve:
//! `cargo bench -p idem-tests --bench overload -- --json`; `-- --help` names the options.
//!
//! The peak of a store is the best of three closed loops of 16, 64 and 256 callers. Then an open loop offers
//! multiples of it: calls of distinct keys with instant bodies arrive by schedule, whether or not others have
//! their replies. At most 20,000 callers are without a reply at a time; what arrives beyond is counted as
//! `not_offered`. Engine and store have their default settings, but for an observer that counts instead of
//! printing, and run in a process of their own, on two threads.
//!
//! The truth is a journal outside of the system: each body writes down that it ran and with which answer, each
//! caller the reply that it received. After load, recovery and shutdown that process ends, and a new engine on
//! a new connection calls again for each acknowledged key. An acknowledged answer that it does not get is
//! `lost`, and the benchmark ends with 1. The other goals are printed as met or missed. A store in memory ends
//! with its process, which audits it with another engine.
//!
//! Client and server share the machine: figures mean something as ratios only. The goal of the goodput is 80 % of the
//! best one under a smaller load of the same run; the closed loop has 256 callers at most in memory, an open one 20,000,
//! and a thread that lets them arrive.

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark ends when something is wrong"
)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "numbers of calls are small, and figures are rounded"
)]

mod audit;
mod journal;
mod load;
mod options;
mod report;
mod stores;

use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use idem_harness::{TestDir, Worker};
use idem_runtime::store::memory::MemoryStore;
use serde::de::DeserializeOwned;

use self::load::{Measured, Peak, Task, Work};
use self::options::Options;
use self::report::Row;
use self::stores::{STORES, Stand};

/// The first argument of a process under load.
const TASK: &str = "--task";

/// How long a process may take beyond its load: a recovery, the last replies, a shutdown and an audit.
const PATIENCE: Duration = Duration::from_mins(8);

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(TASK) {
        let task = words.next().expect("a task follows");
        load::run(&serde_json::from_str(&task).unwrap());
        return ExitCode::SUCCESS;
    }
    let options = Options::parse();
    let mut violations = Vec::new();
    let mut is_first = true;
    for store in STORES.into_iter().filter(|store| options.wants(store)) {
        let peak = find_peak(store, &options);
        eprintln!(
            "{store}: {:.0} calls a second with {} callers",
            peak.per_second, peak.callers
        );
        let mut best = None;
        for (case, factor) in cases(store, &options) {
            let row = Row {
                best,
                ..measure(store, &options, peak, case, factor)
            };
            if case == "load" {
                best = Some(best.unwrap_or(0.0).max(row.goodput()));
            }
            report::print(&row, options.json, is_first);
            is_first = false;
            violations.extend(row.violations());
        }
    }
    for violation in &violations {
        eprintln!("{violation}");
    }
    ExitCode::from(u8::from(!violations.is_empty()))
}

/// The rows of a store.
fn cases(store: &str, options: &Options) -> Vec<(&'static str, Option<u32>)> {
    let mut cases = Vec::new();
    let factors = || options.factors.iter().map(|factor| Some(*factor));
    cases.extend(factors().map(|factor| ("load", factor)));
    if options.stop > 0 && Stand::has_server(store) {
        cases.extend(factors().map(|factor| ("stopped", factor)));
    }
    if options.burst > 0 {
        cases.push(("burst", None));
    }
    cases
}

fn find_peak(store: &str, options: &Options) -> Peak {
    let (stand, dir) = (Stand::start(store), TestDir::new("overload").unwrap());
    let work = Work::Peak {
        millis: options.peak_millis,
    };
    let mut process = start(&stand, options, work, &dir);
    ended(&mut process)
}

fn measure(
    store: &str,
    options: &Options,
    peak: Peak,
    case: &'static str,
    factor: Option<u32>,
) -> Row {
    let (stand, dir) = (Stand::start(store), TestDir::new("overload").unwrap());
    let work = match factor {
        Some(factor) => Work::Load {
            per_second: peak.per_second * f64::from(factor),
            seconds: options.seconds,
            callers: options.callers,
            most: options.most,
        },
        None => Work::Burst {
            calls: options.burst,
        },
    };
    let mut process = start(&stand, options, work, &dir);
    assert_eq!(process.line(), "begun");
    let mut stopped_s = 0;
    if case == "stopped" {
        stopped_s = options.stop;
        let before = (options.seconds - stopped_s) * 500;
        sleep(Duration::from_millis(before.into()));
        stand.stop(Duration::from_secs(stopped_s.into()));
    }
    let mut measured: Measured = ended(&mut process);
    let audit = measured.audit.take().unwrap_or_else(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build();
        let acknowledged = journal::read(&journal_in(&dir));
        runtime.unwrap().block_on(async {
            let store = stand.place().store(MemoryStore::new()).await;
            audit::audit(store, acknowledged).await
        })
    });
    Row {
        store: store.to_owned(),
        case,
        factor,
        stopped_s,
        peak,
        best: None,
        measured,
        audit,
    }
}

fn journal_in(dir: &TestDir) -> std::path::PathBuf {
    dir.path().join("journal")
}

fn start(stand: &Stand, options: &Options, work: Work, dir: &TestDir) -> Worker {
    let task = Task {
        place: stand.place().clone(),
        work,
        audit: options.audit,
        journal: journal_in(dir),
    };
    let program = std::env::current_exe().unwrap();
    let process = Worker::program(program).arg(TASK);
    process.arg(serde_json::to_string(&task).unwrap()).spawn()
}

/// The measurements of a process, once it has ended.
fn ended<T: DeserializeOwned>(process: &mut Worker) -> T {
    let line = process.line_within(PATIENCE);
    let line = line.unwrap_or_else(|| panic!("no figures within {PATIENCE:?}"));
    let status = process.wait();
    assert!(
        status.success(),
        "the process under load ended with {status}"
    );
    serde_json::from_str(&line).unwrap()
}
