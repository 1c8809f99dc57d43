//! Section 2.7: the errors that a client receives.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::post;
use idem_runtime::OnRunning;
use idem_runtime::http::{IdempotencyLayer, KeyRules};
use serde_json::Value;
use tokio::sync::Notify;

use crate::client::{Answer, Fixture, order, patiently, send, spawn, with_key};

const DOCS: &str = "https://developer.example.com/idempotency";

fn documented(fixture: &Fixture) -> IdempotencyLayer {
    let strict = KeyRules::default().bare(false);
    fixture.layer().keys(strict).documented_at(DOCS)
}

/// A problem document of this status (RFC 9457, section 3.1) with a link to the documentation, in the body and as
/// the header `Link`.
fn is_problem(answer: &Answer, status: u16, title: &str) {
    assert_eq!(answer.status, status);
    assert_eq!(answer.headers["content-type"], "application/problem+json");
    let link = format!("<{DOCS}>; rel=\"describedby\"; type=\"text/html\"");
    assert_eq!(answer.headers["link"], link);
    let document: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(document["status"], status);
    assert_eq!(document["title"], title);
    let of_type = document["type"].as_str().unwrap();
    assert!(of_type.starts_with(DOCS), "{of_type}");
    let detail = document["detail"].as_str().unwrap();
    assert!(detail.len() > 20, "{detail}");
    let instance = document["instance"].as_str().unwrap();
    assert!(instance.starts_with("urn:uuid:"), "{instance}");
    assert!(!answer.headers.contains_key("idempotent-replayed"));
}

/// "If the Idempotency-Key request header is missing for a documented idempotent operation requiring this header,
/// the resource server SHOULD reply with an HTTP 400 status code".
#[tokio::test]
async fn section_2_7_a_missing_key_is_400() {
    let fixture = Fixture::new();
    let shop = fixture.orders(documented(&fixture), |run| run.to_string());
    let without_key = Request::post("/orders").body(Body::from("tea")).unwrap();
    let answer = send(&shop, without_key).await;
    is_problem(&answer, 400, "Idempotency-Key is missing");
    assert_eq!(fixture.runs(), 0);
}

#[tokio::test]
async fn section_2_7_a_key_that_is_not_valid_is_400() {
    let fixture = Fixture::new();
    let shop = fixture.orders(documented(&fixture), |run| run.to_string());
    let answer = send(&shop, with_key("bare-s3cret", "tea")).await;
    is_problem(&answer, 400, "Idempotency-Key is not valid");
    assert!(!answer.body.windows(6).any(|six| six == b"s3cret"));
    assert_eq!(fixture.runs(), 0);
}

/// "If there is an attempt to reuse an idempotency key with a different request payload, the resource server SHOULD
/// reply with an HTTP 422 status code".
#[tokio::test]
async fn section_2_7_a_reused_key_is_422() {
    let fixture = Fixture::new();
    let shop = fixture.orders(documented(&fixture), |run| run.to_string());
    send(&shop, order("tea")).await;
    let answer = send(&shop, order("coffee")).await;
    is_problem(&answer, 422, "Idempotency-Key is already used");
    assert!(!answer.body.windows(3).any(|three| three == b"tea"));
    assert_eq!(fixture.runs(), 1);
}

/// "If the request is retried, while the original request is still being processed, the resource server SHOULD reply
/// with an HTTP 409 status code".
#[tokio::test]
async fn section_2_7_a_running_request_is_409() {
    let fixture = Fixture::new();
    let (started, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (started.clone(), go_on.clone());
    let handler = post(move || async move {
        tell.notify_one();
        wait.notified().await;
    });
    let shop = Router::new().route("/orders", handler);
    // By default a repeat waits first, for which the draft has no word.
    let shop = shop.layer(documented(&fixture).on_running(OnRunning::Reject));
    let first = spawn(&shop, order("tea"));
    patiently("the handler runs", started.notified()).await;
    let answer = send(&shop, order("tea")).await;
    is_problem(
        &answer,
        409,
        "A request is outstanding for this Idempotency-Key",
    );
    let seconds: u64 = answer.headers["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(seconds >= 1);
    go_on.notify_one();
    assert_eq!(
        patiently("the first answer", first).await.unwrap().status,
        200
    );
}

/// "Clients MUST correct the requests (with the exception of 409 where no correction is required) before performing
/// a retry operation, or the resource server MUST fail the request and return one of the above errors."
#[tokio::test]
async fn section_2_7_an_uncorrected_request_fails_again_and_a_corrected_one_does_not() {
    let fixture = Fixture::new();
    let shop = fixture.orders(documented(&fixture), |run| run.to_string());
    let bare = || with_key("bare", "tea");
    send(&shop, order("tea")).await;
    for _ in 0..3 {
        assert_eq!(send(&shop, bare()).await.status, 400);
        assert_eq!(send(&shop, order("coffee")).await.status, 422);
    }
    assert_eq!(fixture.runs(), 1);
    let corrected = send(&shop, with_key("\"bare\"", "coffee")).await;
    assert_eq!(corrected.body, "2");
}

/// "For other 4xx/5xx errors, … the client SHOULD act appropriately by following the resource server's
/// documentation": they pass as they are.
#[tokio::test]
async fn section_2_7_other_errors_are_those_of_the_service() {
    let fixture = Fixture::new();
    let shop = fixture.orders(documented(&fixture), |_| {
        (
            http::StatusCode::TOO_MANY_REQUESTS,
            [("retry-after", "7")],
            "slowly",
        )
    });
    for _ in 0..2 {
        let answer = send(&shop, order("tea")).await;
        assert_eq!(answer.said(), (429, "slowly"));
        assert_eq!(answer.headers["retry-after"], "7");
        assert!(!answer.headers.contains_key("link"));
    }
    assert_eq!(fixture.runs(), 2);
}
