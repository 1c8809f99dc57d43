//! The effects of a layer's settings.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::IntoResponse;
use axum::routing::post;
use http::{Method, StatusCode};
use idem_runtime::http::{IdempotencyLayer, KeyVerdict, Problem, StatusPolicy};
use idem_runtime::{Error, OnDuplicate};

use crate::client::{Answer, Fixture, KEY, order, send};

/// Two responses to the same request: the first has this status.
async fn twice(policy: StatusPolicy, status: u16) -> (Fixture, Answer) {
    let fixture = Fixture::new();
    let layer = fixture.layer().status_policy(policy);
    let shop = fixture.orders(layer, move |run| {
        (StatusCode::from_u16(status).unwrap(), run.to_string())
    });
    let first = send(&shop, order("")).await;
    assert_eq!(first.said(), (status, "1"));
    let second = send(&shop, order("")).await;
    (fixture, second)
}

#[tokio::test]
async fn the_policy_decides_the_response_to_a_repeat() {
    let (careful, draft, stripe) = (
        StatusPolicy::careful,
        StatusPolicy::draft,
        StatusPolicy::stripe,
    );
    let cases = [
        (careful(), 201, KeyVerdict::Store),
        (careful(), 303, KeyVerdict::Store),
        (careful(), 409, KeyVerdict::Store),
        (careful(), 422, KeyVerdict::Release),
        (careful(), 503, KeyVerdict::Release),
        (careful(), 500, KeyVerdict::Unknown),
        (draft(), 422, KeyVerdict::Store),
        (draft(), 500, KeyVerdict::Store),
        (stripe(), 500, KeyVerdict::Store),
        (stripe(), 402, KeyVerdict::Store),
        (stripe(), 429, KeyVerdict::Release),
        (
            careful().ambiguous(KeyVerdict::Store),
            502,
            KeyVerdict::Store,
        ),
        (
            careful().ambiguous(KeyVerdict::Release),
            502,
            KeyVerdict::Release,
        ),
        (
            careful().on(StatusCode::CREATED, KeyVerdict::Unknown),
            201,
            KeyVerdict::Unknown,
        ),
    ];
    for (policy, status, verdict) in cases {
        let what = format!("{policy:?}: {status}");
        let (fixture, second) = twice(policy, status).await;
        match verdict {
            KeyVerdict::Store => {
                assert!(second.is_replayed(), "{what}");
                assert_eq!(second.status.as_u16(), status, "{what}");
                assert_eq!(second.body, "1", "{what}");
            }
            KeyVerdict::Release => assert_eq!(second.body, "2", "{what}"),
            _ => {
                let unknown = (500, "outcome-unknown");
                assert_eq!(second.problem(), unknown, "{what}");
            }
        }
        let runs = if verdict == KeyVerdict::Release { 2 } else { 1 };
        assert_eq!(fixture.runs(), runs, "{what}");
    }
}

#[tokio::test]
async fn a_handler_knows_better_than_its_status() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer(), |run| {
        let mut response = (StatusCode::BAD_GATEWAY, run.to_string()).into_response();
        response.extensions_mut().insert(KeyVerdict::Release);
        response
    });
    assert_eq!(send(&shop, order("")).await.body, "1");
    assert_eq!(send(&shop, order("")).await.body, "2");
}

/// The handler's own engine refuses: that is no answer of the handler's.
#[tokio::test]
async fn a_refusal_of_idem_within_is_not_stored() {
    let fixture = Fixture::new();
    let inner = fixture.engine.clone();
    let counter = fixture.clone();
    let handler = post(move || async move {
        counter.run();
        let call = inner
            .operation("inner")
            .key("")
            .run(|_| async { Ok::<_, Error>(1) });
        let refused: Error = call.await.unwrap_err();
        Problem::from(&refused).into_response()
    });
    let shop = Router::new().route("/orders", handler);
    let draft = fixture.layer().status_policy(StatusPolicy::draft());
    let shop = shop.layer(draft);
    for runs in 1..=2 {
        assert_eq!(send(&shop, order("")).await.code(), "key-invalid");
        assert_eq!(fixture.runs(), runs);
    }
}

/// The attack: a key that a handler gives its first client is read by any client that repeats the request.
#[tokio::test]
async fn an_unlisted_header_is_not_stored() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer(), |_| {
        [
            ("x-api-key", "s3cret"),
            ("refresh-token", "s3cret"),
            ("x-session-token", "s3cret"),
            ("x-amz-security-token", "s3cret"),
            ("access-control-allow-origin", "https://first.test"),
            ("x-order-id", "7"),
            ("location", "/orders/7"),
        ]
        .into_response()
    });
    let first = send(&shop, order("")).await;
    assert_eq!(first.headers.len(), 8, "the first response has them all");
    let again = send(&shop, order("")).await;
    let mut names: Vec<_> = again.headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-length", "idempotent-replayed", "location"]);
}

