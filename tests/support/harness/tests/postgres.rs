//! Possible remains of a killed Postgres: the process of a busy connection, and shared memory.

use std::fs;
use std::process::Command;

use idem_harness::{PostgresServer, Worker, eventually};

#[test]
fn busy_connections_and_shared_memory_go_with_the_process_that_started_the_server() {
    for pause in [false, true] {
        let mut worker = Worker::sibling("harness-worker").arg("busy").spawn();
        let pid = worker.line_after("busy");
        let memory = shared_memory(&worker.line_after("dir"));
        assert!(runs(&pid) && has_shared_memory(&memory));
        if pause {
            worker.send("pause");
            assert_eq!(worker.line(), "paused");
        }
        worker.kill9();
        eventually("the connection is gone", || !runs(&pid));
        eventually("its shared memory is gone", || !has_shared_memory(&memory));
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
        .output();
    let state = String::from_utf8(ps.unwrap().stdout).unwrap();
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
