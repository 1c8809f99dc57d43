//! The clock of SQLite is that of each process.

use idem_harness::{FakeClock, TestDir, Worker};

fn worker(dir: &TestDir, clock: &FakeClock) -> Worker {
    let url = format!("sqlite:{}", dir.path().join("records.db").display());
    let worker = Worker::sibling("idem-sql-faults-worker").clock(clock);
    let mut worker = worker.args(["clock", &url]).spawn();
    assert_eq!(worker.line(), "begun");
    worker
}

/// The lines of the worker up to this one.
fn until(worker: &mut Worker, last: &str) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        lines.push(worker.line());
        if lines.last().is_some_and(|line| line == last) {
            return lines;
        }
    }
}

#[test]
fn a_step_is_reported() {
    let (dir, clock) = (TestDir::new("clock").unwrap(), FakeClock::new());
    let mut worker = worker(&dir, &clock);
    worker.send("call a");
    assert_eq!(until(&mut worker, "called a"), ["effect a", "called a"]);
    clock.set(31);
    worker.send("call b");
    let told = until(&mut worker, "called b");
    assert_eq!(told[0], "clock stepped forward");
    clock.set(0);
    // Claims sent within a second of the last step are not compared.
    let mut told = Vec::new();
    for call in 0.. {
        worker.send(&format!("call c{call}"));
        told = until(&mut worker, &format!("called c{call}"));
        if told.len() > 2 {
            break;
        }
    }
    assert_eq!(told[0], "clock stepped back");
}

/// Documented as a limit of leases.
#[test]
fn limit_a_step_of_more_than_the_lease_starts_a_second_body() {
    let (dir, clock) = (TestDir::new("clock").unwrap(), FakeClock::new());
    let (mut first, mut second) = (worker(&dir, &clock), worker(&dir, &clock));
    first.send("hold a");
    assert_eq!(first.line(), "effect a");
    clock.set(31);
    second.send("call a");
    assert_eq!(until(&mut second, "called a"), ["effect a", "called a"]);
}
