//! Workers killed at planned steps and random moments, and final ones.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use idem_harness::{DatabaseServer, Worker};
use idem_tests::seeded::Seeded;

use super::ledger::Ledger;

/// Workers that live at the same time.
const SEATS: usize = 3;
/// Workers that retry everything at the end.
const LAST: usize = 2;
/// Steps of a transaction, after each of which a worker is killed. The body begins with the second.
pub(crate) const STOPS: [&str; 5] = ["begun", "claimed", "booked", "ordered", "recorded"];

/// A run of the order flow.
#[derive(Debug)]
pub(crate) struct Lives<'a> {
    client: &'static str,
    url: &'a str,
    kills: u64,
    /// A killed server, and the killed workers per kill of it.
    server: Option<(&'a DatabaseServer, u64)>,
    seed: u64,
    next: AtomicU64,
    heard: Mutex<Heard>,
}

/// The output of the workers.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) ledger: Ledger,
    /// Number of orders killed after each step and before the next.
    pub(crate) hits: BTreeMap<String, usize>,
    /// Kills of a transaction with a begun body.
    pub(crate) inside: u64,
}

/// Current step of each unanswered order of a worker.
type Doing = BTreeMap<String, String>;

impl<'a> Lives<'a> {
    pub(crate) fn new(
        client: &'static str,
        url: &'a str,
        kills: u64,
        server: Option<(&'a DatabaseServer, u64)>,
    ) -> Self {
        Self {
            client,
            url,
            kills,
            server,
            seed: Seeded::from_env().0,
            next: AtomicU64::new(0),
            heard: Mutex::default(),
        }
    }

    /// Kills workers, then lets others retry their orders.
    pub(crate) fn run(self) -> Heard {
        thread::scope(|scope| {
            for _ in 0..SEATS {
                scope.spawn(|| self.seat());
            }
        });
        self.heard().ledger.close();
        let mut seeded = Seeded::new(self.seed);
        let mut last: Vec<_> = (0..LAST).map(|_| self.hire()).collect();
        for worker in &mut last {
            let all = self.heard().ledger.all(&mut seeded);
            give(worker, &all);
        }
        for worker in &mut last {
            let mut doing = Doing::new();
            while self.heed(&worker.line(), &mut doing) {}
        }
        self.heard
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hire(&self) -> Worker {
        let worker = Worker::sibling("idem-orders");
        worker.args([self.client, self.url]).spawn()
    }

    /// Runs one worker after the other, until there were enough.
    fn seat(&self) {
        loop {
            let life = self.next.fetch_add(1, Ordering::Relaxed);
            if life >= self.kills {
                return;
            }
            let mut seeded = Seeded::new(self.seed ^ life << 32);
            let mut doing = Doing::new();
            let mut worker = self.hire();
            let server = self.server.filter(|(_, every)| life % every == every / 2);
            // Two of three workers die at the step of a stopped order; the others, and survivors of their server, at a
            // random moment.
            let stop = (server.is_none() && life % 3 < 2)
                .then(|| STOPS[usize::try_from(life).expect("a small number") % STOPS.len()]);
            if let Some(step) = stop {
                worker.send(&format!("stop {} {step}", seeded.below(10)));
            }
            self.employ(&mut worker, &mut seeded);
            self.live(&mut worker, &mut doing, &mut seeded, stop.is_some());
            if let Some((server, _)) = server {
                server.kill();
                server.restart();
                self.live(&mut worker, &mut doing, &mut seeded, false);
            }
            worker.kill9();
            for line in worker.rest() {
                self.heed(&line, &mut doing);
            }
            self.buried(doing);
        }
    }

    fn employ(&self, worker: &mut Worker, seeded: &mut Seeded) {
        let batch = self.heard().ledger.batch(seeded);
        give(worker, &batch);
    }

    /// Reads a worker's lines until its end: an order that stops, a number of steps, or any time, even before the
    /// worker has begun; and a moment more.
    fn live(&self, worker: &mut Worker, doing: &mut Doing, seeded: &mut Seeded, awaits_stop: bool) {
        let mut rest = Duration::from_micros(seeded.below(60_000));
        if awaits_stop || seeded.percent(50) {
            let steps = seeded.below(100);
            let mut heard = 0;
            loop {
                let line = worker.line();
                if line == "stopped" {
                    break;
                }
                self.listen(worker, &line, doing, seeded);
                heard += 1;
                if !awaits_stop && heard > steps {
                    break;
                }
            }
            rest = Duration::from_micros(seeded.below(2_000));
        }
        let end = Instant::now() + rest;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            let Some(line) = worker.line_within(left) else {
                return;
            };
            self.listen(worker, &line, doing, seeded);
        }
    }

    fn listen(&self, worker: &mut Worker, line: &str, doing: &mut Doing, seeded: &mut Seeded) {
        if !self.heed(line, doing) {
            self.employ(worker, seeded);
        }
    }

    /// Processes a line; false when the worker has nothing left to do.
    fn heed(&self, line: &str, doing: &mut Doing) -> bool {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<_> = rest.splitn(3, ' ').collect();
        match (word, &words[..]) {
            ("step", [number, step]) => {
                doing.insert((*number).to_owned(), (*step).to_owned());
            }
            ("answer", [number, how, answer]) => {
                doing.remove(*number);
                let number = number.parse().expect("a number");
                self.heard().ledger.answered(number, *how == "ran", answer);
            }
            ("waits" | "ready" | "again", _) => {}
            ("done", _) => return false,
            _ => panic!("not understood: {line}"),
        }
        true
    }

    /// Counts the steps at which a worker was killed.
    fn buried(&self, doing: Doing) {
        let mut heard = self.heard();
        heard.inside += u64::from(doing.values().any(|step| is_inside(step)));
        for step in doing.into_values() {
            *heard.hits.entry(step).or_default() += 1;
        }
    }
}

/// Whether a step is between the body's start and its commit.
fn is_inside(step: &str) -> bool {
    STOPS[1..].contains(&step)
}

fn give(worker: &mut Worker, numbers: &[u64]) {
    let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
    worker.send(&format!("orders {}", numbers.join(" ")));
}
