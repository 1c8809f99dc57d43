//! The worker processes of a run: four seats, each with one process at a time.

use std::env;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idem_harness::{TcpProxy, Worker};
use idem_tests::checker::SEATS;

use crate::metrics;
use crate::stores::Site;
use crate::worker::Settings;

#[derive(Debug)]
pub(crate) struct WorkerFleet {
    seats: Vec<Seat>,
    /// Of a process that reaches the store without proxies.
    settings: Settings,
    /// Calls of processes that are no more.
    past: AtomicU64,
}

/// Place of successive processes, behind a separate network.
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

impl WorkerFleet {
    pub(crate) fn spawn(site: &Site, settings: Settings) -> Self {
        let spawn = |number| {
            let proxies = site.proxies();
            let url = site.url(Some(&proxies));
            let worker = spawn(&settings, &url, number, false);
            Seat {
                url,
                proxies,
                member: Mutex::new(Member {
                    number,
                    worker,
                    calls: 0,
                }),
            }
        };
        Self {
            seats: (0..site.seats()).map(spawn).collect(),
            settings,
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

    /// Replaces the process of a seat, which is killed with SIGKILL. Returns the number of the killed.
    pub(crate) fn kill(&self, seat: u32) -> u32 {
        let mut member = self.member(seat);
        member.listen();
        member.worker.kill9();
        self.past.fetch_add(member.calls, Ordering::Relaxed);
        let (killed, number) = (member.number, member.number + SEATS);
        let url = &self.seats[seat as usize].url;
        member.worker = spawn(&self.settings, url, number, false);
        (member.number, member.calls) = (number, 0);
        killed
    }

    pub(crate) fn pause(&self, seat: u32) {
        self.member(seat).worker.pause();
    }

    pub(crate) fn resume(&self, seat: u32) {
        self.member(seat).worker.resume();
    }

    /// Lets every process end its calls.
    pub(crate) fn stop(&self) {
        for seat in 0..self.len() {
            self.member(seat).worker.send("stop");
        }
        for seat in 0..self.len() {
            self.member(seat).worker.line_after("stopped");
        }
    }

    /// Lets a fresh process call all answered keys once more.
    pub(crate) fn audit(&self) {
        const NUMBER: u32 = 4_000_000;
        let mut worker = spawn(&self.settings, &self.settings.url, NUMBER, true);
        worker.line_after("stopped");
    }
}

impl Member {
    fn listen(&mut self) {
        while let Some(line) = self.worker.line_within(Duration::ZERO) {
            if let Some(calls) = line.strip_prefix("calls ") {
                self.calls = calls.parse().expect("a number");
            }
        }
    }
}

/// A process of this number. A port of metrics belongs to a seat, that of an audit to the first one, whose process has
/// ended.
fn spawn(settings: &Settings, url: &str, number: u32, audits: bool) -> Worker {
    let metrics = (settings.metrics).map(|first| metrics::port(first, number % SEATS));
    let settings = Settings {
        audits,
        url: url.to_owned(),
        number,
        metrics,
        ..settings.clone()
    };
    let settings = serde_json::to_string(&settings).expect("settings are text and numbers");
    let program = env::current_exe().expect("a process knows its program");
    Worker::program(program).args(["worker", &settings]).spawn()
}
