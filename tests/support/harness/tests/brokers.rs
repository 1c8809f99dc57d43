//! What brokers have beside the life of every server: logins of NATS, virtual hosts of `RabbitMQ`.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use idem_harness::{NatsServer, RabbitServer};

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
fn a_nats_server_with_a_login_refuses_another_one() {
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
fn a_killed_rabbit_comes_back_with_its_own_data() {
    let (one, two) = (RabbitServer::start(), RabbitServer::start());
    assert_eq!(one.ctl(&["add_vhost", "of-one"]), "");
    one.kill();
    one.restart();
    let [of_one, of_two] = [&one, &two].map(|server| server.ctl(&["list_vhosts", "name"]));
    assert!(of_one.lines().any(|name| name == "of-one"), "{of_one}");
    assert!(!of_two.contains("of-one"), "{of_two}");
}
