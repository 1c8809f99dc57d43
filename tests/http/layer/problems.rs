//! The contents of a problem document, and the retry hints for SDKs.

use axum::body::Body;
use axum::response::IntoResponse as _;
use http::StatusCode;
use idem_runtime::http::{IdempotencyKey, IdempotencyLayer, KeyVerdict, StatusPolicy};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Engine, OnDuplicate};
use idem_tests::faulty::{Fault, Faulty, StoreOperation};

use crate::client::{Answer, Fixture, KEY, bare, numbered, order, send, with_key};

/// Each kind of problem that a client can cause, and its `retryable`.
async fn problems(set: fn(IdempotencyLayer) -> IdempotencyLayer) -> Vec<(Answer, bool)> {
    let (_, shop) = numbered(|layer| set(layer).max_body_bytes(5));
    let mut problems = Vec::new();
    for request in [bare(""), with_key("a, b", ""), order("too long")] {
        problems.push((send(&shop, request).await, false));
    }
    send(&shop, order("tea")).await;
    problems.push((send(&shop, order("rum")).await, false));
    let unknown = Fixture::new();
    let (_, rejecting) = numbered(|layer| set(layer).on_duplicate(OnDuplicate::Reject));
    let (_, losing) = numbered(|layer| set(layer).max_response_bytes(1));
    let unknown = unknown.orders(set(unknown.layer()), |_| {
        let mut response = axum::response::Response::new(Body::empty());
        response.extensions_mut().insert(KeyVerdict::Unknown);
        response
    });
    for shop in [rejecting, losing, unknown] {
        send(&shop, order("")).await;
        problems.push((send(&shop, order("")).await, false));
    }
    let store = Faulty::new(MemoryStore::new());
    store.fail(StoreOperation::Claim, [Fault::Refused]);
    let layer = IdempotencyLayer::public(Engine::new(store), "shop.api");
    let shop = Fixture::new().orders(set(layer), |run| run.to_string());
    problems.push((send(&shop, order("")).await, true));
    problems
}

#[tokio::test]
async fn a_problem_has_retryable_and_a_link_to_its_description() {
    let described = "https://docs.rs/idem-runtime/latest/idem_runtime/http/struct.Problem.html";
    let mut told = Vec::new();
    let of_stripe = problems(|layer| layer.status_policy(StatusPolicy::stripe())).await;
    let plain = problems(|layer| layer).await;
    for ((problem, is_retryable), (hinted, _)) in plain.into_iter().zip(of_stripe) {
        let (_, code) = problem.problem();
        let document = problem.json();
        assert_eq!(document["retryable"], is_retryable, "{code}");
        assert_eq!(document["type"], format!("{described}#{code}"));
        let link = format!("<{described}>; rel=\"describedby\"; type=\"text/html\"");
        assert_eq!(problem.headers["link"], link, "{code}");
        assert_eq!(problem.header("stripe-should-retry"), None, "{code}");
        let hint = is_retryable.to_string();
        assert_eq!(hinted.header("stripe-should-retry"), Some(&*hint), "{code}");
        told.push(format!("{code}: {}", document["title"].as_str().unwrap()));
    }
    let expected = [
        "key-missing: Idempotency-Key is missing",
        "key-invalid: Idempotency-Key is not valid",
        "body-too-large: The request body is too large",
        "key-reused: Idempotency-Key is already used",
        "request-repeated: The request was done before",
        "answer-lost: The answer cannot be repeated",
        "outcome-unknown: The outcome is unknown",
        "unavailable: The service is unavailable",
    ];
    assert_eq!(told, expected);
}

/// The hint in a client's first response and in its repeat: a retry of a final failure is useless.
#[tokio::test]
async fn a_final_failure_reaches_sdks_at_once_and_is_replayed() {
    let stripe = StatusPolicy::stripe;
    for (policy, status, own, expected) in [
        (stripe(), 500, None, Some("false")),
        (stripe(), 200, None, None),
        (stripe(), 402, None, None),
        // Worked on again.
        (stripe(), 429, None, None),
        (stripe(), 409, None, None),
        (
            stripe().ambiguous(KeyVerdict::Unknown),
            502,
            None,
            Some("false"),
        ),
        (stripe(), 500, Some("true"), Some("true")),
        (StatusPolicy::draft(), 500, None, None),
    ] {
        let row = format!("{policy:?} {status} {own:?}");
        let fixture = Fixture::new();
        let layer = fixture.layer().status_policy(policy);
        let shop = fixture.orders(layer, move |_| {
            let mut response = StatusCode::from_u16(status).unwrap().into_response();
            if let Some(own) = own {
                let headers = response.headers_mut();
                headers.insert("stripe-should-retry", own.parse().unwrap());
            }
            response
        });
        for _ in 0..2 {
            let answer = send(&shop, order("")).await;
            assert_eq!(answer.header("stripe-should-retry"), expected, "{row}");
        }
    }
}

#[tokio::test]
async fn a_service_may_extend_a_problem_with_its_request() {
    let (fixture, shop) = numbered(|layer| {
        layer.max_body_bytes(5).on_problem_with(|problem, request| {
            let key = request.extensions.get::<IdempotencyKey>();
            let problem = problem
                .member("path", request.uri.path())
                .member("code", "another")
                .member("key", &key.map(IdempotencyKey::as_str));
            assert!(!format!("{problem:?}").contains("8e03978e"), "{problem:?}");
            problem.into_response()
        })
    });
    send(&shop, order("tea")).await;
    let key = Some(KEY.trim_matches('"'));
    for (request, code, key) in [
        (order("rum"), "key-reused", key),
        (order("too long"), "body-too-large", key),
        (bare(""), "key-missing", None),
    ] {
        let document = send(&shop, request).await.json();
        assert_eq!(document["code"], code);
        assert_eq!(document["path"], "/orders", "{code}");
        assert_eq!(document["key"].as_str(), key, "{code}");
    }
    assert_eq!(fixture.runs(), 1);
}
