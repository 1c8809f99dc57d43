//! The payment endpoint, as SDKs call it.

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

    let one = |source| format!("amount=1&currency=eur&source={source}");
    for (key, body, status, kind) in [
        ("k1", one("tok_visa"), 400, "idempotency_error"),
        ("k2", one("tok_chargeDeclined"), 402, "card_error"),
        (
            "k3",
            one("tok_visa").replace('1', "0"),
            400,
            "invalid_request_error",
        ),
        ("k5", "amount=1".to_owned(), 400, "invalid_request_error"),
        ("k4", one("tok_down"), 503, "api_error"),
        ("", "amount=1".to_owned(), 400, "idempotency_error"),
    ] {
        let refused = charge(key, &body).send(&shop.address);
        assert_eq!(refused.status, status, "{refused:?}");
        assert_eq!(refused.document()["error"]["type"], kind);
        assert_eq!(refused.header("content-type"), Some("application/json"));
    }
    let request = charge("k4", "amount=1&currency=eur&source=tok_down");
    assert_eq!(request.send(&shop.address).status, 200);
    assert_eq!(shop.sold(), (0, 2));
}

#[test]
fn a_charge_without_a_caller_or_of_too_many_bytes_is_refused() {
    let shop = Server::start(&["--store", "memory", "--slow", "0"]);
    let long = "x".repeat(70_000);
    let bare = Request::new("POST", "/v1/charges").header("Idempotency-Key", "nobody");
    for (request, status) in [(charge("long", &long), 413), (bare, 403)] {
        assert_eq!(request.send(&shop.address).status, status);
    }
}
