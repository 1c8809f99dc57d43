//! The responses to a client that repeats its requests.

use axum::Router;
use http::Method;
use http_body_util::Full;
use idem_runtime::http::{IdempotencyLayer, MarkReplays};
use idem_runtime::testing::{Fault, StoreOperation};
use idem_runtime::{Error, HasEngine};
use serde_json::json;

use crate::client::{Reply, post, request, send};
use crate::shop::{Server, Shop};

async fn order(server: &Server, key: &str, item: &str) -> Reply {
    send(server.at, post("/orders", key, &json!({ "item": item }))).await
}

#[tokio::test]
async fn a_repeat_gets_status_headers_and_body_of_the_first() {
    let shop = Shop::new();
    let server = shop.open().await;
    let first = order(&server, "k", "tea").await;
    assert_eq!(first.status, 201);
    assert_eq!(first.json(), json!({ "run": 1, "item": "tea" }));
    assert_eq!(first.header("location"), Some("/orders/1"));
    assert_eq!(first.header("set-cookie"), Some("last=1"));
    assert!(!first.is_replayed());

    let again = order(&server, "k", "tea").await;
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    assert_eq!(again.header("location"), Some("/orders/1"));
    assert_eq!(again.header("content-type"), Some("application/json"));
    assert_eq!(again.header("set-cookie"), None, "it was for one client");
    assert!(again.is_replayed());
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn keys_of_two_users_are_two_keys() {
    let shop = Shop::new();
    let server = shop.open().await;
    for (user, run) in [("ann", 1), ("bob", 2), ("ann", 1)] {
        let mut request = post("/orders", "k", &json!({ "item": "tea" }));
        request
            .headers_mut()
            .insert("x-user", user.parse().unwrap());
        assert_eq!(send(server.at, request).await.json()["run"], run);
    }
}

#[tokio::test]
async fn another_body_under_the_same_key_is_refused() {
    let shop = Shop::new();
    let server = shop.open().await;
    order(&server, "k", "tea").await;
    order(&server, "k", "rum")
        .await
        .assert_problem(422, "key-reused");
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn a_request_without_a_key_or_with_a_bad_one_is_refused() {
    let shop = Shop::new();
    let server = shop.open().await;
    let bare = |key: Option<&str>| {
        let mut request = post("/orders", "k", &json!({ "item": "tea" }));
        request.headers_mut().remove("idempotency-key");
        if let Some(key) = key {
            let key = key.parse().unwrap();
            request.headers_mut().insert("idempotency-key", key);
        }
        request
    };
    let missing = send(server.at, bare(None)).await;
    missing.assert_problem(400, "key-missing");
    for key in ["a, b", "\"\"", "\"a\", \"b\""] {
        let refused = send(server.at, bare(Some(key))).await;
        refused.assert_problem(400, "key-invalid");
    }
    assert_eq!(shop.runs(), 0);
}

#[tokio::test]
async fn a_request_that_axum_refuses_takes_no_key() {
    let shop = Shop::new();
    let server = shop.open().await;
    let refused = send(server.at, post("/orders", "k", &json!({ "itm": "tea" }))).await;
    assert_eq!(refused.status, 422, "the refusal of `Json`");
    assert_eq!(order(&server, "k", "tea").await.json()["run"], 1);
}

#[tokio::test]
async fn a_repeat_while_the_first_runs_gets_retry_after() {
    let shop = Shop::new();
    let server = shop.open().await;
    let body = json!({ "item": "slow" });
    let first = tokio::spawn(send(server.at, post("/impatient", "k", &body)));
    shop.begun().await;
    let early = send(server.at, post("/impatient", "k", &body)).await;
    early.assert_problem(409, "request-running");
    let seconds: u64 = early.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=2).contains(&seconds), "{seconds}");

    shop.let_end();
    assert_eq!(first.await.unwrap().status, 201);
    assert!(
        send(server.at, post("/impatient", "k", &body))
            .await
            .is_replayed()
    );
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn a_double_click_waits_for_the_first() {
    let shop = Shop::new();
    let server = shop.open().await;
    let click = || {
        tokio::spawn(send(
            server.at,
            post("/orders", "k", &json!({ "item": "slow" })),
        ))
    };
    let first = click();
    shop.begun().await;
    let second = click();
    shop.let_end();
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!(
        (first.status, first.is_replayed()),
        (201.try_into().unwrap(), false)
    );
    assert_eq!(first.body, second.body);
    assert!(second.is_replayed(), "it ran for another request");
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn a_system_error_gives_the_key_back() {
    let shop = Shop::new();
    let server = shop.open().await;
    assert_eq!(order(&server, "k", "unlucky").await.status, 503);
    let again = order(&server, "k", "unlucky").await;
    assert_eq!((again.status.as_u16(), again.is_replayed()), (201, false));
    assert_eq!(again.json()["run"], 2);
}

#[tokio::test]
async fn a_business_error_is_replayed() {
    let shop = Shop::new();
    let server = shop.open().await;
    for is_again in [false, true] {
        let refused = order(&server, "k", "dear").await;
        assert_eq!(
            (refused.status.as_u16(), &refused.body[..]),
            (402, &b"1"[..])
        );
        assert_eq!(refused.is_replayed(), is_again);
    }
    assert_eq!(shop.runs(), 1);
    // A refusal of idem is no replay, nor is the response of a handler that ran.
    let refused = order(&server, "k", "tea").await;
    refused.assert_problem(422, "key-reused");
    assert!(!refused.is_replayed());
    assert!(!order(&server, "l", "dear").await.is_replayed());
}

#[tokio::test]
async fn an_unknown_outcome_is_not_tried_again() {
    let shop = Shop::new();
    let server = shop.open().await;
    assert_eq!(order(&server, "k", "lost").await.status, 504);
    order(&server, "k", "lost")
        .await
        .assert_problem(500, "outcome-unknown");
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn without_the_store_nothing_is_done() {
    let shop = Shop::new();
    let server = shop.open().await;
    shop.store().fail(StoreOperation::Claim, [Fault::Refused]);
    let refused = order(&server, "k", "tea").await;
    refused.assert_problem(503, "unavailable");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(shop.runs(), 0);
    assert_eq!(order(&server, "k", "tea").await.status, 201);
}

/// A handler that makes calls: its response is a replay if nothing has run for it.
#[tokio::test]
async fn a_response_is_a_replay_if_each_call_of_its_handler_was() {
    let shop = Shop::new();
    let engine = shop.engine();
    let handler = axum::routing::post(move |keys: String| async move {
        let mut sum = 0;
        for key in keys.split(',') {
            let call = engine.operation("count").key(key);
            let finishes = key.starts_with('f');
            let body = |_| async { Ok::<_, Error>(1) };
            let counted = if finishes {
                call.finish(body).await
            } else {
                call.run(body).await
            };
            sum += counted.unwrap_or_default();
        }
        sum.to_string()
    });
    let routes = Router::new()
        .route("/count", handler)
        .layer(MarkReplays::new());
    let server = Server::start(routes).await;
    let is_replayed = async |keys: &'static str| {
        let request = request(Method::POST, "/count").body(Full::from(keys));
        send(server.at, request.unwrap()).await.is_replayed()
    };
    for (keys, expected) in [
        ("a", false),
        ("a", true),
        ("a,b", false),
        ("a,b", true),
        ("c,a", false),
        ("f1", false),
        ("f1,a", true),
        ("f2,a", false),
        ("a,f3", false),
        // Refused: an empty key is none.
        ("a,", false),
    ] {
        assert_eq!(is_replayed(keys).await, expected, "{keys}");
    }
}

/// The layer knows the whole request, the attribute only the handler's arguments: each keeps an answer of its
/// own.
#[tokio::test]
async fn the_layer_goes_on_top_of_the_attribute() {
    let shop = Shop::new();
    let layer = IdempotencyLayer::public(shop.engine(), "shop.api");
    let server = Server::start(shop.routes().layer(layer)).await;
    let first = order(&server, "k", "tea").await;
    assert_eq!((first.status.as_u16(), first.is_replayed()), (201, false));
    let again = order(&server, "k", "tea").await;
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    assert_eq!(
        again.headers.get_all("idempotent-replayed").iter().count(),
        1
    );
    assert_eq!(again.header("set-cookie"), None);

    // The layer marks errors, too, as replayed.
    let shop = Shop::new();
    let layer = IdempotencyLayer::public(shop.engine(), "shop.api");
    let server = Server::start(shop.routes().layer(layer)).await;
    assert_eq!(order(&server, "k", "dear").await.status, 402);
    assert!(order(&server, "k", "dear").await.is_replayed());
    assert_eq!(shop.runs(), 1);
}
