//! Databases whose tests are killed: every test with both.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod database;

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread;

use database::{Server, on_both, until};
use idem_harness::Worker;

on_both! {
    a_server_dies_with_the_process_that_started_it
    a_paused_server_dies_with_the_process_that_started_it
    servers_of_several_processes_start_at_once
}

fn a_server_dies_with_the_process_that_started_it<S: Server>() {
    let mut worker = spawn::<S>();
    let (addr, dir) = place(&mut worker);
    worker.kill9();
    until("the server is gone", || TcpStream::connect(addr).is_err());
    until("its directory is gone", || !dir.exists());
}

fn a_paused_server_dies_with_the_process_that_started_it<S: Server>() {
    let mut worker = spawn::<S>();
    let (addr, dir) = place(&mut worker);
    worker.send("pause");
    assert_eq!(worker.line(), "paused");
    worker.kill9();
    until("the server is gone", || TcpStream::connect(addr).is_err());
    until("its directory is gone", || !dir.exists());
}

fn servers_of_several_processes_start_at_once<S: Server>() {
    let mut workers: Vec<_> = (0..3).map(|_| spawn::<S>()).collect();
    let here = thread::spawn(|| S::builder().start());
    let mut addrs: Vec<_> = workers.iter_mut().map(|worker| place(worker).0).collect();
    addrs.push(here.join().unwrap().addr());
    addrs.sort_unstable();
    addrs.dedup();
    assert_eq!(addrs.len(), 4);
}

fn spawn<S: Server>() -> Worker {
    Worker::sibling("harness-worker").arg(S::NAME).spawn()
}

fn place(worker: &mut Worker) -> (SocketAddr, PathBuf) {
    let addr = worker.line_after("addr").parse().expect("an address");
    let dir = PathBuf::from(worker.line_after("dir"));
    assert!(TcpStream::connect(addr).is_ok() && dir.exists());
    (addr, dir)
}
