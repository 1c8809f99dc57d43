//! The payment SDK against a server that fails.

use std::sync::atomic::{AtomicUsize, Ordering};

use idem_harness::{PaymentSdk, TcpProxy};
use idem_tests_browser::HttpServer;
use idem_tests_browser::axum::http::StatusCode;
use idem_tests_browser::axum::response::{IntoResponse as _, Response};
use serde_json::json;

const PATH: &str = "/v1/payment_intents";

const PAID: &str = r#"{"id": "pi_1", "object": "payment_intent", "amount": 1200}"#;

fn json_of(status: u16, body: &'static str) -> Response {
    let status = StatusCode::from_u16(status).expect("a status");
    (status, [("content-type", "application/json")], body).into_response()
}

/// The receipt with one more header.
fn json_with(name: &'static str, value: &'static str) -> Response {
    ([(name, value)], json_of(200, PAID)).into_response()
}

#[test]
fn the_sdk_repeats_a_request_whose_reply_was_lost_with_the_same_key() {
    let server = HttpServer::start(|_| json_with("idempotent-replayed", "no"));
    let proxy = TcpProxy::start(server.addr());
    let mut sdk = PaymentSdk::builder(format!("http://{}", proxy.addr())).start();

    proxy.drop_next_reply_to(PATH);
    let outcome = sdk.pay(&json!({ "amount": 1200, "currency": "eur" }));

    assert_eq!(outcome["http_status"], 200, "{outcome}");
    assert_eq!(outcome["body"]["id"], "pi_1");
    assert_eq!(outcome["headers"]["idempotent-replayed"], "no");
    assert_eq!(proxy.stats().dropped_replies, 1);
    let requests = server.requests();
    let [first, second] = &*requests else {
        panic!("not two requests: {requests:?}");
    };
    assert_eq!((&*first.method, &*first.path), ("POST", PATH));
    assert_eq!(first.body, "amount=1200&currency=eur");
    let key = first
        .header("idempotency-key")
        .expect("the SDK makes a key");
    assert!(!key.is_empty());
    assert_eq!(second.header("idempotency-key"), Some(key));
    assert_eq!((&second.path, &second.body), (&first.path, &first.body));
}

#[test]
fn each_payment_has_a_key_of_its_own_unless_it_is_given_one() {
    // With this header the SDK would measure how long it took, and report it with the next request.
    let server = HttpServer::start(|_| json_with("request-id", "req_1"));
    let mut sdk = PaymentSdk::builder(server.url("")).start();
    let payment = json!({ "amount": 1200, "currency": "eur" });
    for _ in 0..2 {
        sdk.pay(&payment);
    }
    let mut payment = payment;
    payment["idempotency_key"] = json!("order-7");
    sdk.pay(&payment);

    let requests = server.requests();
    let keys: Vec<_> = requests
        .iter()
        .map(|request| request.header("idempotency-key").unwrap_or_default())
        .collect();
    assert_eq!(keys.len(), 3);
    assert_ne!(keys[0], keys[1]);
    assert_eq!(keys[2], "order-7");
    let telemetry = requests
        .iter()
        .find_map(|request| request.header("x-stripe-client-telemetry"));
    assert_eq!(telemetry, None);
}

#[test]
fn a_conflict_is_retried_and_a_declined_answer_is_not() {
    let count = AtomicUsize::new(0);
    let server = HttpServer::start(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        0 => json_of(409, r#"{"error": {"message": "still at it"}}"#),
        _ => json_of(402, r#"{"error": {"type": "card_error", "message": "no"}}"#),
    });
    let mut sdk = PaymentSdk::builder(server.url("")).start();
    let outcome = sdk.pay(&json!({ "amount": 1, "currency": "eur" }));
    assert_eq!(outcome["http_status"], 402, "{outcome}");
    assert_eq!(outcome["error"], "CardError");
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn the_sdk_gives_up_after_its_number_of_retries() {
    let server = HttpServer::start(|_| json_of(200, "{}"));
    let proxy = TcpProxy::start(server.addr());
    let mut sdk = PaymentSdk::builder(format!("http://{}", proxy.addr()))
        .retries(1)
        .start();
    for _ in 0..2 {
        // The SDK sends head and body one after the other: both might count for a request.
        proxy.drop_next_reply_to(PATH);
    }
    let outcome = sdk.pay(&json!({ "amount": 1, "currency": "eur" }));
    assert_eq!(outcome["error"], "APIConnectionError", "{outcome}");
    assert_eq!(outcome["http_status"], json!(null));
    assert_eq!(server.requests().len(), 2);
}
