//! Section 2.6: the first request, a retry, a concurrent request.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::routing::post;
use http::StatusCode;
use idem_runtime::OnRunning;
use idem_runtime::http::StatusPolicy;
use tokio::sync::Notify;

use crate::client::{Fixture, order, patiently, routed, send, spawn};

/// "First time request: the resource server SHOULD process the request normally and respond with an appropriate
/// response and status code."
#[tokio::test]
async fn section_2_6_a_first_request_is_processed_normally() {
    let fixture = Fixture::new();
    let created = |run: usize| {
        let headers = [("location", "/orders/7"), ("set-cookie", "a=b")];
        (StatusCode::CREATED, headers, run.to_string())
    };
    let bare = fixture.orders(fixture.layer().optional(), created);
    let without_key = Request::post("/orders").body(Body::from("tea")).unwrap();
    let mut expected = send(&bare, without_key).await;
    let protected = fixture.orders(fixture.layer(), created);
    let first = send(&protected, order("tea")).await;
    assert_eq!(expected.body, "1");
    expected.body = "2".into();
    // As if there were no layer: nothing says that it could have been a replay.
    assert_eq!(first, expected);
}

/// "Retry: the request was retried after the original request completed. The resource server SHOULD respond with
/// the result of the previously completed operation, success or an error."
#[tokio::test]
async fn section_2_6_a_retry_gets_the_result_of_a_success() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer(), |run| {
        (
            StatusCode::CREATED,
            [("location", "/orders/7")],
            run.to_string(),
        )
    });
    let first = send(&shop, order("tea")).await;
    let mut retry = send(&shop, order("tea")).await;
    assert!(retry.is_replayed());
    retry.headers.remove("idempotent-replayed");
    assert_eq!(retry, first);
    assert_eq!(fixture.runs(), 1);
}

/// The same of errors, by the preset that takes the draft at its word; what the default does instead is a part of
/// [`StatusPolicy`]'s documentation.
#[tokio::test]
async fn section_2_6_a_retry_gets_the_result_of_an_error() {
    for status in [400, 402, 404, 409, 422, 429, 500, 502, 503, 504] {
        let fixture = Fixture::new();
        let layer = fixture.layer().status_policy(StatusPolicy::draft());
        let shop = fixture.orders(layer, move |run| {
            (StatusCode::from_u16(status).unwrap(), run.to_string())
        });
        let first = send(&shop, order("tea")).await;
        let retry = send(&shop, order("tea")).await;
        assert_eq!(retry.status, status);
        assert_eq!(retry.body, first.body);
        assert!(retry.is_replayed());
        assert_eq!(fixture.runs(), 1);
    }
}

/// "Concurrent Request: the request was retried before the original request completed. The resource server MUST
/// respond with a resource conflict error." By default it waits for the first one before that.
#[tokio::test]
async fn section_2_6_a_concurrent_request_is_a_conflict_and_the_first_goes_on() {
    let fixture = Fixture::new();
    let (started, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (counter, tell, wait) = (fixture.clone(), started.clone(), go_on.clone());
    let handler = post(move || async move {
        let run = counter.run().to_string();
        tell.notify_one();
        wait.notified().await;
        run
    });
    let layer = fixture.layer().on_running(OnRunning::Reject);
    let shop = routed(handler, layer);
    let first = spawn(&shop, order("tea"));
    patiently("the handler runs", started.notified()).await;
    for _ in 0..3 {
        let conflict = send(&shop, order("tea")).await;
        assert_eq!(conflict.problem(), (409, "request-running"));
    }
    go_on.notify_one();
    let first = patiently("the first answer", first).await.unwrap();
    assert_eq!(first.said(), (200, "1"));
    // A conflict leaves nothing behind: the same request gets its answer now.
    let retry = send(&shop, order("tea")).await;
    assert_eq!(retry.body, first.body);
    assert!(retry.is_replayed());
    assert_eq!(fixture.runs(), 1);
}
