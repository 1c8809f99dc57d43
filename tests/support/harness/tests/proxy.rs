//! `TcpProxy` passes, delays, drops and swallows traffic of a real `redis-server`.

use std::time::{Duration, Instant};

use idem_harness::{HANG_LIMIT, RedisServer, RespConn, TcpProxy, eventually};

/// `INCR number` as sent to the server.
const INCR: &str = "*2\r\n$4\r\nINCR\r\n$6\r\nnumber\r\n";

fn pair() -> (RedisServer, TcpProxy) {
    let server = RedisServer::start();
    let proxy = TcpProxy::start(server.addr());
    (server, proxy)
}

fn client(proxy: &TcpProxy) -> RespConn {
    RespConn::open(proxy.addr()).expect("the proxy accepts")
}

/// Sends a request that gets no reply, with a short read timeout; returns the error.
fn unanswered(client: &mut RespConn, request: &[&str]) -> std::io::Error {
    let set_timeout = |client: &mut RespConn, timeout| {
        client
            .set_read_timeout(timeout)
            .expect("a socket has a timeout");
    };
    set_timeout(client, Duration::from_millis(30));
    let error = client.command(request).expect_err("no reply arrives");
    set_timeout(client, HANG_LIMIT);
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
fn a_cut_closes_open_connections_and_new_ones_are_accepted() {
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
fn a_request_with_a_dropped_reply_is_executed() {
    let (server, proxy) = pair();
    let mut client = client(&proxy);
    client.command(&["INCR", "number"]).unwrap();
    proxy.drop_next_reply();
    assert!(client.command(&["INCR", "number"]).is_err());
    assert_eq!(server.cli(&["GET", "number"]), "2");
    assert_eq!(proxy.stats().dropped_replies, 1);
}

#[test]
fn the_reply_to_a_named_command_is_dropped() {
    let (server, proxy) = pair();
    let (mut one, mut two) = (client(&proxy), client(&proxy));
    proxy.drop_next_reply_to("INCR");
    assert_eq!(one.command(&["ECHO", "1"]).unwrap().to_string(), "1");
    assert!(two.command(&["INCR", "number"]).is_err());
    assert_eq!(one.command(&["INCR", "number"]).unwrap().as_int(), Some(2));
    assert_eq!(server.cli(&["GET", "number"]), "2");
}

#[test]
fn pipelined_requests_after_a_dropped_reply_are_executed() {
    let (server, proxy) = pair();
    let mut client = client(&proxy);
    client.command(&["PING"]).unwrap();
    server.pause();
    proxy.drop_next_reply();
    for _ in 0..1_000 {
        client.send(&["INCR", "number"]).unwrap();
    }
    proxy.wait_until(|stats| stats.passed_bytes >= 1_000 * INCR.len());
    server.resume();
    assert!(client.read().is_err());
    eventually("every request arrives", || {
        server.cli(&["GET", "number"]) == "1000"
    });
}

#[test]
fn a_black_hole_swallows_bytes_of_open_and_new_connections() {
    let (server, proxy) = pair();
    let mut old = client(&proxy);
    old.command(&["PING"]).unwrap();
    proxy.black_hole(true);
    unanswered(&mut old, &["INCR", "number"]);
    unanswered(&mut client(&proxy), &["INCR", "number"]);
    let stats = proxy.wait_until(|stats| stats.swallowed_bytes >= 2 * INCR.len());
    assert_eq!(stats.connections, 2);
    assert_eq!(server.cli(&["EXISTS", "number"]), "0");
}

#[test]
fn the_end_of_a_black_hole_closes_connections_that_lost_bytes() {
    let (_server, proxy) = pair();
    let (mut idle, mut swallowed) = (client(&proxy), client(&proxy));
    idle.command(&["PING"]).unwrap();
    swallowed.command(&["PING"]).unwrap();
    proxy.black_hole(true);
    unanswered(&mut swallowed, &["PING"]);
    proxy.wait_until(|stats| stats.swallowed_bytes > 0);
    proxy.black_hole(false);
    assert!(swallowed.command(&["PING"]).is_err());
    idle.command(&["PING"]).unwrap();
    client(&proxy).command(&["PING"]).unwrap();
}

#[test]
fn a_black_hole_accepts_connections_while_the_server_is_down() {
    let (server, proxy) = pair();
    server.kill();
    proxy.black_hole(true);
    let error = unanswered(&mut client(&proxy), &["PING"]);
    // The kind of a read timeout; a closed connection would be another one.
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
}

#[test]
fn a_delay_postpones_replies() {
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
