//! Random kills of processes behind a network with faults, and a checker of their history.

use std::time::{Duration, Instant};

use idem_harness::{RedisServer, TcpProxy, Worker};
use idem_tests::history::History;
use idem_tests::seeded::Seeded;
use idem_tests::worker_fleet::WorkerFleet;

const STORM: Duration = Duration::from_secs(10);
/// Number of lines read between two faults.
const CALM: u64 = 60;

struct Storm<'a> {
    fleet: WorkerFleet<'a>,
    proxy: &'a TcpProxy,
    seeded: Seeded,
    history: History,
    workers: Vec<(usize, Worker)>,
    next: usize,
}

impl Storm<'_> {
    fn spawn(&mut self) {
        let mut worker = self.fleet.spawn();
        worker.send(&format!("soak {}", self.seeded.below(u64::MAX)));
        self.workers.push((self.next, worker));
        self.next += 1;
    }

    /// Reads this many lines, or as many as arrive within a second.
    fn read(&mut self, lines: u64) {
        let patience = Duration::from_millis(2);
        let give_up = Instant::now() + Duration::from_secs(1);
        let mut read = 0;
        while read < lines && Instant::now() < give_up {
            for (number, worker) in &mut self.workers {
                while let Some(line) = worker.line_within(patience / 2) {
                    self.history.line(*number, &line);
                    read += 1;
                }
            }
        }
    }

    fn kill(&mut self) {
        let workers = self.workers.len() as u64;
        let at = usize::try_from(self.seeded.below(workers)).expect("a few workers");
        let (number, mut worker) = self.workers.swap_remove(at);
        worker.kill9();
        for line in worker.rest() {
            self.history.line(number, &line);
        }
        self.history.killed(number);
        self.spawn();
    }

    fn lapse(&mut self) {
        let from = self.fleet.time();
        self.fleet.advance(self.fleet.lease);
        self.history.lapsed(from, self.fleet.time());
    }

    fn fault(&mut self) -> &'static str {
        match self.seeded.below(10) {
            0 | 1 => {
                self.kill();
                "kill"
            }
            2 | 3 => {
                self.kill();
                self.lapse();
                "kill and lapse"
            }
            4 | 5 => {
                self.lapse();
                "lapse"
            }
            6 | 7 => {
                self.proxy.cut();
                "cut"
            }
            _ => {
                for _ in 0..=self.seeded.below(3) {
                    self.proxy.drop_next_reply_to("EVALSHA");
                }
                "lost replies"
            }
        }
    }

    /// Completes the calls under way.
    fn stop(&mut self) {
        for (number, mut worker) in self.workers.drain(..) {
            worker.send("stop");
            loop {
                let line = worker.line();
                if line == "stopped" {
                    break;
                }
                self.history.line(number, &line);
            }
        }
    }

    fn finish(&mut self) {
        self.lapse();
        let mut worker = self.fleet.spawn();
        for (id, key) in self.history.keys().iter().enumerate() {
            worker.send(&format!("call {id} {key} now"));
            loop {
                let line = worker.line();
                self.history.line(self.next, &line);
                if line.starts_with("return ") {
                    break;
                }
                assert!(!line.starts_with("end "), "a key does not end: {line}");
            }
        }
    }
}

#[test]
fn no_fault_gives_a_key_two_answers_or_an_unexplained_run() {
    let server = RedisServer::start();
    let proxy = TcpProxy::start(server.addr());
    let mut fleet = WorkerFleet::new(&server, "chaos");
    fleet.url = proxy.url();
    fleet.wait = Duration::from_millis(200);
    let (seed, seeded) = Seeded::from_env();
    let mut storm = Storm {
        fleet,
        proxy: &proxy,
        seeded,
        history: History::default(),
        workers: Vec::new(),
        next: 0,
    };
    (0..3).for_each(|_| storm.spawn());
    let end = Instant::now() + STORM;
    let mut faults = Vec::new();
    for window in 0.. {
        if Instant::now() > end {
            break;
        }
        for (_, worker) in &mut storm.workers {
            worker.send(&format!("window {}", window * 2));
        }
        storm.read(CALM);
        faults.push(storm.fault());
    }
    storm.stop();
    storm.finish();
    let (_, starts) = storm.history.size();
    let keys = storm.history.keys().len();
    let violations = storm.history.violations(|key| storm.fleet.effects(key));
    assert_eq!(violations, [""; 0], "IDEM_TEST_SEED={seed}");
    assert!(keys > 20 && starts > keys && faults.len() > 20);
}
