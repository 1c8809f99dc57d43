//! The responses to a client that repeats its requests.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use idem_runtime::http::{IdempotencyLayer, MarkReplays};
use idem_runtime::{Error, HasEngine as _};

use super::shop::{Shop, by, order};
use crate::client::{INVALID, MISSING, REUSED, Ran, Replayed, UNKNOWN, patiently, send, spawn};

fn of(key: &str, item: &str) -> Request {
    order("/orders", key, item)
}

const TEA: &str = r#"{"run":1,"item":"tea"}"#;

#[tokio::test]
async fn a_repeat_gets_status_headers_and_body_of_the_first() {
    let shop = Shop::new();
    let routes = shop.routes();
    let first = send(&routes, of("k", "tea")).await;
    let again = send(&routes, of("k", "tea")).await;
    for (answer, cookie) in [(&first, Some("last=1")), (&again, None)] {
        assert_eq!(answer.said(), (201, TEA));
        assert_eq!(answer.header("location"), Some("/orders/1"));
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("set-cookie"), cookie, "it is for one client");
    }
    assert_eq!((first.is_replayed(), again.is_replayed()), (false, true));
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn the_state_of_the_record_decides_what_a_request_gets() {
    let shop = Shop::new();
    let routes = shop.routes();
    let without = |key: Option<&str>| {
        let mut request = of("k", "tea");
        let headers = request.headers_mut();
        headers.remove("idempotency-key");
        if let Some(key) = key {
            headers.insert("idempotency-key", key.parse().unwrap());
        }
        request
    };
    let refused_by_axum = Request::post("/orders")
        .header("idempotency-key", "\"k\"")
        .header("content-type", "application/json");
    let refused_by_axum = refused_by_axum.body(Body::from("{}")).unwrap();
    assert_eq!(send(&routes, refused_by_axum).await.status, 422);
    let unlucky = r#"{"run":2,"item":"unlucky"}"#;
    let rows = [
        ("no key", without(None), MISSING),
        ("two keys in one", without(Some("a, b")), INVALID),
        ("an empty key", without(Some("\"\"")), INVALID),
        ("two keys", without(Some("\"a\", \"b\"")), INVALID),
        ("a system error", of("s", "unlucky"), Ran(503, "")),
        ("gives the key back", of("s", "unlucky"), Ran(201, unlucky)),
        ("a business error", of("b", "dear"), Ran(402, "3")),
        ("is replayed", of("b", "dear"), Replayed(402, "3")),
        ("another body", of("b", "tea"), REUSED),
        ("another key", of("c", "dear"), Ran(402, "4")),
        ("an unknown outcome", of("u", "lost"), Ran(504, "")),
        ("is not tried again", of("u", "lost"), UNKNOWN),
        ("nor is it for another", of("u", "tea"), REUSED),
        ("of ann", by("ann", of("b", "dear")), Ran(402, "6")),
        ("of bob", by("bob", of("b", "dear")), Ran(402, "7")),
        ("ann again", by("ann", of("b", "dear")), Replayed(402, "6")),
    ];
    shop.walk(&routes, rows).await;
}

/// A repeat is refused with `Retry-After`, or waits by default.
#[tokio::test]
async fn a_repeat_while_the_first_runs_is_refused_or_waits() {
    for path in ["/impatient", "/orders"] {
        let shop = Shop::new();
        let routes = shop.routes();
        let slow = || order(path, "k", "slow");
        let first = spawn(&routes, slow());
        shop.begun().await;
        let repeat = spawn(&routes, slow());
        if path == "/impatient" {
            let early = send(&routes, slow()).await;
            assert_eq!(early.problem(), (409, "request-running"));
            let seconds: u64 = early.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=2).contains(&seconds), "{seconds}");
        }
        shop.let_end();
        let first = patiently("the first", first).await.unwrap();
        let slow_order = r#"{"run":1,"item":"slow"}"#;
        assert_eq!(first.said(), (201, slow_order));
        assert!(!first.is_replayed());
        let repeat = patiently("its repeat", repeat).await.unwrap();
        if path == "/orders" {
            assert_eq!(repeat.replay(), (true, slow_order), "it ran for another");
        }
        let again = ("again", slow(), Replayed(201, slow_order));
        shop.walk(&routes, [again]).await;
    }
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
        let request = Request::post("/count").body(Body::from(keys)).unwrap();
        let answer = send(&routes, request).await;
        assert_eq!(answer.is_replayed(), expected, "{keys}");
    }
}

/// The layer knows the whole request, the attribute only the handler's arguments: each keeps an answer of its own. The
/// layer marks errors, too, as replayed.
#[tokio::test]
async fn the_layer_goes_on_top_of_the_attribute() {
    let shop = Shop::new();
    let layer = IdempotencyLayer::public(shop.engine(), "shop.api");
    let routes = shop.routes().layer(layer);
    let rows = [
        ("first", of("k", "tea"), Ran(201, TEA)),
        ("again", of("k", "tea"), Replayed(201, TEA)),
        ("an error", of("l", "dear"), Ran(402, "2")),
        ("and again", of("l", "dear"), Replayed(402, "2")),
    ];
    shop.walk(&routes, rows).await;
    let again = send(&routes, of("k", "tea")).await;
    let marks = again.headers.get_all("idempotent-replayed");
    assert_eq!(marks.iter().count(), 1);
    assert_eq!(again.header("set-cookie"), None);
}
