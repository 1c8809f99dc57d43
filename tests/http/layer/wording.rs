//! Refusals in the words of a partner: see [`Refusals`].

use std::io;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use http::StatusCode;
use idem_runtime::http::{IdempotencyLayer, KeyVerdict, Refusal, Refusals, StatusPolicy};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Engine, OnDuplicate, OnRunning};
use idem_tests::faulty::{Fault, Faulty, StoreOperation};
use serde_json::json;

use crate::client::{
    Answer, Fixture, bare, data, frames, gated, numbered, of_tenant, order, patiently, ran, send,
    spawn, with_key,
};

/// In every key, body, address and response of these tests.
const SECRET: &str = "s3cret";

fn tea() -> Request {
    keyed(SECRET, "s3cret tea")
}

fn keyed(key: &str, body: impl Into<Body>) -> Request {
    let mut request = with_key(format!("\"{key}\""), body);
    *request.uri_mut() = "/orders?token=s3cret".parse().unwrap();
    request
}

fn shop(fixture: &Fixture, layer: IdempotencyLayer) -> Router {
    fixture.orders(layer, |run| format!("{run} s3cret"))
}

/// The refusals of a layer with these settings, with their problems' codes.
async fn refused(
    set: impl Fn(IdempotencyLayer) -> IdempotencyLayer,
) -> Vec<(&'static str, Answer)> {
    let new = |own: fn(IdempotencyLayer) -> IdempotencyLayer| {
        let fixture = Fixture::new();
        let layer = own(set(fixture.layer()));
        (shop(&fixture, layer), fixture)
    };
    let mut refused = Vec::new();

    let (limited, _) = new(|layer| layer.max_body_bytes(10));
    refused.push(("key-missing", send(&limited, bare("")).await));
    refused.push((
        "key-invalid",
        send(&limited, with_key("s3cret, b", "")).await,
    ));
    let long = keyed(SECRET, "s3cret and too long");
    refused.push(("body-too-large", send(&limited, long).await));
    let (source, broken) = frames();
    source.send(data(SECRET)).unwrap();
    source
        .send(Err(io::ErrorKind::ConnectionReset.into()))
        .unwrap();
    let broken = send(&limited, keyed(SECRET, broken)).await;
    refused.push(("body-unreadable", broken));

    let (slow, fixture) = new(|layer| layer.body_timeout(Duration::from_secs(3)));
    let (_source, never) = frames();
    let client = spawn(&slow, keyed(SECRET, never));
    let waits = fixture.clock.sleeper_within(Duration::from_secs(3));
    patiently("the body is waited for", waits).await;
    fixture.clock.advance(Duration::from_secs(3));
    let late = patiently("it is given up", client).await.unwrap();
    refused.push(("body-timeout", late));

    let fixture = Fixture::new();
    let scoped = shop(&fixture, set(fixture.scoped()));
    refused.push(("caller-unknown", send(&scoped, tea()).await));

    let (reusing, _) = new(|layer| layer);
    send(&reusing, tea()).await;
    let rum = keyed(SECRET, "s3cret rum");
    refused.push(("key-reused", send(&reusing, rum).await));

    let fixture = Fixture::new();
    let layer = set(fixture.layer().on_running(OnRunning::Reject).max_running(1));
    let (gate, running) = gated(&fixture, layer);
    let first = spawn(&running, tea());
    gate.runs().await;
    refused.push(("request-running", send(&running, tea()).await));
    let other = keyed("s3cret too", "");
    refused.push(("too-many-running", send(&running, other).await));
    gate.go_on.notify_one();
    patiently("the first response", first).await.unwrap();

    let (rejecting, _) = new(|layer| {
        layer
            .on_duplicate(OnDuplicate::Reject)
            .ttl(Duration::from_mins(1))
    });
    let (forgetting, _) = new(|layer| layer.max_response_bytes(1));
    for (code, shop) in [("request-repeated", rejecting), ("answer-lost", forgetting)] {
        send(&shop, tea()).await;
        refused.push((code, send(&shop, tea()).await));
    }
    let (exceeding, _) = new(|layer| layer.quota(|_, _| Err(Duration::from_millis(6_001))));
    refused.push(("quota-exceeded", send(&exceeding, tea()).await));

    let fixture = Fixture::new();
    let unknown = fixture.orders(set(fixture.layer()), |_| {
        let mut response = axum::response::Response::new(Body::from(SECRET));
        response.extensions_mut().insert(KeyVerdict::Unknown);
        response
    });
    send(&unknown, tea()).await;
    refused.push(("outcome-unknown", send(&unknown, tea()).await));

    let store = Faulty::new(MemoryStore::new());
    store.fail(StoreOperation::Claim, [Fault::Refused]);
    let layer = IdempotencyLayer::public(Engine::new(store), "shop.api");
    let down = shop(&Fixture::new(), set(layer));
    refused.push(("unavailable", send(&down, tea()).await));

    let fixture = Fixture::new();
    let twice = shop(&fixture, set(fixture.layer())).layer(fixture.layer());
    refused.push(("misconfigured", send(&twice, tea()).await));
    refused
}

