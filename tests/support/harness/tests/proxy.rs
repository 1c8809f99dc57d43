//! The proxy in front of a real `redis-server`.

use std::time::{Duration, Instant};

use idem_harness::{RedisServer, RespConn, TcpProxy};

fn pair() -> (RedisServer, TcpProxy) {
    let server = RedisServer::start();
    let proxy = TcpProxy::start(server.addr());
    (server, proxy)
}

fn client(proxy: &TcpProxy) -> RespConn {
    RespConn::open(proxy.addr()).expect("the proxy accepts")
}

/// Error of a request without an answer, with a shorter timeout than for an answer.
fn unanswered(client: &mut RespConn, request: &[&str]) -> std::io::Error {
    let patience = |client: &mut RespConn, long| {
        client.patience(long).expect("a socket has a time-out");
    };
    patience(client, Duration::from_millis(30));
    let error = client.command(request).expect_err("nobody answers");
    patience(client, Duration::from_secs(20));
    error
}

#[test]
fn requests_and_replies_of_any_size_pass() {
    let (server, proxy) = pair();
    let value = "v".repeat(3_000_000);
    let mut client = client(&proxy);
    assert_eq!(
        client.command(&["SET", "key", &value]).unwrap().to_string(),
        "OK"
    );
    assert_eq!(client.command(&["GET", "key"]).unwrap().to_string(), value);
    assert_eq!(server.cli(&["STRLEN", "key"]), "3000000");
    assert_eq!(proxy.url(), format!("redis://{}", proxy.addr()));
}

#[test]
fn a_cut_ends_live_connections_and_lets_new_ones_in() {
    let (_server, proxy) = pair();
    let mut clients = [client(&proxy), client(&proxy), client(&proxy)];
    for client in &mut clients {
        client.command(&["PING"]).unwrap();
    }
    assert_eq!(proxy.cut(), 3);
    assert_eq!(proxy.stats().live, 0);
    assert!(
        clients
            .iter_mut()
            .all(|client| client.command(&["PING"]).is_err())
    );
    client(&proxy).command(&["PING"]).unwrap();
    assert_eq!(proxy.stats().connections, 4);
}

#[test]
fn a_request_whose_reply_is_dropped_has_been_done() {
    let (server, proxy) = pair();
    let mut client = client(&proxy);
    client.command(&["INCR", "number"]).unwrap();
    proxy.drop_next_reply();
    assert!(client.command(&["INCR", "number"]).is_err());
    assert_eq!(server.cli(&["GET", "number"]), "2");
    assert_eq!(proxy.stats().dropped_replies, 1);
}

#[test]
fn a_dropped_reply_can_be_that_of_a_certain_command() {
    let (server, proxy) = pair();
    let (mut one, mut two) = (client(&proxy), client(&proxy));
    proxy.drop_next_reply_to("INCR");
    assert_eq!(one.command(&["ECHO", "1"]).unwrap().to_string(), "1");
    assert!(two.command(&["INCR", "number"]).is_err());
    assert_eq!(one.command(&["INCR", "number"]).unwrap().as_int(), Some(2));
    assert_eq!(server.cli(&["GET", "number"]), "2");
}

#[test]
fn a_pipelined_request_behind_a_dropped_reply_is_done_as_well() {
    let (server, proxy) = pair();
    let mut client = client(&proxy);
    client.command(&["PING"]).unwrap();
    server.pause();
    proxy.drop_next_reply();
    for _ in 0..1_000 {
        client.send(&["INCR", "number"]).unwrap();
    }
    let one = "*2\r\n$4\r\nINCR\r\n$6\r\nnumber\r\n".len();
    proxy.wait_until(|seen| seen.passed_bytes >= 1_000 * one);
    server.resume();
    assert!(client.read().is_err());
    let deadline = Instant::now() + Duration::from_secs(20);
    while server.cli(&["GET", "number"]) != "1000" {
        assert!(Instant::now() < deadline, "requests were lost");
    }
}

#[test]
fn a_black_hole_swallows_on_live_and_on_new_connections() {
    let (server, proxy) = pair();
    let mut old = client(&proxy);
    old.command(&["PING"]).unwrap();
    proxy.black_hole(true);
    unanswered(&mut old, &["INCR", "number"]);
    unanswered(&mut client(&proxy), &["INCR", "number"]);
    let seen = proxy.wait_until(|seen| seen.swallowed_bytes >= 2 * 26);
    assert_eq!(seen.connections, 2);
    assert_eq!(server.cli(&["EXISTS", "number"]), "0");
}

#[test]
fn a_closed_black_hole_cuts_what_lost_bytes_and_spares_the_rest() {
    let (_server, proxy) = pair();
    let (mut silent, mut torn) = (client(&proxy), client(&proxy));
    silent.command(&["PING"]).unwrap();
    torn.command(&["PING"]).unwrap();
    proxy.black_hole(true);
    unanswered(&mut torn, &["PING"]);
    proxy.wait_until(|seen| seen.swallowed_bytes > 0);
    proxy.black_hole(false);
    assert!(torn.command(&["PING"]).is_err());
    silent.command(&["PING"]).unwrap();
    client(&proxy).command(&["PING"]).unwrap();
}

#[test]
fn a_black_hole_accepts_while_the_server_is_down() {
    let (server, proxy) = pair();
    server.kill();
    proxy.black_hole(true);
    let error = unanswered(&mut client(&proxy), &["PING"]);
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
}

#[test]
fn a_delay_holds_replies_back() {
    let (_server, proxy) = pair();
    let mut client = client(&proxy);
    let delay = Duration::from_millis(40);
    proxy.delay(delay);
    let start = Instant::now();
    client.command(&["PING"]).unwrap();
    assert!(start.elapsed() >= delay);
    proxy.delay(Duration::ZERO);
    client.command(&["PING"]).unwrap();
}

#[test]
fn a_server_that_comes_back_is_reached_through_the_same_proxy() {
    let (server, proxy) = pair();
    let mut before = client(&proxy);
    before.command(&["PING"]).unwrap();
    server.kill();
    assert!(before.command(&["PING"]).is_err());
    assert!(client(&proxy).command(&["PING"]).is_err());
    server.restart();
    client(&proxy).command(&["PING"]).unwrap();
}

#[test]
fn a_dropped_proxy_cuts_its_connections_and_frees_its_port() {
    let (server, proxy) = pair();
    let addr = proxy.addr();
    let mut client = client(&proxy);
    server.cli(&["SET", "here", "yes"]);
    client.command(&["PING"]).unwrap();
    drop(proxy);
    assert!(client.command(&["PING"]).is_err());
    // Another test's server may have the port by now; this one is behind it no longer.
    if let Ok(mut other) = RespConn::open(addr)
        && let Ok(reply) = other.command(&["GET", "here"])
    {
        assert_ne!(reply.to_string(), "yes");
    }
}
