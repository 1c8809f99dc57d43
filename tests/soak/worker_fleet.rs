//! The worker processes of a run: four seats, each with one process at a time.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idem_harness::{HANG_LIMIT, TcpProxy, Worker};

use crate::faults::SEATS;
use crate::metrics;
use crate::stores::Site;

#[derive(Debug)]
pub(crate) struct WorkerFleet {
    seats: Vec<Seat>,
    store: String,
    dir: PathBuf,
    words: Words,
    /// Calls of processes that are no more.
    past: AtomicU64,
}

/// Where one process after the other works, behind a network of its own.
#[derive(Debug)]
struct Seat {
    url: String,
    proxies: Vec<TcpProxy>,
    member: Mutex<Member>,
}

#[derive(Debug)]
struct Member {
    number: u32,
    worker: Worker,
    calls: u64,
}

/// The settings that all processes share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    pub(crate) seed: u64,
    pub(crate) lease: Duration,
    /// The port of the metrics of the first seat.
    pub(crate) metrics: Option<u16>,
}

impl WorkerFleet {
    pub(crate) fn spawn(store: &str, site: &Site, dir: &Path, words: Words) -> Self {
        let spawn = |seat| {
            let proxies = site.proxies();
            let url = site.url(Some(&proxies));
            let worker = spawn("worker", store, &url, dir, seat, words);
            let member = Mutex::new(Member {
                number: seat,
                worker,
                calls: 0,
            });
            Seat {
                url,
                proxies,
                member,
            }
        };
        Self {
            seats: (0..site.seats()).map(spawn).collect(),
            store: store.to_owned(),
            dir: dir.to_owned(),
            words,
            past: AtomicU64::new(0),
        }
    }

    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.seats.len()).expect("a few seats")
    }

    pub(crate) fn proxies(&self, seat: u32) -> &[TcpProxy] {
        &self.seats[seat as usize].proxies
    }

    fn member(&self, seat: u32) -> MutexGuard<'_, Member> {
        let member = self.seats[seat as usize].member.lock();
        member.unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls that were begun so far, as far as processes have reported.
    pub(crate) fn calls(&self) -> u64 {
        let count = |seat| {
            let mut member = self.member(seat);
            member.listen();
            member.calls
        };
        self.past.load(Ordering::Relaxed) + (0..self.len()).map(count).sum::<u64>()
    }

    /// Kills the process of a seat with SIGKILL, and puts another one there. Returns the number of the killed.
    pub(crate) fn kill(&self, seat: u32) -> u32 {
        let mut member = self.member(seat);
        member.listen();
        member.worker.kill9();
        self.past.fetch_add(member.calls, Ordering::Relaxed);
        let (killed, number) = (member.number, member.number + SEATS);
        let url = &self.seats[seat as usize].url;
        member.worker = spawn("worker", &self.store, url, &self.dir, number, self.words);
        (member.number, member.calls) = (number, 0);
        killed
    }

    pub(crate) fn pause(&self, seat: u32) {
        self.member(seat).worker.pause();
    }

    pub(crate) fn resume(&self, seat: u32) {
        self.member(seat).worker.resume();
    }

    /// Lets every process end its calls. Returns the processes that do not.
    pub(crate) fn stop(&self) -> Vec<u32> {
        let seats = 0..self.len();
        for seat in seats.clone() {
            self.member(seat).worker.send("stop");
        }
        let stuck = seats.filter_map(|seat| {
            let mut member = self.member(seat);
            (!member.stopped()).then_some(member.number)
        });
        stuck.collect()
    }
}

impl Member {
    fn listen(&mut self) {
        while let Some(line) = self.worker.line_within(Duration::ZERO) {
            self.hear(&line);
        }
    }

    fn hear(&mut self, line: &str) {
        if let Some(calls) = line.strip_prefix("calls ") {
            self.calls = calls.parse().expect("a number");
        }
    }

    fn stopped(&mut self) -> bool {
        loop {
            match self.worker.line_within(HANG_LIMIT) {
                Some(line) if line == "stopped" => return true,
                Some(line) => self.hear(&line),
                None => return false,
            }
        }
    }
}

fn spawn(manner: &str, store: &str, url: &str, dir: &Path, number: u32, words: Words) -> Worker {
    let program = env::current_exe().expect("a process knows its program");
    let worker = Worker::program(program).args([manner, store, url]);
    let worker = worker.arg(dir.as_os_str());
    let lease = words.lease.as_millis().to_string();
    // A seat, and the audit as the first one, whose process has ended.
    let port = (words.metrics).map(|first| metrics::port(first, number % SEATS));
    let port = port.map_or("-".to_owned(), |port| port.to_string());
    worker
        .args([number.to_string(), words.seed.to_string(), lease, port])
        .spawn()
}

/// A fresh process calls all the keys of the file `audit` once more.
pub(crate) fn audit(store: &str, site: &Site, dir: &Path, words: Words) {
    const NUMBER: u32 = 4_000_000;
    let mut worker = spawn("audit", store, &site.url(None), dir, NUMBER, words);
    // It reports calls until then.
    while worker.line() != "stopped" {}
}
