//! The soak: processes that call, a nemesis that breaks the servers and networks below them, and a journal
//! outside of the store by which a checker decides whether the guarantee was kept. See `docs/soak.md`.

#![allow(
    clippy::missing_panics_doc,
    reason = "a part of a test panics when it does not get what it needs"
)]

mod body;
mod books;
mod check;
mod clock;
mod faults;
mod history;
mod journal;
mod metrics;
mod mix;
mod nemesis;
mod options;
mod outcome;
mod report;
mod stores;
mod watching;
mod worker;
mod worker_fleet;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs, thread};

use clap::Parser as _;

use crate::books::{Books, Ledger};
use crate::check::{Promise, check, check_ledger};
use crate::clock::block_on;
use crate::faults::Faults;
use crate::history::{History, Told};
use crate::nemesis::Nemesis;
use crate::options::Options;
use crate::report::{HEAD, Row};
use crate::stores::Site;
use crate::worker_fleet::{Words, WorkerFleet};

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    if matches!(
        arguments.first().map(String::as_str),
        Some("worker" | "audit")
    ) {
        worker::main(&arguments);
        return ExitCode::SUCCESS;
    }
    let options = Options::parse();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = options
        .seed
        .unwrap_or_else(|| u64::from(now.unwrap_or_default().subsec_nanos()));
    let mut rows = Vec::new();
    for store in &options.stores() {
        rows.push(match &options.check {
            Some(dir) => judge(store, dir, seed, Duration::ZERO, &options),
            None => soak(store, seed, &options),
        });
    }
    eprintln!("\n{HEAD}");
    for row in &rows {
        eprintln!("{}", row.line());
    }
    eprintln!();
    for row in &rows {
        eprint!("{}", row.details());
    }
    if rows.iter().all(|row| row.findings.violations.is_empty()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// A directory under `target`, where journals outlive the run.
fn place(store: &str, seed: u64) -> PathBuf {
    let program = env::current_exe().expect("a process knows its program");
    let target = program.ancestors().find(|dir| dir.ends_with("target"));
    let target = target.map_or_else(env::temp_dir, Path::to_owned);
    let dir = target
        .join("soak")
        .join(format!("{store}-{seed}-{}", std::process::id()));
    fs::create_dir_all(dir.join("effects")).expect("the target directory can be written");
    dir
}

fn soak(store: &str, seed: u64, options: &Options) -> Row {
    let dir = place(store, seed);
    eprintln!("{store}: seed {seed}, journals in {}", dir.display());
    let began = Instant::now();
    let site = Site::start(store, &dir);
    eprintln!("{store}: server at {}", site.url(None));
    let words = Words {
        seed,
        lease: options.lease(),
        metrics: options.metrics,
    };
    let fleet = WorkerFleet::spawn(store, &site, &dir, words);
    if let Some(port) = options.metrics.filter(|_| store != "memory") {
        // Behind those of the seats.
        metrics::count_unknown(store, &site.url(None), metrics::port(port, faults::SEATS));
    }
    let nemesis = Nemesis::new(&fleet, &site, (seed, options), &dir);
    thread::scope(|scope| {
        scope.spawn(|| nemesis.run());
        watch(&fleet, &nemesis, began, options);
        nemesis.stop();
    });
    // All faults are over: delayed completions are stored.
    thread::sleep(Duration::from_secs(2));
    for stuck in fleet.stop() {
        eprintln!("{store}: process {stuck} does not end");
    }
    let history = History::read(&dir).expect("the journals can be read");
    fs::write(dir.join("audit"), acknowledged(&history)).expect("the directory is there");
    drop(history);
    if store != "memory" {
        worker_fleet::audit(store, &site, &dir, words);
    }
    let ledger = ledger(store, &site);
    ledger.write(&dir).expect("the directory is there");
    drop(site);
    judge(store, &dir, seed, began.elapsed(), options)
}

/// Checks the journals of a directory, and makes the row of its store.
fn judge(store: &str, dir: &Path, seed: u64, took: Duration, options: &Options) -> Row {
    let faults = Faults::read(&dir.join(nemesis::LOG)).expect("the log can be read");
    let history = History::read(dir).expect("the journals can be read");
    let promise = Promise {
        lease: micros(options.lease()),
        forgets: match store {
            // What Redis says of `SENTINEL FAILOVER`, and `Durability::Replicated` of one replica of two.
            "sentinel" => &["failover-asked"],
            "sentinel-async" => &["failover-asked", "primary-killed", "primary-paused"],
            _ => &[],
        },
    };
    let mut findings = check(&history, &faults, promise);
    let ledger = Ledger::read(dir).expect("the ledger can be read");
    check_ledger(&history, &ledger, &mut findings);
    let counts = faults.counts().into_iter();
    let row = Row {
        store: store.to_owned(),
        seed,
        calls: history.calls,
        keys: history.keys.len(),
        faults: counts
            .map(|(kind, count)| (kind.to_owned(), count))
            .collect(),
        findings,
        took,
    };
    eprintln!("{HEAD}\n{}\n{}", row.line(), row.details());
    if row.findings.violations.is_empty() && !options.keep && options.check.is_none() {
        drop(fs::remove_dir_all(dir));
        return row;
    }
    let all = row
        .findings
        .violations
        .iter()
        .fold(String::new(), |mut all, one| {
            writeln!(all, "{:?}: {}: {}", one.what, one.key, one.why)
                .expect("a string takes anything");
            all
        });
    drop(fs::write(dir.join("violations"), all));
    eprint!("{}", row.violations(dir, &faults));
    eprintln!("kept: {}", dir.display());
    row
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("a short time")
}

/// Until there were enough calls and faults.
fn watch(fleet: &WorkerFleet, nemesis: &Nemesis<'_>, began: Instant, options: &Options) {
    let mut told = Instant::now();
    loop {
        thread::sleep(Duration::from_millis(200));
        let (calls, faults) = (
            fleet.calls(),
            nemesis.count.load(std::sync::atomic::Ordering::Relaxed),
        );
        let enough = calls >= options.calls && faults >= options.faults;
        let over = options.minutes.is_some_and(|most| began.elapsed() >= most);
        if told.elapsed() > Duration::from_secs(30) {
            told = Instant::now();
            eprintln!("  {:?}: {calls} calls, {faults} faults", began.elapsed());
        }
        if enough || over {
            return;
        }
    }
}

/// The answered keys, each with the payload of its call: a line each.
fn acknowledged(history: &History) -> String {
    let mut lines = BTreeSet::new();
    for (name, key) in &history.keys {
        for call in &key.calls {
            if let Some((_, Told::Answer(_))) = call.told {
                lines.insert(format!("{name} {}\n", call.payload));
            }
        }
    }
    lines.into_iter().collect()
}

fn ledger(store: &str, site: &Site) -> Ledger {
    let read = async {
        let books = Books::open(store, &site.url(None), Path::new(""));
        books.ledger().await.expect("the ledger can be read")
    };
    block_on(read)
}
