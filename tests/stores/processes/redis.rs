//! One key shared by several processes: many at once, killed ones, paused ones.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use idem_harness::{RedisServer, Worker};

/// Worker processes on one prefix of a server.
struct Fleet<'a> {
    server: &'a RedisServer,
    prefix: &'a str,
    /// How long duplicates of a running call wait.
    wait: Duration,
}

impl<'a> Fleet<'a> {
    fn on(server: &'a RedisServer, prefix: &'a str) -> Self {
        Self {
            server,
            prefix,
            wait: Duration::from_secs(30),
        }
    }

    /// On a server that they share, where duplicates are refused at once.
    fn impatient(prefix: &'a str) -> Self {
        let wait = Duration::ZERO;
        Self {
            wait,
            ..Self::on(shared(), prefix)
        }
    }

    fn spawn(&self, count: usize) -> Vec<Worker> {
        let millis = |time: Duration| time.as_millis().to_string();
        let (url, addr) = (self.server.url(), self.server.addr().to_string());
        let worker = Worker::sibling("idem-worker")
            .args([&*url, &addr, self.prefix])
            .args([millis(Duration::from_mins(1)), millis(self.wait)]);
        let mut workers: Vec<_> = (0..count).map(|_| worker.clone().spawn()).collect();
        for worker in &mut workers {
            assert_eq!(worker.line(), "ready");
        }
        workers
    }

    fn effects(&self) -> u64 {
        let name = format!("{}:effects:k", self.prefix);
        // A missing counter is an empty line.
        self.server.cli(&["GET", &name]).parse().unwrap_or(0)
    }

    /// Ages every claim.
    fn advance(&self, age: Duration) {
        self.server.advance(age, &format!("{}:", self.prefix));
    }

    /// The name of the only record, and its bytes.
    fn record(&self) -> (String, String) {
        let names = format!("{}:work:*", self.prefix);
        let names = self.server.cli(&["KEYS", &names]);
        assert_eq!(names.lines().count(), 1, "one record: {names}");
        let dump = self.server.reply(&["DUMP", &names]);
        (names, format!("{dump:?}"))
    }
}

fn shared() -> &'static RedisServer {
    static SERVER: OnceLock<RedisServer> = OnceLock::new();
    SERVER.get_or_init(RedisServer::start)
}

/// The fence and attempt of the next body that begins.
fn started(worker: &mut Worker) -> (u64, u64) {
    let line = worker.line_after("start ");
    let (fence, attempt) = line.split_once(' ').expect("two numbers");
    let number = |text: &str| text.parse().expect("a number");
    (number(fence), number(attempt))
}

/// Starts a body that then waits: its fence and attempt.
fn hold(worker: &mut Worker) -> (u64, u64) {
    worker.send("call k hold");
    let begun = started(worker);
    worker.line_after("held");
    begun
}

/// The next answer; an error fails the test.
fn answer(worker: &mut Worker) -> String {
    loop {
        let line = worker.line();
        assert!(!line.starts_with("end "), "{line}");
        if let Some(answer) = line.strip_prefix("return ") {
            return answer.to_owned();
        }
    }
}

/// Panics unless the next call is refused, because another one runs.
fn is_refused(worker: &mut Worker) {
    worker.send("call k now");
    let why = worker.line_after("end ");
    assert!(why.starts_with("Running"), "{why}");
}

/// Calls one key equally often from four processes; ends their body. Every call must get the same answer.
fn burst(fleet: &Fleet<'_>, workers: &mut [Worker], each: u32) {
    for worker in &mut *workers {
        worker.send(&format!("burst k {each}"));
    }
    for worker in &mut *workers {
        worker.line_after("begun");
    }
    for worker in &mut *workers {
        worker.send("go");
    }
    let mut answers = BTreeSet::new();
    let mut effects = 0;
    for worker in workers {
        let told = loop {
            let line = worker.line();
            effects += usize::from(line == "effect");
            if let Some(told) = line.strip_prefix("burst ") {
                break told.to_owned();
            }
        };
        let (counts, answer) = told.rsplit_once(' ').expect("counts and an answer");
        let one = format!("{each} 0 1");
        assert_eq!(counts, one, "answers, errors, different answers");
        answers.insert(answer.to_owned());
    }
    assert_eq!(answers.len(), 1);
    assert_eq!((fleet.effects(), effects), (1, 1));
}

/// Duplicates in a process share a claim, a subscription and a read.
#[test]
fn ten_thousand_calls_from_four_processes_run_one_body_and_cost_few_commands() {
    // Claim, subscribe, read, read again when notified; making the connections; completing; the first polls, which
    // make up for a lost message while the body runs (100 ms, 200 ms … 1 s).
    const EACH: usize = 16;
    // A poll a second after that, and a script that the server does not have yet.
    const EACH_SECOND: usize = 2;
    let server = RedisServer::start();
    let fleet = Fleet::on(&server, "crowd");
    let mut workers = fleet.spawn(4);
    let mut monitor = server.monitor();
    let begun = Instant::now();
    burst(&fleet, &mut workers, 2_500);
    let commands = monitor.names();
    let count = |name: &str| commands.iter().filter(|command| *command == name).count();
    let seconds = usize::try_from(begun.elapsed().as_secs()).expect("a short test");
    assert!(
        commands.len() <= 4 * (EACH + EACH_SECOND * seconds),
        "{} commands: {commands:?}",
        commands.len()
    );
    assert!(
        count("SUBSCRIBE") <= 3,
        "one for each process that waits: {commands:?}"
    );
}

#[test]
fn the_key_of_a_killed_process_is_free_after_its_lease_and_not_before() {
    let fleet = Fleet::impatient("killed");
    let mut workers = fleet.spawn(2);
    let (fence, attempt) = hold(&mut workers[0]);
    assert_eq!(attempt, 1);
    workers[0].kill9();
    let worker = &mut workers[1];
    for age in [0, 25, 25] {
        fleet.advance(Duration::from_secs(age));
        is_refused(worker);
    }
    fleet.advance(Duration::from_secs(10));
    worker.send("call k now");
    let (second_fence, second_attempt) = started(worker);
    assert_eq!(second_attempt, 2);
    assert!(second_fence > fence);
    answer(worker);
    // The killed body had no time for its effect.
    assert_eq!(fleet.effects(), 1);
}

#[test]
fn a_paused_process_whose_key_was_taken_over_returns_the_winners_answer() {
    let fleet = Fleet::impatient("zombie");
    let mut workers = fleet.spawn(2);
    let (fence, _) = hold(&mut workers[0]);
    workers[0].pause();
    fleet.advance(Duration::from_mins(1));
    workers[1].send("call k now");
    let (second_fence, attempt) = started(&mut workers[1]);
    assert_eq!(attempt, 2);
    assert!(second_fence > fence);
    let winner = answer(&mut workers[1]);
    workers[0].resume();
    let record = fleet.record();
    workers[0].send("go");
    assert_eq!(answer(&mut workers[0]), winner);
    assert_eq!(fleet.record(), record);
    // The lease protects the answer, not the effect.
    assert_eq!(fleet.effects(), 2);
}
