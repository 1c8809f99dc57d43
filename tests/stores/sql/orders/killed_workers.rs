//! Workers that are killed at random moments, and final ones that are not.

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

/// A run of the order flow.
#[derive(Debug)]
pub(crate) struct Lives<'a> {
    client: &'static str,
    url: &'a str,
    kills: u64,
    /// A server that is killed as well, once in so many kills of a worker.
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
    /// Kills that ended at least one transaction in which a body had begun.
    pub(crate) inside: u64,
}

/// Current step of each order of a worker that has no answer yet.
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

    /// Kills workers, then lets others retry every order that the killed ones were given.
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
            self.employ(&mut worker, &mut seeded);
            self.live(&mut worker, &mut doing, &mut seeded);
            if let Some((server, every)) = self.server
                && life % every == every / 2
            {
                server.kill();
                server.restart();
                self.live(&mut worker, &mut doing, &mut seeded);
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

    /// Reads a worker's lines until it is to be killed: after so many steps, most often within a body, and a moment
    /// more; or at any time, even before it has begun.
    fn live(&self, worker: &mut Worker, doing: &mut Doing, seeded: &mut Seeded) {
        let mut rest = Duration::from_micros(seeded.below(60_000));
        if seeded.percent(80) {
            let (steps, inside) = (seeded.below(100), seeded.percent(70));
            let mut heard = 0;
            loop {
                let line = worker.line();
                self.listen(worker, &line, doing, seeded);
                heard += 1;
                if heard > steps && (!inside || line.rsplit(' ').next().is_some_and(is_inside)) {
                    break;
                }
            }
            rest = Duration::from_micros(seeded.below(if inside { 300 } else { 2_000 }));
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

/// Whether a step lies between the start of a body and the commit of its transaction.
fn is_inside(step: &str) -> bool {
    ["claimed", "booked", "ordered", "recorded"].contains(&step)
}

fn give(worker: &mut Worker, numbers: &[u64]) {
    let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
    worker.send(&format!("orders {}", numbers.join(" ")));
}
