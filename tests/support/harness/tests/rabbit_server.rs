//! The `RabbitMQ` harness against a real broker.

use std::net::TcpStream;

use idem_harness::RabbitServer;

#[test]
fn a_started_broker_listens_until_it_is_killed_and_comes_back_with_its_data() {
    let server = RabbitServer::start();
    let addr = server.addr();
    assert!(server.is_running());
    assert!(TcpStream::connect(addr).is_ok());
    assert_eq!(server.ctl(&["add_vhost", "kept"]), "");

    server.kill();
    assert!(!server.is_running());
    assert!(TcpStream::connect(addr).is_err());

    server.restart();
    assert_eq!(server.addr(), addr);
    let vhosts = server.ctl(&["list_vhosts", "name"]);
    assert!(vhosts.lines().any(|name| name == "kept"), "{vhosts}");
}

#[test]
fn brokers_are_independent_and_are_stopped_when_dropped() {
    let (one, two) = (RabbitServer::start(), RabbitServer::start());
    assert_ne!(one.addr(), two.addr());
    assert_eq!(one.ctl(&["add_vhost", "of-one"]), "");
    assert!(!two.ctl(&["list_vhosts", "name"]).contains("of-one"));
    let addr = one.addr();
    drop(one);
    assert!(TcpStream::connect(addr).is_err());
    assert!(two.is_running());
}
