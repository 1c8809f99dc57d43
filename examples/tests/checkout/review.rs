//! Cases of a code review: expired keys, and visitors who disconnect at once.

use std::io::Read as _;
use std::net::Shutdown;

use idem_harness::{RedisServer, TestDir};

use super::api::order;
use super::http::Request;
use super::server::Server;

fn charge(amount: u32) -> Request {
    let form = format!("amount={amount}&currency=eur&source=tok_visa");
    Request::new("POST", "/v1/charges")
        .header("Authorization", "Bearer ada")
        .header("Idempotency-Key", "k")
        .form(&form)
}

/// idem has no record of the key: it has expired, or the store has lost it. The books and the provider have the charge.
#[test]
fn what_is_paid_for_is_what_was_charged_also_under_a_key_of_long_ago() {
    let (redis, dir) = (RedisServer::start(), TestDir::new("checkout").unwrap());
    let (url, file) = (redis.url(), dir.path().join("shop.db"));
    let shop = Server::start(&["--redis", &url, "--file", file.to_str().unwrap()]);
    let two = order("ada", "\"k\"", r#"{"quantity": 2}"#)
        .send(&shop.address)
        .document();
    let cheap = charge(1).send(&shop.address).document();
    redis.cli(&["FLUSHALL"]);

    let ten = order("ada", "\"k\"", r#"{"quantity": 10}"#)
        .send(&shop.address)
        .document();
    assert_eq!(
        (&ten["amount"], &ten["state"]),
        (&12_500.into(), &"paid".into())
    );
    assert_ne!(
        (&ten["id"], &ten["charge"]),
        (&two["id"], &two["charge"]),
        "{ten}"
    );
    let dear = charge(99_999).send(&shop.address).document();
    assert_ne!(dear["id"], cheap["id"], "{dear}");
    redis.cli(&["FLUSHALL"]);

    // The same request finds its charge, and is not paid twice.
    let again = order("ada", "\"k\"", r#"{"quantity": 2}"#)
        .send(&shop.address)
        .document();
    assert_eq!(again, two);
    assert_eq!(shop.sold(), (2, 4));
}

/// Books in memory end with their last connection, and a cancelled query may cost the pool its connection.
#[test]
fn visitors_who_leave_at_once_do_not_take_the_books_with_them() {
    let shop = Server::start(&["--store", "memory", "--slow", "0"]);
    let made = order("ada", "\"k\"", r#"{"quantity": 2}"#).send(&shop.address);
    for _ in 0..500 {
        let mut visitor = Request::new("GET", "/").begin(&shop.address);
        visitor.shutdown(Shutdown::Write).unwrap();
        // Whether there is still a page for them does not matter.
        let _ = visitor.read_to_end(&mut Vec::new());
    }
    let find = Request::new("GET", made.header("location").unwrap());
    let found = find
        .header("Authorization", "Bearer ada")
        .send(&shop.address);
    assert_eq!(found.document(), made.document());
    assert_eq!(shop.sold(), (1, 1));
}

/// A form on another site comes without the cookie, and must not replace it.
#[test]
fn a_form_of_another_site_leaves_the_session_alone() {
    let shop = Server::start(&["--store", "memory"]);
    let form = Request::new("POST", "/orders").form("token=x&quantity=1&card=tok_visa");
    let own = form
        .clone()
        .header("Sec-Fetch-Site", "same-origin")
        .send(&shop.address);
    assert!(own.header("set-cookie").is_some());
    let foreign = form
        .header("Sec-Fetch-Site", "cross-site")
        .send(&shop.address);
    assert_eq!((foreign.status, foreign.header("set-cookie")), (403, None));
    assert_eq!(shop.sold(), (0, 0));
}
