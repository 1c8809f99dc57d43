//! Worker processes, and the children of a killed one.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Duration;

use idem_harness::{RespConn, Worker, eventually as until};

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
fn a_worker_is_run_by_its_path_as_well() {
    let mut worker = Worker::program(env!("CARGO_BIN_EXE_harness-worker"))
        .arg("echo")
        .spawn();
    assert_eq!(worker.line_after("hello"), "");
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
    let mut worker = Worker::sibling("harness-worker").arg("echo").spawn();
    worker.line();
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

#[test]
fn a_server_dies_with_the_process_that_started_it() {
    let (mut worker, addr, dir) = worker_with_a_server(&[]);
    worker.kill9();
    until("the server is gone", || RespConn::open(addr).is_err());
    until("its directory is gone", || !dir.exists());
}

#[test]
fn a_paused_server_dies_with_the_process_that_started_it() {
    let (mut worker, addr, _) = worker_with_a_server(&["paused"]);
    worker.kill9();
    until("the server is gone", || RespConn::open(addr).is_err());
}

#[test]
fn everything_dies_when_a_process_between_is_killed() {
    // The worker's server depends on the worker, not on this process.
    let (first, first_addr, _) = worker_with_a_server(&[]);
    let (mut second, second_addr, _) = worker_with_a_server(&[]);
    second.kill9();
    until("the second server is gone", || {
        RespConn::open(second_addr).is_err()
    });
    assert!(RespConn::open(first_addr).is_ok());
    drop(first);
    until("the first server is gone", || {
        RespConn::open(first_addr).is_err()
    });
}

fn worker_with_a_server(args: &[&str]) -> (Worker, SocketAddr, PathBuf) {
    let mut worker = Worker::sibling("harness-worker")
        .arg("server")
        .args(args.iter().copied())
        .spawn();
    let addr = worker.line_after("addr").parse().expect("an address");
    let dir = PathBuf::from(worker.line_after("dir"));
    assert!(RespConn::open(addr).is_ok() && dir.exists());
    (worker, addr, dir)
}