fn presets() -> [Refusals; 4] {
    [
        Refusals::stripe(),
        Refusals::acp(),
        Refusals::ucp(),
        Refusals::iceberg(),
    ]
}

#[tokio::test]
async fn every_refusal_of_a_layer_has_its_words_and_nothing_of_the_request() {
    let with_hint = |layer: IdempotencyLayer| layer.status_policy(StatusPolicy::stripe());
    let problems = refused(with_hint).await;
    let codes: Vec<_> = problems.iter().map(|(code, _)| *code).collect();
    let made: Vec<_> = problems
        .iter()
        .map(|(_, problem)| problem.problem().1)
        .collect();
    assert_eq!(made, codes);
    for (code, problem) in &problems {
        let sent = format!("{problem:?} {}", problem.said().1);
        assert!(!sent.contains(SECRET), "{code}: {sent}");
    }
    for refusals in presets() {
        let worded = refused(|layer| with_hint(layer).refusals(refusals.clone())).await;
        for ((code, answer), (_, problem)) in worded.iter().zip(&problems) {
            let row = format!("{code} of {refusals}");
            assert_eq!(
                answer.header("content-type"),
                Some("application/json"),
                "{row}"
            );
            for kept in ["retry-after", "connection", "stripe-should-retry"] {
                assert_eq!(answer.header(kept), problem.header(kept), "{kept} of {row}");
            }
            assert_eq!(answer.header("link"), None, "{row}");
            let detail = problem.json()["detail"].to_string();
            let body = answer.json().to_string();
            assert!(body.contains(&detail), "{row}: {body}");
            assert!(!answer.is_replayed(), "{row}");
            let sent = format!("{:?} {body}", answer.headers);
            assert!(!sent.contains(SECRET), "{row}: {sent}");
        }
    }
}

#[tokio::test]
async fn a_row_changes_the_refusals_of_one_code() {
    let row = Refusal::new(StatusCode::SERVICE_UNAVAILABLE)
        .message("Later.")
        .retry_after(Duration::from_secs(9))
        .header("x-reason", "late");
    let refusals = Refusals::problems()
        .on("body-timeout", row.clone())
        .on("key-missing", row);
    let plain = refused(|layer| layer).await;
    let worded = refused(|layer| layer.refusals(refusals.clone())).await;
    for ((code, answer), (_, problem)) in worded.iter().zip(&plain) {
        let mut expected = problem.json();
        // Random.
        expected["instance"] = answer.json()["instance"].clone();
        if ["body-timeout", "key-missing"].contains(code) {
            expected["status"] = 503.into();
            expected["detail"] = "Later.".into();
            assert_eq!(answer.header("retry-after"), Some("9"));
            assert_eq!(answer.header("x-reason"), Some("late"));
        } else {
            assert_eq!(answer.headers, problem.headers, "{code}");
        }
        assert_eq!(answer.json(), expected, "{code}");
        assert_eq!(answer.status.as_u16(), expected["status"], "{code}");
        assert_eq!(
            answer.header("connection"),
            problem.header("connection"),
            "{code}"
        );
        assert_eq!(answer.header("link"), problem.header("link"), "{code}");
    }
}

