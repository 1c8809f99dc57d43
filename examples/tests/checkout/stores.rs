//! The same scenario on every store, and again after a restart.

use idem_harness::{PostgresServer, RedisServer, TestDir};

use super::api::{assert_same, order};
use super::browser::{Visitor, order_of};
use super::server::Server;

#[test]
fn in_a_file() {
    let dir = TestDir::new("checkout").unwrap();
    let file = dir.path().join("shop.db");
    story(&["--file", file.to_str().unwrap()]);
}

#[test]
fn in_redis() {
    let (redis, dir) = (RedisServer::start(), TestDir::new("checkout").unwrap());
    let (url, file) = (redis.url(), dir.path().join("shop.db"));
    story(&["--redis", &url, "--file", file.to_str().unwrap()]);
}

#[test]
fn in_postgres() {
    let postgres = PostgresServer::start();
    story(&["--postgres", &postgres.url()]);
}

fn story(place: &[&str]) {
    let args = [place, &["--slow", "20"]].concat();
    let shop = Server::start(&args);
    let (visitor, form) = Visitor::arrives(&shop);
    let declined = form.with_card("tok_chargeDeclined");
    assert_eq!(visitor.submit(&declined).status, 402);
    let form = visitor.form().with_card("tok_down");
    assert_eq!(visitor.submit(&form).status, 503);
    let bought = visitor.submit(&form);
    let open = visitor.form();
    let request = order("ada", "\"k\"", r#"{"quantity": 2}"#);
    let made = request.send(&shop.address);
    assert_eq!(made.status, 201);
    assert_eq!(shop.sold(), (2, 2));
    shop.terminate();
    assert_eq!(shop.wait().code(), Some(0));

    let shop = Server::start(&args);
    let visitor = visitor.follows(&shop);
    assert_eq!(order_of(&visitor.submit(&form)), order_of(&bought));
    assert_eq!(visitor.submit(&declined).status, 402);
    let again = request.send(&shop.address);
    assert!(again.is_replay());
    assert_same(&again, &made);
    assert_eq!(shop.count("started"), 0, "all of it was done before");
    assert_eq!(visitor.form(), open, "a form outlives a restart");
    assert_eq!(visitor.submit(&open).status, 303);
    assert_eq!(shop.sold(), (3, 3));
    shop.terminate();
    assert_eq!(shop.wait().code(), Some(0));

    let shop = Server::start(&[place, &["--fresh"]].concat());
    assert_eq!(shop.sold(), (0, 0));
    assert!(!request.send(&shop.address).is_replay());
}
