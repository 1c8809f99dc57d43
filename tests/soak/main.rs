//! The soak: processes that call, a nemesis that breaks the servers and networks below them, and a journal
//! outside of the store by which a checker decides whether the guarantee was kept. See `docs/soak.md`.

#![allow(
    clippy::missing_panics_doc,
    reason = "a part of a test panics when it does not get what it needs"
)]

mod books;
mod calls;
mod metrics;
mod mix;
mod nemesis;
mod options;
mod outcome;
mod report;
mod stores;
mod worker;
mod worker_fleet;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs, thread};

use clap::Parser as _;
use idem_tests::checker::{Faults, History, Promise, SEATS, check};

use crate::nemesis::Nemesis;
use crate::options::Options;
use crate::report::{HEAD, Row};
use crate::stores::Site;
use crate::worker::Settings;
use crate::worker_fleet::WorkerFleet;

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    if let [word, settings] = &arguments[..]
        && word == "worker"
    {
        worker::main(settings);
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
    let settings = Settings {
        audits: false,
        store: store.to_owned(),
        url: site.url(None),
        dir: dir.clone(),
        number: 0,
        seed,
        lease: options.lease(),
        metrics: options.metrics,
    };
    let fleet = WorkerFleet::spawn(&site, settings);
    if let Some(port) = options.metrics.filter(|_| store != "memory") {
        // Behind those of the seats.
        metrics::count_unknown(store, &site.url(None), metrics::port(port, SEATS));
    }
    let nemesis = Nemesis::new(&fleet, &site, (seed, options), &dir);
    thread::scope(|scope| {
        scope.spawn(|| nemesis.run());
        watch(&fleet, &nemesis, began, options);
        nemesis.stop();
    });
    // All faults are over: delayed completions are stored.
    thread::sleep(Duration::from_secs(2));
    fleet.stop();
    if store != "memory" {
        fleet.audit();
    }
    drop(site);
    judge(store, &dir, seed, began.elapsed(), options)
}

/// Checks the journals of a directory, and prints its store's row.
fn judge(store: &str, dir: &Path, seed: u64, took: Duration, options: &Options) -> Row {
    let faults = Faults::read(&dir.join(nemesis::LOG)).expect("the log can be read");
    let history = History::read(dir).expect("the journals can be read");
    let promise = Promise {
        lease: u64::try_from(options.lease().as_micros()).expect("a short time"),
        forgets: match store {
            // What Redis says of `SENTINEL FAILOVER`, and `Durability::Replicated` of one replica of two.
            "sentinel" => &["failover-asked"],
            "sentinel-async" => &["failover-asked", "primary-killed", "primary-paused"],
            _ => &[],
        },
    };
    let row = Row {
        store: store.to_owned(),
        seed,
        calls: history.calls().count(),
        keys: history.keys.len(),
        faults: faults.counts(),
        findings: check(&history, &faults, promise),
        took,
    };
    eprintln!("{HEAD}\n{}\n{}", row.line(), row.details());
    if row.findings.violations.is_empty() && !options.keep && options.check.is_none() {
        drop(fs::remove_dir_all(dir));
        return row;
    }
    let mut all = String::new();
    for one in &row.findings.violations {
        writeln!(all, "{:?}: {}: {}", one.what, one.key, one.why).expect("a string takes anything");
    }
    drop(fs::write(dir.join("violations"), all));
    eprint!("{}", row.violations(dir, &faults));
    eprintln!("kept: {}", dir.display());
    row
}

/// Until there were enough calls and faults.
fn watch(fleet: &WorkerFleet, nemesis: &Nemesis<'_>, began: Instant, options: &Options) {
    let mut told = Instant::now();
    loop {
        thread::sleep(Duration::from_millis(200));
        let (calls, faults) = (fleet.calls(), nemesis.count.load(Ordering::Relaxed));
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
