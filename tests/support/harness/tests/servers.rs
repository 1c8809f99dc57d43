//! Every kind of server starts, is killed, pauses, restarts and drops alike.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;

use idem_harness::{Edition, RedisServer, Worker, eventually};

use crate::kinds::{KINDS, Started};

/// Runs a check with each kind of server at once; the panic names the kinds that fail.
fn with_each(check: fn(&str, fn() -> Started)) {
    let failed = thread::scope(|scope| {
        let runs = KINDS.map(|(name, start)| (name, scope.spawn(move || check(name, start))));
        let runs = runs.into_iter();
        let failed = runs.filter_map(|(name, run)| run.join().is_err().then_some(name));
        failed.collect::<Vec<_>>()
    });
    assert!(failed.is_empty(), "fails with {failed:?}");
}

/// A cycle of one kind is enough for the restarts: only a start differs between kinds.
#[test]
fn a_server_comes_back_on_its_port_and_leaves_nothing_when_dropped() {
    with_each(|name, start| {
        // Started by a thread that has ended since.
        let server = thread::spawn(start).join().unwrap();
        let (addr, dir, pid) = (server.addr(), server.dir().to_owned(), server.pid());
        let _open = [(); 5].map(|()| TcpStream::connect(addr).unwrap());
        server.kill();
        assert!(!server.is_running() && !listens(addr));
        server.restart();
        assert!(server.pid() != pid && listens(addr));
        let states: &[bool] = if name == "redis" { &[true, false] } else { &[] };
        for is_killed in states {
            server.pause();
            server.pause();
            assert!(server.is_running());
            if *is_killed {
                server.kill();
            }
            server.restart();
            assert!(listens(addr));
        }
        server.pause();
        drop(server);
        assert!(!dir.exists() && TcpListener::bind(addr).is_ok());
    });
}

#[test]
fn a_server_dies_with_the_process_that_started_it() {
    with_each(|name, _| {
        let (mut paused, paused_addr, dir) = worker(name);
        paused.send("pause");
        assert_eq!(paused.line(), "paused");
        paused.kill9();
        eventually("the paused server is gone", || !listens(paused_addr));
        eventually("its directory is gone", || !dir.exists());
    });
    let [(mut one, first, _), (mut two, second, _)] = [(); 2].map(|()| worker("redis"));
    assert_ne!(first, second);
    two.kill9();
    eventually("the second server is gone", || !listens(second));
    assert!(listens(first));
    one.kill9();
    eventually("the first server is gone", || !listens(first));
}

fn worker(name: &str) -> (Worker, SocketAddr, PathBuf) {
    let mut worker = Worker::sibling("harness-worker").arg(name).spawn();
    let addr = worker.line_after("addr").parse().expect("an address");
    let dir = PathBuf::from(worker.line_after("dir"));
    assert!(listens(addr) && dir.exists());
    (worker, addr, dir)
}

fn listens(addr: SocketAddr) -> bool {
    TcpStream::connect(addr).is_ok()
}

/// Otherwise the tests of a version would pass on another one.
#[test]
fn each_edition_has_the_version_of_its_name() {
    // The Redis version of Valkey is the one from which it was forked.
    for (edition, version, is_valkey) in [
        (Edition::Redis62, "6.2.", false),
        (Edition::Redis8, "8.", false),
        (Edition::Valkey, "7.2.", true),
    ] {
        let server = RedisServer::builder().version(edition).start();
        let info = server.cli(&["INFO", "server"]);
        assert!(
            info.contains(&format!("redis_version:{version}")),
            "{edition:?}: {info}"
        );
        assert_eq!(info.contains("valkey_version:"), is_valkey, "{edition:?}");
    }
}
