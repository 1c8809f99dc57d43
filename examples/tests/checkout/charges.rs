//! The payment endpoint, as SDKs call it.

use std::thread;

use super::api::assert_same;
use super::http::Request;
use super::server::Server;

pub(crate) fn charge(key: &str, body: &str) -> Request {
    Request::new("POST", "/v1/charges")
        .header("Authorization", "Bearer sk_test_ada")
        .header("Idempotency-Key", key)
        .form(body)
}

#[test]
fn a_charge_is_made_once_and_its_refusals_speak_to_the_sdk() {
    let shop = Server::start(&["--store", "memory", "--slow", "0"]);
    let request = charge("k1", "amount=1250&currency=eur&source=tok_visa&expand[0]=x");
    let first = request.send(&shop.address);
    let document = first.document();
    assert_eq!(first.status, 200);
    assert!(document["id"].as_str().unwrap().starts_with("ch_"));
    assert_eq!(
        (&document["object"], &document["amount"]),
        (&"charge".into(), &1250.into())
    );
    let again = request.send(&shop.address);
    assert!(again.is_replay());
    assert_same(&again, &first);

    for (key, body, status, kind) in [
        (
            "k1",
            "amount=1&currency=eur&source=tok_visa",
            400,
            "idempotency_error",
        ),
        (
            "k2",
            "amount=1&currency=eur&source=tok_chargeDeclined",
            402,
            "card_error",
        ),
        (
            "k3",
            "amount=0&currency=eur&source=tok_visa",
            400,
            "invalid_request_error",
        ),
        ("k5", "amount=1", 400, "invalid_request_error"),
        (
            "k4",
            "amount=1&currency=eur&source=tok_down",
            503,
            "api_error",
        ),
        ("", "amount=1", 400, "idempotency_error"),
    ] {
        let refused = charge(key, body).send(&shop.address);
        assert_eq!(refused.status, status, "{refused:?}");
        assert_eq!(refused.document()["error"]["type"], kind);
        assert_eq!(refused.header("content-type"), Some("application/json"));
    }
    let request = charge("k4", "amount=1&currency=eur&source=tok_down");
    assert_eq!(request.send(&shop.address).status, 200);
    assert_eq!(shop.sold(), (0, 2));
}

#[test]
fn a_charge_that_is_still_worked_on_is_refused_with_retry_after() {
    let shop = Server::start(&["--store", "memory", "--slow", "2000"]);
    let request = charge("k", "amount=1&currency=eur&source=tok_visa");
    thread::scope(|scope| {
        let first = scope.spawn(|| request.send(&shop.address));
        shop.wait_for("started", 1);
        let second = request.send(&shop.address);
        assert_eq!(second.status, 409, "{second:?}");
        assert!(second.header("retry-after").is_some(), "{second:?}");
        assert_eq!(first.join().unwrap().status, 200);
    });
    let long = "x".repeat(70_000);
    let bare = Request::new("POST", "/v1/charges").header("Idempotency-Key", "nobody");
    for (request, status) in [(charge("long", &long), 413), (bare, 403)] {
        assert_eq!(request.send(&shop.address).status, status);
    }
    assert_eq!(shop.sold(), (0, 1));
}
