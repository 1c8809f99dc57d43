//! Worker processes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use idem_harness::Worker;

#[test]
fn a_worker_answers_line_by_line_and_ends_with_its_input() {
    let mut worker = Worker::sibling("harness-worker")
        .arg("echo")
        .env("WORKER_NAME", "w")
        .spawn();
    assert_eq!(worker.line(), "hello w");
    worker.send("one");
    worker.send("two");
    assert_eq!(worker.line_after("echo"), "one");
    assert_eq!(worker.line(), "echo two");
    assert_eq!(worker.wait().code(), Some(7));
    assert_eq!(worker.rest(), [""; 0]);
}

#[test]
fn a_worker_that_ends_unexpectedly_says_why() {
    let worker = Worker::sibling("harness-worker").arg("fail");
    let mut worker = worker.env("RUST_BACKTRACE", "1").spawn();
    let panic = catch_unwind(AssertUnwindSafe(|| worker.line())).unwrap_err();
    let said = panic.downcast_ref::<String>().unwrap();
    assert!(said.contains("has ended with exit status: 101\n"), "{said}");
    assert!(
        said.ends_with("\nthe reason\n  left: 1\n right: 2"),
        "{said}"
    );
}

#[test]
fn a_killed_worker_is_gone() {
    let mut worker = Worker::sibling("harness-worker").args(["echo"]).spawn();
    worker.line();
    worker.kill9();
    assert_eq!(worker.rest(), [""; 0]);
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&worker.wait()),
        Some(9)
    );
}

#[test]
fn a_paused_worker_is_silent_until_it_is_resumed() {
    let path = env!("CARGO_BIN_EXE_harness-worker");
    let mut worker = Worker::program(path).arg("echo").spawn();
    assert_eq!(worker.line_after("hello"), "");
    worker.pause();
    worker.send("late");
    assert_eq!(worker.line_within(Duration::from_millis(50)), None);
    worker.resume();
    assert_eq!(worker.line(), "echo late");
}

#[test]
#[should_panic(expected = "cargo builds the binaries of the package under test only")]
fn a_missing_worker_names_the_build() {
    let _ = Worker::sibling("no-such-worker");
}
