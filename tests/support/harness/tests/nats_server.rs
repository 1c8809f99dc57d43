//! The NATS harness against a real server.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use idem_harness::NatsServer;

/// The server's answer to a login.
fn login(server: &NatsServer, user: &str, password: &str) -> String {
    let mut stream = TcpStream::connect(server.addr()).expect("the server listens");
    let hello = format!(r#"CONNECT {{"verbose":false,"user":"{user}","pass":"{password}"}}"#);
    write!(stream, "{hello}\r\nPING\r\n").expect("the server reads");
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    let lines: Vec<_> = lines.take(2).collect();
    assert!(lines[0].starts_with("INFO "), "{lines:?}");
    lines[1].clone()
}

#[test]
fn a_started_server_listens_until_it_is_killed_and_comes_back_on_its_port() {
    let server = NatsServer::start();
    let addr = server.addr();
    assert!(server.is_running());
    assert!(TcpStream::connect(addr).is_ok());
    assert!(
        server.log().contains("Starting JetStream"),
        "{}",
        server.log()
    );

    server.kill();
    assert!(!server.is_running());
    assert!(TcpStream::connect(addr).is_err());

    server.restart();
    assert_eq!(server.addr(), addr);
    assert!(TcpStream::connect(addr).is_ok());
}

#[test]
fn a_server_with_a_login_refuses_another_one() {
    let server = NatsServer::start_with_login("bills", "first");
    assert_eq!(login(&server, "bills", "first"), "PONG");
    assert_eq!(
        login(&server, "bills", "second"),
        "-ERR 'Authorization Violation'"
    );

    server.restart_with_login("bills", "second");
    assert_eq!(login(&server, "bills", "second"), "PONG");
    assert!(server.url().contains("bills:second@"));
}

#[test]
fn servers_are_independent_and_are_stopped_when_dropped() {
    let (one, two) = (NatsServer::start(), NatsServer::start());
    assert_ne!(one.addr(), two.addr());
    let addr = one.addr();
    drop(one);
    assert!(TcpStream::connect(addr).is_err());
    assert!(two.is_running());
}
