//! One key shared by several processes: many at once, killed ones, paused ones, slow ones.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use idem_harness::{RedisServer, Worker};
use idem_tests::worker_fleet::WorkerFleet;

fn fleet(prefix: &str) -> WorkerFleet<'static> {
    static SERVER: OnceLock<RedisServer> = OnceLock::new();
    WorkerFleet::new(SERVER.get_or_init(RedisServer::start), prefix)
}

/// The fence and attempt of the next body that begins.
fn started(worker: &mut Worker) -> (u64, u64) {
    let line = worker.line_after("start ");
    let numbers: Vec<Result<u64, _>> = line.split(' ').skip(2).map(str::parse).collect();
    match numbers[..] {
        [Ok(_), Ok(fence), Ok(attempt)] => (fence, attempt),
        _ => panic!("not a start: {line}"),
    }
}

/// Starts a body that then waits: its fence and attempt.
fn hold(worker: &mut Worker, id: u64) -> (u64, u64) {
    worker.send(&format!("call {id} k hold"));
    let begun = started(worker);
    worker.line_after(&format!("event held {id}"));
    begun
}

/// The answer of the next call that ends, which must not be an error.
fn answer(worker: &mut Worker) -> String {
    let line = loop {
        let line = worker.line();
        assert!(!line.starts_with("end "), "{line}");
        if line.starts_with("return ") {
            break line;
        }
    };
    line.split(' ').nth(4).expect("an answer").to_owned()
}

/// The error of the next call that ends.
fn refusal(worker: &mut Worker) -> String {
    let line = worker.line_after("end ");
    line.splitn(3, ' ').nth(2).expect("a reason").to_owned()
}

/// Calls one key from four processes at once, equally often in each, and ends their one body when all
/// have begun. Every call must get the same answer.
fn burst(fleet: &WorkerFleet<'_>, workers: &mut [Worker], each: u32) {
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
            effects += usize::from(line.starts_with("effect "));
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
    assert_eq!((fleet.effects("k"), effects), (1, 1));
}

#[test]
fn a_thousand_calls_from_four_processes_run_one_body() {
    let fleet = fleet("thousand");
    burst(&fleet, &mut fleet.spawn_many(4), 250);
}

/// All duplicates of a process share one claim, one subscription and one read of the answer.
#[test]
fn ten_thousand_calls_from_four_processes_cost_few_commands() {
    // Claim, subscribe, read, read again when notified; making the connections; completing; the first polls, which
    // make up for a lost message while the body runs (100 ms, 200 ms … 1 s).
    const EACH: usize = 16;
    // A poll a second after that, and a script that the server does not have yet.
    const EACH_SECOND: usize = 2;
    let server = RedisServer::start();
    let fleet = WorkerFleet::new(&server, "crowd");
    let mut workers = fleet.spawn_many(4);
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
    let fleet = fleet("killed").impatient();
    let mut workers = fleet.spawn_many(2);
    let (fence, attempt) = hold(&mut workers[0], 1);
    assert_eq!(attempt, 1);
    workers[0].kill9();
    let worker = &mut workers[1];
    for (id, age) in [(1, 0), (2, 25), (3, 25)] {
        fleet.advance(Duration::from_secs(age));
        worker.send(&format!("call {id} k now"));
        let refused = refusal(worker);
        assert!(refused.starts_with("Running"), "{refused}");
    }
    fleet.advance(Duration::from_secs(10));
    worker.send("call 4 k now");
    let (second_fence, second_attempt) = started(worker);
    assert_eq!(second_attempt, 2);
    assert!(second_fence > fence);
    answer(worker);
    // The killed body had no time for its effect.
    assert_eq!(fleet.effects("k"), 1);
}

#[test]
fn a_paused_process_whose_key_was_taken_over_returns_the_winners_answer() {
    let fleet = fleet("zombie").impatient();
    let mut workers = fleet.spawn_many(2);
    let (fence, _) = hold(&mut workers[0], 1);
    workers[0].pause();
    fleet.advance(Duration::from_mins(1));
    workers[1].send("call 1 k now");
    let (second_fence, attempt) = started(&mut workers[1]);
    assert_eq!(attempt, 2);
    assert!(second_fence > fence);
    let winner = answer(&mut workers[1]);
    workers[0].resume();
    let record = fleet.record();
    workers[0].send("finish 1");
    assert_eq!(answer(&mut workers[0]), winner);
    assert_eq!(fleet.record(), record);
    // The lease protects the answer, not the effect.
    assert_eq!(fleet.effects("k"), 2);
}

#[test]
fn a_body_that_runs_for_longer_than_its_lease_keeps_its_key() {
    let mut fleet = fleet("long").impatient();
    fleet.lease = Duration::from_secs(3);
    let mut workers = fleet.spawn_many(2);
    hold(&mut workers[0], 1);
    // Four thirds of a lease, and more.
    for id in 1..=4 {
        workers[0].line_after("event renewed");
        workers[1].send(&format!("call {id} k now"));
        let refused = refusal(&mut workers[1]);
        assert!(refused.starts_with("Running"), "{refused}");
    }
    workers[0].send("finish 1");
    let winner = answer(&mut workers[0]);
    workers[1].send("call 5 k now");
    assert_eq!(answer(&mut workers[1]), winner);
    assert_eq!(fleet.effects("k"), 1);
}
