//! Postgres only: a process for each connection, and shared memory.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

use std::net::SocketAddr;
use std::process::Command;
use std::{fs, thread};

use idem_harness::{PostgresServer, Worker};

mod database;

use database::{Client, until};

/// Keeps the process of a connection busy: it reacts only to signals.
const BUSY: &str = "DO $$ BEGIN LOOP END LOOP; END $$";
const BUSY_PID: &str =
    "SELECT pid::text FROM pg_stat_activity WHERE query LIKE 'DO%' AND state = 'active'";

#[test]
fn a_kill_ends_busy_connections_too() {
    let server = PostgresServer::start();
    thread::scope(|scope| {
        let busy = scope.spawn(|| server.try_execute(BUSY));
        let mut pid = String::new();
        until("a connection is busy", || {
            pid = server.execute(BUSY_PID);
            !pid.is_empty()
        });
        server.kill();
        let lives = runs(&pid);
        if lives {
            // Without it, this test would never end.
            Command::new("kill").args(["-9", &pid]).status().unwrap();
        }
        assert!(!lives, "{pid} lives on");
        assert!(busy.join().unwrap().is_err());
        server.restart();
    });
}

#[test]
fn busy_and_stopped_connections_die_with_the_process_that_started_their_server() {
    for pause in [false, true] {
        let mut worker = Worker::sibling("harness-worker").arg("postgres").spawn();
        let addr: SocketAddr = worker.line_after("addr").parse().unwrap();
        let dir = worker.line_after("dir");
        let url = format!("postgres://idem@{addr}/idem");
        let client = Client::<PostgresServer>::new(&url);
        thread::scope(|scope| {
            let busy = scope.spawn(|| Client::<PostgresServer>::new(&url).try_ask(BUSY));
            let mut pid = String::new();
            until("a connection is busy", || {
                pid = client.ask(BUSY_PID);
                !pid.is_empty()
            });
            let memory = shared_memory(&dir);
            if pause {
                worker.send("pause");
                assert_eq!(worker.line(), "paused");
            }
            worker.kill9();
            until("the connection is gone", || !runs(&pid));
            assert!(busy.join().unwrap().is_err());
            until("its shared memory is gone", || !has_shared_memory(&memory));
        });
    }
}

#[test]
fn a_killed_server_leaves_no_shared_memory() {
    let server = PostgresServer::start();
    let memory = shared_memory(&server.dir().display().to_string());
    server.kill();
    assert!(has_shared_memory(&memory));
    drop(server);
    assert!(!has_shared_memory(&memory));
}

/// An ended process may be a zombie until its parent reaps it.
fn runs(pid: &str) -> bool {
    let ps = Command::new("ps")
        .args(["-o", "state=", "-p", pid])
        .output()
        .unwrap();
    let state = String::from_utf8(ps.stdout).unwrap();
    !state.is_empty() && !state.starts_with('Z')
}

/// The id of a server's shared memory.
fn shared_memory(dir: &str) -> String {
    let lock = fs::read_to_string(format!("{dir}/data/postmaster.pid")).unwrap();
    let line = lock.lines().nth(6).unwrap();
    line.split_whitespace().nth(1).unwrap().to_owned()
}

fn has_shared_memory(id: &str) -> bool {
    let ipcs = Command::new("ipcs").arg("-m").output().unwrap();
    let all = String::from_utf8(ipcs.stdout).unwrap();
    all.lines()
        .any(|line| line.split_whitespace().nth(1) == Some(id))
}
