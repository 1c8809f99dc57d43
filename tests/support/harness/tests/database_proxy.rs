//! The proxy in front of real databases: every test with both.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod database;

use std::time::Duration;

use database::{Client, Server, on_both, until};
use idem_harness::{HANG_LIMIT, TcpProxy};

on_both! {
    queries_pass
    a_cut_ends_live_connections_and_lets_new_ones_in
    a_server_that_is_gone_is_refused_by_its_proxy_too
    a_commit_whose_reply_is_dropped_has_been_done
    a_black_hole_stalls_queries
    a_delay_holds_answers_up
}

fn pair<S: Server>() -> (S, TcpProxy, String) {
    let server = S::builder().start();
    let proxy = TcpProxy::start(server.addr());
    let url = server.url_at(proxy.addr());
    (server, proxy, url)
}

fn queries_pass<S: Server>() {
    let (_server, proxy, url) = pair::<S>();
    let long = Client::<S>::new(&url).ask("SELECT repeat('v', 300000)");
    assert_eq!(long.len(), 300_000);
    assert_eq!(proxy.stats().connections, 1);
}

fn a_cut_ends_live_connections_and_lets_new_ones_in<S: Server>() {
    let (_server, proxy, url) = pair::<S>();
    let client = Client::<S>::new(&url);
    assert_eq!(proxy.cut(), 1);
    assert!(client.try_ask("SELECT 'one'").is_err());
    assert_eq!(Client::<S>::new(&url).ask("SELECT 'two'"), "two");
}

fn a_server_that_is_gone_is_refused_by_its_proxy_too<S: Server>() {
    let (server, _proxy, url) = pair::<S>();
    server.kill();
    assert!(Client::<S>::try_new(&url, HANG_LIMIT).is_err());
    server.restart();
    assert_eq!(Client::<S>::new(&url).ask("SELECT 'back'"), "back");
}

fn a_commit_whose_reply_is_dropped_has_been_done<S: Server>() {
    let (server, proxy, url) = pair::<S>();
    server.execute("CREATE TABLE t (n INT)");
    let client = Client::<S>::new(&url);
    client.try_run("BEGIN").unwrap();
    client.try_run("INSERT INTO t VALUES (7)").unwrap();
    assert_eq!(server.execute("SELECT n FROM t"), "");
    proxy.drop_next_reply_to("COMMIT");
    assert!(client.try_run("COMMIT").is_err());
    assert_eq!(proxy.stats().dropped_replies, 1);
    assert_eq!(server.execute("SELECT n FROM t"), "7");
}

fn a_black_hole_stalls_queries<S: Server>() {
    let (server, proxy, url) = pair::<S>();
    let client = Client::<S>::new(&url);
    server.execute("CREATE TABLE t (n INT)");
    proxy.black_hole(true);
    assert!(Client::<S>::try_new(&url, Duration::from_millis(50)).is_err());
    let lost = client.try_ask_within("INSERT INTO t VALUES (7)", Duration::from_millis(50));
    assert!(lost.is_err());
    proxy.black_hole(false);
    until("the torn connection is cut", || proxy.stats().live == 0);
    assert_eq!(server.execute("SELECT count(*) FROM t"), "0");
    assert_eq!(Client::<S>::new(&url).ask("SELECT 'back'"), "back");
}

fn a_delay_holds_answers_up<S: Server>() {
    let (_server, proxy, url) = pair::<S>();
    let client = Client::<S>::new(&url);
    client.ask("SELECT 'late'");
    proxy.delay(Duration::from_secs(3));
    client.ask_late("SELECT 'late'", Duration::from_millis(50), || {
        proxy.delay(Duration::ZERO);
    });
}
