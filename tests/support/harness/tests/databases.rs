//! The harness of databases against real servers: every test with both, and what Postgres alone has.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use idem_harness::{HANG_LIMIT, PostgresServer, TcpProxy, Worker, eventually};

use crate::database::{Client, Server};

/// Runs each of these functions as a test with either server.
macro_rules! on_both {
    ($($test:ident)*) => {
        mod postgres {
            $(#[test] fn $test() { super::$test::<idem_harness::PostgresServer>(); })*
        }
        mod mariadb {
            $(#[test] fn $test() { super::$test::<idem_harness::MariaDbServer>(); })*
        }
    };
}

on_both! {
    committed_data_survives_each_end_with_clients_connected
    a_paused_server_answers_when_it_is_resumed
    settings_reach_the_server_and_unknown_ones_are_refused_in_its_words
    a_password_is_required_and_is_in_the_url
    databases_of_any_name_can_be_made
    sql_that_is_refused_is_not_taken_for_an_answer
    a_commit_whose_reply_is_dropped_has_been_done
}

fn committed_data_survives_each_end_with_clients_connected<S: Server>() {
    for durable in [true, false] {
        let builder = S::builder();
        let server = if durable { builder.durable() } else { builder }.start();
        let start = format!("{}://idem@127.0.0.1:{}/", S::SCHEME, server.port());
        assert_eq!(server.url(), format!("{start}idem"));
        server.execute("CREATE TABLE t (n INT)");
        let ends: [(fn(&S), _); 3] = [
            (|server| server.stop(), "stop"),
            (|_| {}, "restart"),
            (|server| server.kill(), "kill"),
        ];
        for (number, (end, name)) in (1..).zip(ends) {
            let clients = [(); 5].map(|()| Client::<S>::new(&server.url()));
            clients[0].ask("INSERT INTO t VALUES (1)");
            end(&server);
            assert_eq!(server.is_running(), name == "restart", "{name}");
            server.restart();
            assert!(
                clients
                    .iter()
                    .all(|client| client.try_ask("SELECT 'one'").is_err()),
                "{name}"
            );
            let count = server.execute("SELECT count(*) FROM t");
            assert_eq!(count, number.to_string(), "{name}");
            assert_eq!(server.log().contains(S::RECOVERS), name == "kill", "{name}");
            let is_durable = server.execute(S::IS_DURABLE) == S::DURABLE;
            assert_eq!(is_durable, durable, "{name}");
        }
    }
}

fn a_paused_server_answers_when_it_is_resumed<S: Server>() {
    let server = S::builder().start();
    let client = Client::<S>::new(&server.url());
    server.pause();
    client.ask_late("SELECT 'late'", Duration::from_millis(50), || {
        let hasty = Client::<S>::try_new(&server.url(), Duration::from_millis(50));
        assert!(hasty.is_err(), "a paused server accepts a connection");
        server.resume();
    });
    assert_eq!(server.execute("SELECT 1; SELECT 'two';"), "1\ntwo");
}

fn settings_reach_the_server_and_unknown_ones_are_refused_in_its_words<S: Server>() {
    let server = S::builder().setting("max_connections", "17").start();
    assert_eq!(server.execute(S::MAX_CONNECTIONS), "17");
    server.restart();
    assert_eq!(server.execute(S::MAX_CONNECTIONS), "17");
    assert_eq!(S::builder().start().execute(S::MAX_CONNECTIONS), "300");

    let started = S::builder().setting("no_such_setting", "1").try_start();
    let message = started.err().unwrap().to_string();
    assert!(message.contains("no_such_setting"), "{message}");
    assert!(message.contains("its log ends"), "{message}");
}

fn a_password_is_required_and_is_in_the_url<S: Server>() {
    let server = S::builder().start();
    let url = server.password_url();
    assert_eq!(
        url,
        format!("{}://app:pass%40word@{}/idem", S::SCHEME, server.addr())
    );
    let client = Client::<S>::new(&url);
    client.ask("CREATE TABLE t (n INT)");
    for wrong in [url.replace("%40", ""), url.replace(":pass%40word", "")] {
        let refused = Client::<S>::try_new(&wrong, HANG_LIMIT).err();
        let refused = refused.expect("a wrong password is refused").to_string();
        assert!(refused.contains("app"), "{refused}");
    }
    // The owner of one database, not of the server.
    assert!(client.try_ask("CREATE DATABASE other").is_err());
}

fn databases_of_any_name_can_be_made<S: Server>() {
    let server = S::builder().start();
    let url = server.create_database("other");
    assert_eq!(url, server.url_of("other"));
    assert_eq!(Client::<S>::new(&url).ask(S::DATABASE), "other");
    let name = "a`b\"c d";
    let _ = server.create_database(name);
    assert_eq!(server.execute_in(name, S::DATABASE), name);
    assert_eq!(server.execute(S::DATABASE), "idem");
}

fn sql_that_is_refused_is_not_taken_for_an_answer<S: Server>() {
    let server = S::builder().start();
    let error = server.try_execute("SELECT * FROM nowhere").unwrap_err();
    assert!(error.contains("nowhere"), "{error}");
    server.kill();
    let error = server.try_execute("SELECT 1").unwrap_err();
    assert!(
        error.contains(&server.port().to_string()) || error.contains("connect"),
        "{error}"
    );
}

/// The proxy passes the handshake of either protocol, in which `MariaDB` speaks first.
fn a_commit_whose_reply_is_dropped_has_been_done<S: Server>() {
    let server = S::builder().start();
    let proxy = TcpProxy::start(server.addr());
    server.execute("CREATE TABLE t (n INT)");
    let client = Client::<S>::new(&server.url_at(proxy.addr()));
    assert_eq!(client.ask("SELECT repeat('v', 300000)").len(), 300_000);
    client.try_run("BEGIN").unwrap();
    client.try_run("INSERT INTO t VALUES (7)").unwrap();
    assert_eq!(server.execute("SELECT n FROM t"), "");
    proxy.drop_next_reply_to("COMMIT");
    assert!(client.try_run("COMMIT").is_err());
    assert_eq!(proxy.stats().dropped_replies, 1);
    assert_eq!(server.execute("SELECT n FROM t"), "7");
}

/// Keeps the process of a connection busy: it reacts only to signals.
const BUSY: &str = "DO $$ BEGIN LOOP END LOOP; END $$";
const BUSY_PID: &str =
    "SELECT pid::text FROM pg_stat_activity WHERE query LIKE 'DO%' AND state = 'active'";

#[test]
fn a_kill_ends_busy_connections_too() {
    let server = PostgresServer::start();
    thread::scope(|scope| {
        let busy = scope.spawn(|| server.try_execute(BUSY));
        let pid = busy_pid(|| server.execute(BUSY_PID));
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
            let pid = busy_pid(|| client.ask(BUSY_PID));
            let memory = shared_memory(&dir);
            if pause {
                worker.send("pause");
                assert_eq!(worker.line(), "paused");
            }
            worker.kill9();
            eventually("the connection is gone", || !runs(&pid));
            assert!(busy.join().unwrap().is_err());
            eventually("its shared memory is gone", || !has_shared_memory(&memory));
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

/// Waits for a busy connection.
fn busy_pid(ask: impl Fn() -> String) -> String {
    let mut pid = String::new();
    eventually("a connection is busy", || {
        pid = ask();
        !pid.is_empty()
    });
    pid
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
