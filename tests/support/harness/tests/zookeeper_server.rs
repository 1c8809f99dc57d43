//! The `ZooKeeper` harness against a real server.

use std::net::TcpStream;

use idem_harness::ZooKeeperServer;

#[test]
fn a_started_server_listens_until_it_is_killed_and_comes_back_on_its_port() {
    let server = ZooKeeperServer::start();
    let addr = server.addr();
    assert!(server.is_running());
    assert!(TcpStream::connect(addr).is_ok());
    assert!(server.log().contains("binding to port"), "{}", server.log());

    server.kill();
    assert!(!server.is_running());
    assert!(TcpStream::connect(addr).is_err());

    server.restart();
    assert_eq!(server.addr(), addr);
    assert!(TcpStream::connect(addr).is_ok());
}

#[test]
fn servers_are_independent_and_are_stopped_when_dropped() {
    let (one, two) = (ZooKeeperServer::start(), ZooKeeperServer::start());
    assert_ne!(one.addr(), two.addr());
    let addr = one.addr();
    drop(one);
    assert!(TcpStream::connect(addr).is_err());
    assert!(two.is_running());
}
