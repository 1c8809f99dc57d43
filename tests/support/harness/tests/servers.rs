//! Every kind of server is started, killed, paused, started again and dropped in the same way.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::{fs, thread};

use idem_harness::{Worker, eventually};

use crate::kinds::{KINDS, Kind};

/// Runs a check with each kind of server at once; the panic names the kinds that fail.
fn with_each(check: fn(&Kind)) {
    let failed = thread::scope(|scope| {
        let runs = KINDS.each_ref().map(|kind| {
            let run = thread::Builder::new().name(kind.name.to_owned());
            let run = run.spawn_scoped(scope, move || check(kind));
            (kind.name, run.expect("a thread can be started"))
        });
        let runs = runs.into_iter();
        let failed = runs.filter_map(|(name, run)| run.join().is_err().then_some(name));
        failed.collect::<Vec<_>>()
    });
    assert!(failed.is_empty(), "fails with {failed:?}");
}

#[test]
fn a_started_server_listens_until_it_is_killed_and_comes_back_on_its_port() {
    with_each(|kind| {
        let server = (kind.start)();
        let (addr, pid) = (server.addr(), server.pid());
        assert!(server.is_running());
        let _open = [(); 5].map(|()| TcpStream::connect(addr).unwrap());
        assert!(server.log().contains(kind.ready), "{}", server.log());

        server.kill();
        assert!(!server.is_running());
        assert!(TcpStream::connect(addr).is_err());

        server.restart();
        assert_eq!(server.addr(), addr);
        assert_ne!(server.pid(), pid);
        assert!(TcpStream::connect(addr).is_ok());
    });
}

#[test]
fn servers_are_independent_of_each_other_and_of_threads_and_leave_nothing_when_dropped() {
    with_each(|kind| {
        let [one, two] = [(); 2]
            .map(|()| thread::spawn(kind.start))
            .map(|start| start.join().unwrap());
        assert_ne!(one.addr(), two.addr());
        assert_ne!((one.dir(), one.pid()), (two.dir(), two.pid()));
        let (addr, dir) = (one.addr(), one.dir().to_owned());
        let _open = TcpStream::connect(addr).unwrap();
        drop(one);
        assert!(!dir.exists());
        assert!(TcpListener::bind(addr).is_ok());
        assert!(TcpStream::connect(two.addr()).is_ok());
    });
}

#[test]
fn a_paused_server_can_be_killed_restarted_and_dropped() {
    with_each(|kind| {
        let server = (kind.start)();
        for killed in [true, false] {
            let _open = TcpStream::connect(server.addr()).unwrap();
            server.pause();
            server.pause();
            assert!(server.is_running());
            if killed {
                server.kill();
            }
            server.restart();
            assert!(TcpStream::connect(server.addr()).is_ok());
        }
        server.pause();
    });
}

#[test]
fn a_failed_test_keeps_the_files_of_its_server() {
    with_each(|kind| {
        let server = (kind.start)();
        let (addr, dir) = (server.addr(), server.dir().to_owned());
        let failed = catch_unwind(AssertUnwindSafe(move || {
            let _server = server;
            panic!("on purpose");
        }));
        assert!(failed.is_err());
        assert!(TcpStream::connect(addr).is_err());
        let log = fs::read_to_string(dir.join("server.log")).unwrap();
        assert!(log.contains(kind.ready), "{log}");
        fs::remove_dir_all(dir).unwrap();
    });
}

#[test]
fn a_server_dies_with_the_process_that_started_it() {
    with_each(|kind| {
        // The worker's server depends on the worker, not on this process: one is running, one is paused.
        let [(mut one, first, _), (mut two, second, dir)] = [(); 2].map(|()| worker(kind.name));
        assert_ne!(first, second);
        two.send("pause");
        assert_eq!(two.line(), "paused");
        two.kill9();
        eventually("the paused server is gone", || !listens(second));
        eventually("its directory is gone", || !dir.exists());
        assert!(listens(first));
        one.kill9();
        eventually("the running server is gone", || !listens(first));
    });
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
