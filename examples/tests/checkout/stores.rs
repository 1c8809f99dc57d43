//! One scenario, before and after restarts, and records that are gone.

use std::thread;

use idem_harness::TestDir;
use sqlx::{Connection as _, SqliteConnection};

use super::api::{assert_same, order};
use super::browser::{Visitor, order_of};
use super::http::Request;
use super::server::Server;

#[test]
fn books_and_records_outlive_the_process() {
    let dir = TestDir::new("checkout").unwrap();
    let file = dir.path().join("shop.db");
    let place = ["--file", file.to_str().unwrap()];
    let args = [&place[..], &["--slow", "20"]].concat();
    let shop = Server::start(&args);
    let (visitor, form) = Visitor::arrives(&shop);
    let declined = form.with_card("tok_chargeDeclined");
    assert_eq!(visitor.submit(&declined).status, 402);
    let form = visitor.form().with_card("tok_down");
    assert_eq!(visitor.submit(&form).status, 503);
    let [bought, again] = thread::scope(|scope| {
        let clicks = [(); 2].map(|()| scope.spawn(|| visitor.submit(&form)));
        clicks.map(|click| click.join().unwrap())
    });
    assert_eq!(order_of(&again), order_of(&bought), "a double click");
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

    let shop = Server::start(&[&place[..], &["--fresh"]].concat());
    assert_eq!(shop.sold(), (0, 0));
    assert!(!request.send(&shop.address).is_replay());
}

/// idem has no record of the key: it has expired, or the store has lost it. The books and the provider have the charge.
#[tokio::test]
async fn what_is_paid_for_is_what_was_charged_also_under_a_key_of_long_ago() {
    let dir = TestDir::new("checkout").unwrap();
    let file = dir.path().join("shop.db");
    let shop = Server::start(&["--file", file.to_str().unwrap()]);
    let mut records = SqliteConnection::connect(&format!("sqlite:{}", file.display()))
        .await
        .unwrap();
    let mut forget = async || {
        let forget = sqlx::query("DELETE FROM idem_records");
        let forgotten = forget.execute(&mut records).await.unwrap();
        assert_eq!(forgotten.rows_affected(), 1);
    };
    let made = |request: Request| request.send(&shop.address).document();
    let two = made(order("ada", "\"k\"", r#"{"quantity": 2}"#));
    forget().await;

    let ten = made(order("ada", "\"k\"", r#"{"quantity": 10}"#));
    assert_eq!(
        (&ten["amount"], &ten["state"]),
        (&12_500.into(), &"paid".into())
    );
    assert_ne!(
        (&ten["id"], &ten["charge"]),
        (&two["id"], &two["charge"]),
        "{ten}"
    );
    forget().await;

    // The same request finds its charge, and is not paid twice.
    let again = made(order("ada", "\"k\"", r#"{"quantity": 2}"#));
    assert_eq!(again, two);
    assert_eq!(shop.sold(), (2, 2));
}