/// Whichever is set first.
#[tokio::test]
async fn a_closure_takes_precedence_and_gets_the_problem() {
    let say = |problem: idem_runtime::http::Problem| {
        let mut response = http::Response::new(format!("{} {}", problem.code(), problem.status()));
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response
    };
    let words = || Refusals::acp().on("key-missing", Refusal::new(StatusCode::CONFLICT).code("b"));
    let layers: [&dyn Fn(IdempotencyLayer) -> IdempotencyLayer; 3] = [
        &|layer| layer.refusals(words()).on_problem(say),
        &|layer| layer.on_problem(say).refusals(words()),
        &|layer| {
            layer
                .on_problem_with(move |problem, _| say(problem))
                .refusals(words())
        },
    ];
    for layer in layers {
        let (_, shop) = numbered(layer);
        let refused = send(&shop, bare("")).await;
        assert_eq!(refused.said(), (418, "key-missing 400 Bad Request"));
    }
}

/// In its own words, and in those of a closure. The outer layer stores every other response.
#[tokio::test]
async fn an_outer_layer_stores_no_refusal_of_the_inner_one() {
    let words = Refusals::json(json!("{code}"))
        .on("caller-unknown", Refusal::new(StatusCode::CONFLICT))
        .on(
            "body-too-large",
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR),
        );
    let say = |problem: idem_runtime::http::Problem| {
        let mut response = http::Response::new(format!("{:?}", problem.code()));
        *response.status_mut() = problem.status();
        response
    };
    let layers: [(&dyn Fn(IdempotencyLayer) -> IdempotencyLayer, _); 2] = [
        (&|layer| layer.refusals(words.clone()), [409, 500]),
        (&|layer| layer.on_problem(say), [403, 413]),
    ];
    for (set, [unknown, too_large]) in layers {
        let fixture = Fixture::new();
        let inner = set(fixture.scoped().max_body_bytes(3));
        let outer = IdempotencyLayer::public(&fixture.engine, "gateway");
        let outer = outer.status_policy(StatusPolicy::draft());
        let shop = fixture.orders(inner, |run| run.to_string()).layer(outer);
        let long = || of_tenant("acme", with_key("\"long\"", "four"));
        for (request, status, code) in [
            (order(""), unknown, "\"caller-unknown\""),
            (order(""), unknown, "\"caller-unknown\""),
            (long(), too_large, "\"body-too-large\""),
            (long(), too_large, "\"body-too-large\""),
        ] {
            let refused = send(&shop, request).await;
            assert_eq!(refused.said(), (status, code));
            assert!(!refused.is_replayed());
        }
        let known = ("known", of_tenant("acme", order("")), ran("1"));
        fixture.walk(&shop, [known]).await;
    }
}

/// The `Link` and `type` lead to the service's own documentation.
#[tokio::test]
async fn a_template_links_to_the_documentation_of_the_service() {
    let (_, shop) = numbered(|layer| {
        let layer = layer.documented_at("https://api.example.com/errors");
        layer.refusals(Refusals::json(json!(["{type}", "{instance}"])))
    });
    let refused = send(&shop, bare("")).await;
    let link = "<https://api.example.com/errors>; rel=\"describedby\"; type=\"text/html\"";
    assert_eq!(refused.header("link"), Some(link));
    let body = refused.json();
    assert_eq!(body[0], "https://api.example.com/errors#key-missing");
    assert!(body[1].as_str().unwrap().starts_with("urn:uuid:"), "{body}");
}
