//! The contents of a problem document, and the retry hints for SDKs.

use axum::body::Body;
use axum::extract::Request;
use axum::routing::post;
use http::StatusCode;
use idem_runtime::http::{IdempotencyKey, IdempotencyLayer, KeyVerdict, StatusPolicy};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Engine, OnDuplicate};
use idem_tests::faulty::{Fault, Faulty, StoreOperation};
use serde_json::Value;

use crate::client::{Answer, Fixture, KEY, keyed, order, routed, send, with_key};

fn document(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}

fn bare() -> Request {
    Request::post("/orders").body(Body::empty()).unwrap()
}

/// A problem of each kind that a client can make here, and whether it announces that a repeat may help.
async fn problems(set: impl Fn(IdempotencyLayer) -> IdempotencyLayer) -> Vec<(Answer, bool)> {
    let mut problems = Vec::new();
    let fixture = Fixture::new();
    let shop = fixture.orders(set(fixture.layer()).max_body_bytes(5), |run| {
        run.to_string()
    });
    problems.push((send(&shop, bare()).await, false));
    problems.push((send(&shop, with_key("a, b", "")).await, false));
    problems.push((send(&shop, order("too long")).await, false));
    send(&shop, order("tea")).await;
    problems.push((send(&shop, order("rum")).await, false));

    let fixture = Fixture::new();
    let layer = set(fixture.layer()).on_duplicate(OnDuplicate::Reject);
    let shop = fixture.orders(layer, |run| run.to_string());
    send(&shop, order("")).await;
    problems.push((send(&shop, order("")).await, false));

    let fixture = Fixture::new();
    let shop = fixture.orders(set(fixture.layer()).max_response_bytes(1), |run| {
        run.to_string()
    });
    send(&shop, order("")).await;
    problems.push((send(&shop, order("")).await, false));

    let fixture = Fixture::new();
    let shop = fixture.orders(set(fixture.layer()), |_| {
        let mut response = axum::response::Response::new(Body::empty());
        response.extensions_mut().insert(KeyVerdict::Unknown);
        response
    });
    send(&shop, order("")).await;
    problems.push((send(&shop, order("")).await, false));

    let store = Faulty::new(MemoryStore::new());
    store.fail(StoreOperation::Claim, [Fault::Refused]);
    let layer = IdempotencyLayer::public(Engine::new(store), "shop.api");
    let shop = fixture.orders(set(layer), |run| run.to_string());
    problems.push((send(&shop, order("")).await, true));
    problems
}

#[tokio::test]
async fn a_problem_has_retryable_and_a_link_to_its_description() {
    let described = "https://docs.rs/idem-runtime/latest/idem_runtime/http/struct.Problem.html";
    let mut codes = Vec::new();
    for (problem, is_retryable) in problems(|layer| layer).await {
        let (_, code) = problem.problem();
        let document = document(&problem);
        assert_eq!(document["retryable"], is_retryable, "{code}");
        assert_eq!(document["type"], format!("{described}#{code}"));
        let link = format!("<{described}>; rel=\"describedby\"; type=\"text/html\"");
        assert_eq!(problem.headers["link"], link, "{code}");
        assert!(
            !problem.headers.contains_key("stripe-should-retry"),
            "{code}"
        );
        codes.push(code.to_owned());
    }
    let expected = [
        "key-missing",
        "key-invalid",
        "body-too-large",
        "key-reused",
        "request-repeated",
        "answer-lost",
        "outcome-unknown",
        "unavailable",
    ];
    assert_eq!(codes, expected);
}

#[tokio::test]
async fn under_the_policy_of_stripe_sdks_retry_as_well() {
    let set = |layer: IdempotencyLayer| layer.status_policy(StatusPolicy::stripe());
    for (problem, is_retryable) in problems(set).await {
        let code = problem.code();
        let told = &problem.headers["stripe-should-retry"];
        assert_eq!(told, if is_retryable { "true" } else { "false" }, "{code}");
    }
}

/// The retry hints in a client's first response and in its repeat, of a handler that responds so.
async fn told(policy: StatusPolicy, status: u16, own: Option<&'static str>) -> [Option<String>; 2] {
    let fixture = Fixture::new();
    let counter = fixture.clone();
    let handler = post(move || async move {
        counter.run();
        let mut response = axum::response::Response::new(Body::empty());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        if let Some(own) = own {
            response
                .headers_mut()
                .insert("stripe-should-retry", own.parse().unwrap());
        }
        response
    });
    let layer = fixture.layer().status_policy(policy);
    let shop = routed(handler, layer);
    let header = |answer: Answer| {
        let told = answer.headers.get("stripe-should-retry")?;
        Some(told.to_str().unwrap().to_owned())
    };
    [
        header(send(&shop, order("")).await),
        header(send(&shop, order("")).await),
    ]
}

#[tokio::test]
async fn a_final_failure_reaches_sdks_at_once_and_is_replayed() {
    let stripe = StatusPolicy::stripe;
    let no = Some("false".to_owned());
    assert_eq!(told(stripe(), 500, None).await, [no.clone(), no.clone()]);
    assert_eq!(told(stripe(), 200, None).await, [None, None]);
    assert_eq!(told(stripe(), 402, None).await, [None, None]);
    assert_eq!(
        told(stripe(), 429, None).await,
        [None, None],
        "it is worked on again"
    );
    assert_eq!(
        told(stripe(), 409, None).await,
        [None, None],
        "it is worked on again"
    );
    let ambiguous = stripe().ambiguous(KeyVerdict::Unknown);
    assert_eq!(told(ambiguous, 502, None).await, [no.clone(), no]);
    let yes = Some("true".to_owned());
    assert_eq!(told(stripe(), 500, Some("true")).await, [yes.clone(), yes]);
    assert_eq!(told(StatusPolicy::draft(), 500, None).await, [None, None]);
}

#[tokio::test]
async fn a_service_may_extend_a_problem_with_its_request() {
    let fixture = Fixture::new();
    let layer = fixture.layer().on_problem_with(|problem, request| {
        let key = request.extensions.get::<IdempotencyKey>();
        let problem = problem
            .member("path", request.uri.path())
            .member("code", "another")
            .member("key", &key.map(IdempotencyKey::as_str));
        assert!(!format!("{problem:?}").contains("8e03978e"), "{problem:?}");
        problem.into_response()
    });
    let shop = fixture.orders(layer.max_body_bytes(5), |run| run.to_string());
    send(&shop, order("tea")).await;
    let name = KEY.trim_matches('"');
    let with_cookie = keyed("/orders").body(Body::from("rum")).unwrap();
    for (request, code, key) in [
        (with_cookie, "key-reused", Value::from(name)),
        (order("too long"), "body-too-large", Value::from(name)),
        (bare(), "key-missing", Value::Null),
    ] {
        let refused = send(&shop, request).await;
        let document = document(&refused);
        assert_eq!(document["code"], code);
        assert_eq!(document["path"], "/orders", "{code}");
        assert_eq!(document["key"], key, "{code}");
    }
    assert_eq!(fixture.runs(), 1);
}