#[tokio::test]
async fn a_layer_lists_its_records() {
    let answer = |layer: fn(IdempotencyLayer) -> IdempotencyLayer| async move {
        let fixture = Fixture::new();
        let shop = fixture.orders(layer(fixture.layer()), |_| {
            [("x-order-id", "7"), ("etag", "1"), ("x-other", "2")].into_response()
        });
        send(&shop, order("")).await;
        let again = send(&shop, order("")).await;
        let has = |name: &str| again.headers.contains_key(name);
        [has("x-order-id"), has("etag"), has("x-other")]
    };
    assert_eq!(answer(|layer| layer).await, [false, true, false]);
    let one_more = answer(|layer| layer.store_header("X-Order-Id"));
    assert_eq!(one_more.await, [true, true, false]);
    let only = answer(|layer| layer.store_only(["x-other"]));
    assert_eq!(only.await, [false, false, true]);
    let both = answer(|layer| layer.store_only(["x-other"]).store_header("etag"));
    assert_eq!(both.await, [false, true, true]);
    let less = answer(|layer| {
        layer
            .never_store(["etag", "x-other"])
            .store_header("x-other")
    });
    assert_eq!(less.await, [false, false, false]);
}

#[tokio::test]
async fn a_secret_on_the_list_is_a_mistake() {
    for name in [
        "Set-Cookie",
        "x-api-key",
        "x-refresh-token",
        "access-control-allow-origin",
        "no name",
    ] {
        for set in [
            |layer: IdempotencyLayer, name| layer.store_header(name),
            |layer: IdempotencyLayer, name| layer.store_only([name]),
        ] {
            let layer = Fixture::new().layer();
            let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| set(layer, name)));
            assert!(made.is_err(), "{name}");
        }
    }
}

#[tokio::test]
async fn more_headers_are_not_stored() {
    let fixture = Fixture::new();
    let layer = fixture.layer().never_store(["X-Debug", "x-node"]);
    let layer = layer.store_only(["x-debug", "x-node", "x-kept"]);
    let shop = fixture.orders(layer, |_| {
        [("x-debug", "1"), ("x-node", "2"), ("x-kept", "3")].into_response()
    });
    let first = send(&shop, order("")).await;
    assert_eq!(first.headers["x-debug"], "1");
    let again = send(&shop, order("")).await;
    assert!(again.is_replayed());
    assert_eq!(again.headers["x-kept"], "3");
    assert!(!again.headers.contains_key("x-debug"));
    assert!(!again.headers.contains_key("x-node"));
}

#[tokio::test]
async fn a_response_lives_for_the_ttl_of_the_layer() {
    for (status, life) in [(StatusCode::CREATED, 60), (StatusCode::CONFLICT, 10)] {
        let fixture = Fixture::new();
        let layer = fixture
            .layer()
            .ttl(Duration::from_mins(1))
            .error_ttl(Duration::from_secs(10))
            .status_policy(StatusPolicy::careful());
        let shop = fixture.orders(layer, move |run| (status, run.to_string()));
        send(&shop, order("")).await;
        fixture.clock.advance(Duration::from_secs(life - 1));
        assert!(send(&shop, order("")).await.is_replayed(), "{status}");
        fixture.clock.advance(Duration::from_secs(1));
        assert_eq!(send(&shop, order("")).await.body, "2", "{status}");
    }
}

#[tokio::test]
async fn a_repeat_is_refused_by_a_layer_that_rejects() {
    let fixture = Fixture::new();
    let layer = fixture
        .layer()
        .on_duplicate(OnDuplicate::Reject)
        .ttl(Duration::from_mins(1));
    let shop = fixture.orders(layer, |run| run.to_string());
    assert_eq!(send(&shop, order("")).await.body, "1");
    let again = send(&shop, order("")).await;
    assert_eq!(again.problem(), (409, "request-repeated"));
    assert_eq!(again.headers["retry-after"], "60");
}

#[tokio::test]
async fn other_methods_are_protected_on_demand() {
    let fixture = Fixture::new();
    let layer = fixture.layer().methods([Method::PUT]);
    let shop = fixture.orders(layer, |run| run.to_string());
    let replace = || {
        let request = Request::put("/orders").header("idempotency-key", KEY);
        request.body(Body::empty()).unwrap()
    };
    assert_eq!(send(&shop, replace()).await.body, "1");
    assert!(send(&shop, replace()).await.is_replayed());
}

#[tokio::test]
async fn a_setting_out_of_range_is_the_servers_mistake() {
    let fixture = Fixture::new();
    let layer = fixture.layer().ttl(Duration::ZERO);
    let shop = fixture.orders(layer, |run| run.to_string());
    let refused = send(&shop, order("")).await;
    assert_eq!(refused.problem(), (500, "misconfigured"));
    assert_eq!(fixture.runs(), 0);
}

/// Two layers may have one store: the names keep them apart.
#[tokio::test]
async fn two_layers_have_keys_of_their_own() {
    let fixture = Fixture::new();
    for name in ["shop.api", "admin.api"] {
        let layer = IdempotencyLayer::public(&fixture.engine, name);
        let shop = fixture.orders(layer, |run| run.to_string());
        assert!(!send(&shop, order("")).await.is_replayed());
        assert!(send(&shop, order("")).await.is_replayed());
    }
    assert_eq!(fixture.runs(), 2);
}
