//! A request whose outcome is unknown, settled: by an operator, and by a reconcile hook.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use idem_harness::RedisServer;
use idem_runtime::http::{IdempotencyKey, IdempotencyLayer, StatusPolicy};
use idem_runtime::key::redacted;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Engine, ErrorKind, Reconciled, admin::EntryState, context};
use tokio::sync::Notify;

use crate::client::{Fixture, leave, of_tenant, order, patiently, routed, send, spawn};

/// The text of the usual key.
const NAME: &str = "8e03978e-40d5-43dd-bc93-6894a57f9324";

/// A router whose handler acts and then answers 500, and afterwards 200.
fn unlucky(fixture: &Fixture, layer: IdempotencyLayer) -> Router {
    fixture.orders(layer, |run| {
        let status = if run == 1 {
            StatusCode::INTERNAL_SERVER_ERROR
        } else {
            StatusCode::OK
        };
        (status, run.to_string())
    })
}

/// The response that the client has missed.
fn paid() -> Response<&'static str> {
    let response = Response::builder()
        .status(201)
        .header("location", "/payments/7")
        .header("set-cookie", "operator=1")
        .header("x-node", "fixture")
        .header("content-length", "999");
    response.body("{\"id\":7}").unwrap()
}

#[tokio::test]
async fn an_operator_recognizes_a_request_by_its_label() {
    let fixture = Fixture::new();
    let layer = fixture.layer().label(|request| {
        let key = request.extensions.get::<IdempotencyKey>()?;
        Some(format!(
            "{} {}",
            request.uri.path(),
            redacted(key.as_str(), 4)
        ))
    });
    let shop = unlucky(&fixture, layer.clone());
    assert_eq!(send(&shop, order("tea")).await.status, 500);
    let entry = layer.entry(None, NAME).await.unwrap().unwrap();
    assert_eq!(entry.label().as_deref(), Some("/orders …9324"));
    // It stays with the attempts.
    entry.reset().await.unwrap();
    assert_eq!(send(&shop, order("tea")).await.status, 200);
    let entry = layer.entry(None, NAME).await.unwrap().unwrap();
    assert_eq!(entry.label().as_deref(), Some("/orders …9324"));
}

#[tokio::test]
async fn an_operator_writes_the_response_of_a_request_that_was_done() {
    let fixture = Fixture::new();
    let layer = fixture.layer().store_header("x-node");
    let layer = layer.never_store(["x-node"]);
    let shop = unlucky(&fixture, layer.clone());
    assert_eq!(send(&shop, order("tea")).await.status, 500);
    let unknown = send(&shop, order("tea")).await;
    assert_eq!(unknown.problem(), (500, "outcome-unknown"));

    let entry = layer.entry(None, NAME).await.unwrap().unwrap();
    assert_eq!(entry.state(), EntryState::Unknown);
    entry.resolve_response(paid()).await.unwrap();

    for _ in 0..2 {
        let again = send(&shop, order("tea")).await;
        assert!(again.is_replayed());
        assert_eq!(again.said(), (201, "{\"id\":7}"));
        assert_eq!(again.headers["location"], "/payments/7");
        assert_eq!(again.headers["content-length"], "8");
        assert!(!again.headers.contains_key("set-cookie"));
        assert!(!again.headers.contains_key("x-node"));
    }
    // It remembers the request.
    let other = send(&shop, order("rum")).await;
    assert_eq!(other.problem(), (422, "key-reused"));
    assert_eq!(fixture.runs(), 1);
    assert_eq!(fixture.events.count("resolved value"), 1);
}

/// The operator's program, the server and the next server have one store and nothing else in common.
#[tokio::test]
async fn a_resolution_is_replayed_by_every_server() {
    let redis = RedisServer::start();
    let layer = async || {
        let store = RedisStore::connect(&redis.url()).await.unwrap();
        IdempotencyLayer::public(Engine::new(store), "shop.api")
    };
    let fixture = Fixture::new();
    let shop = unlucky(&fixture, layer().await);
    assert_eq!(send(&shop, order("tea")).await.status, 500);
    let entry = layer().await.entry(None, NAME).await.unwrap().unwrap();
    entry.resolve_response(paid()).await.unwrap();
    for shop in [shop, unlucky(&fixture, layer().await)] {
        let again = send(&shop, order("tea")).await;
        assert!(again.is_replayed());
        assert_eq!(again.said(), (201, "{\"id\":7}"));
    }
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn a_settled_record_is_corrected_only_by_its_reader() {
    let fixture = Fixture::new();
    let layer = fixture.layer();
    let shop = unlucky(&fixture, layer.clone());
    send(&shop, order("")).await;
    let entry = async || layer.entry(None, NAME).await.unwrap().unwrap();
    let (seen, too_late) = (entry().await, entry().await);
    seen.resolve_response(paid()).await.unwrap();
    let error = too_late.resolve_response(Response::new("other")).await;
    assert_eq!(*error.unwrap_err().kind(), ErrorKind::Changed);
    assert_eq!(send(&shop, order("")).await.status, 201);
    let by_hand = entry().await;
    assert!(by_hand.is_by_hand());
    by_hand
        .resolve_response(Response::new("corrected"))
        .await
        .unwrap();
    let corrected = send(&shop, order("")).await;
    assert_eq!(corrected.said(), (200, "corrected"));
}

#[tokio::test]
async fn the_digest_of_an_event_leads_to_the_record_too() {
    let fixture = Fixture::new();
    let digests = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&digests);
    let handler = post(move || async move {
        told.lock().unwrap().push(context().key().to_string());
        StatusCode::BAD_GATEWAY
    });
    let layer = fixture.layer().store_header("x-node");
    let shop = routed(handler, layer);
    send(&shop, order("")).await;
    let digest = digests.lock().unwrap()[0].clone();
    let entry = fixture.engine.entry("shop.api", &digest).await;
    let entry = entry.unwrap().unwrap();
    entry.resolve_response(paid()).await.unwrap();
    let again = send(&shop, order("")).await;
    assert!(again.is_replayed());
    assert_eq!(again.headers["location"], "/payments/7");
    // The entry knows nothing of the layer's list.
    assert!(!again.headers.contains_key("x-node"));
}

#[tokio::test]
async fn a_refusal_is_a_response_too_and_lives_as_long_as_one() {
    let fixture = Fixture::new();
    let layer = fixture
        .layer()
        .ttl(Duration::from_mins(2))
        .error_ttl(Duration::from_mins(3));
    let shop = unlucky(&fixture, layer.clone());
    send(&shop, order("")).await;
    let entry = layer.entry(None, NAME).await.unwrap().unwrap();
    let refused = Response::builder().status(402).body("no funds").unwrap();
    entry.resolve_response(refused).await.unwrap();
    assert_eq!(fixture.events.count("resolved error"), 1);
    fixture.clock.advance(Duration::from_secs(179));
    let again = send(&shop, order("")).await;
    assert!(again.is_replayed());
    assert_eq!(again.said(), (402, "no funds"));
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(send(&shop, order("")).await.body, "2");
}

#[tokio::test]
async fn an_answer_that_is_not_stored_changes_nothing() {
    let fixture = Fixture::new();
    let layer = fixture.layer().max_response_bytes(100);
    let shop = unlucky(&fixture, layer.clone());
    send(&shop, order("")).await;
    let upgrade = Response::builder().status(101).body("").unwrap();
    let large = Response::new("a page of more than a hundred bytes ".repeat(4));
    for response in [upgrade.map(str::to_owned), large] {
        let entry = layer.entry(None, NAME).await.unwrap().unwrap();
        let error = entry.resolve_response(response).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NotStored, "{error}");
    }
    let unknown = send(&shop, order("")).await;
    assert_eq!(unknown.problem(), (500, "outcome-unknown"));
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn a_key_belongs_to_its_scope() {
    let fixture = Fixture::new();
    let layer = fixture.scoped();
    let shop = unlucky(&fixture, layer.clone());
    // Longer than a scope is used as it is, too.
    let long = "t".repeat(600);
    for tenant in ["acme", &long] {
        send(&shop, of_tenant(tenant, order(""))).await;
        assert!(layer.entry(Some(tenant), NAME).await.unwrap().is_some());
    }
    assert!(layer.entry(Some("other"), NAME).await.unwrap().is_none());
    assert!(layer.entry(Some("acme"), "other").await.unwrap().is_none());
    for (layer, scope) in [
        (&layer, None),
        (&layer, Some(" ")),
        (&fixture.layer(), Some("acme")),
    ] {
        let error = layer.entry(scope, NAME).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidKey);
    }
}

/// The requests that a hook received.
type Asked = Arc<Mutex<Vec<Request<Bytes>>>>;

/// A router behind a layer whose hook returns this.
fn reconciled(
    fixture: &Fixture,
    layer: IdempotencyLayer,
    found: fn() -> Reconciled<Response<&'static str>>,
) -> (Asked, Router) {
    let asked = Asked::default();
    let seen = Arc::clone(&asked);
    let layer = layer.reconcile(move |request, _| {
        seen.lock().unwrap().push(request);
        async move { found() }
    });
    (asked, unlucky(fixture, layer))
}

#[tokio::test]
async fn a_hook_that_finds_the_effect_gives_its_response() {
    let fixture = Fixture::new();
    let layer = fixture.layer().store_header("x-node");
    let layer = layer.never_store(["x-node"]);
    let (asked, shop) = reconciled(&fixture, layer, || Reconciled::Landed(paid()));
    assert_eq!(send(&shop, order("tea")).await.status, 500);
    assert_eq!(asked.lock().unwrap().len(), 0, "nothing is to be found out");

    let found = send(&shop, order("tea")).await;
    assert_eq!(found.said(), (201, "{\"id\":7}"));
    assert!(found.is_replayed(), "its handler did not run");
    assert_eq!(found.headers["set-cookie"], "operator=1");
    let again = send(&shop, order("tea")).await;
    assert!(again.is_replayed());
    assert_eq!((again.status, &again.body), (found.status, &found.body));
    assert!(!again.headers.contains_key("set-cookie") && !again.headers.contains_key("x-node"));
    assert_eq!(fixture.runs(), 1);

    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 1);
    assert_eq!(
        (asked[0].uri().path(), asked[0].method().as_str()),
        ("/orders", "POST")
    );
    assert_eq!(asked[0].body(), "tea");
    let key = asked[0].extensions().get::<IdempotencyKey>().unwrap();
    assert_eq!(key.as_str(), NAME);
}

#[tokio::test]
async fn a_hook_that_finds_nothing_lets_the_handler_run() {
    let fixture = Fixture::new();
    let (asked, shop) = reconciled(&fixture, fixture.layer(), || Reconciled::NotLanded);
    send(&shop, order("")).await;
    let done = send(&shop, order("")).await;
    assert_eq!(done.said(), (200, "2"));
    assert!(!done.is_replayed());
    assert!(send(&shop, order("")).await.is_replayed());
    assert_eq!((fixture.runs(), asked.lock().unwrap().len()), (2, 1));
}

#[tokio::test]
async fn a_hook_that_cannot_say_is_asked_again() {
    let found: [fn() -> Reconciled<Response<&'static str>>; 2] =
        [|| Reconciled::Unknown, || panic!("the provider is down")];
    for found in found {
        let fixture = Fixture::new();
        let (asked, shop) = reconciled(&fixture, fixture.layer(), found);
        send(&shop, order("")).await;
        for times in 1..=2 {
            let unknown = send(&shop, order("")).await;
            assert_eq!(unknown.problem(), (500, "outcome-unknown"));
            let document: serde_json::Value = serde_json::from_slice(&unknown.body).unwrap();
            assert_eq!(document["retryable"], true);
            assert_eq!(asked.lock().unwrap().len(), times);
        }
        assert_eq!(fixture.runs(), 1);
    }
}

#[tokio::test]
async fn a_hook_is_not_asked_about_another_request() {
    let fixture = Fixture::new();
    let (asked, shop) = reconciled(&fixture, fixture.layer(), || Reconciled::Landed(paid()));
    send(&shop, order("tea")).await;
    let other = send(&shop, order("rum")).await;
    assert_eq!(other.problem(), (422, "key-reused"));
    assert_eq!(asked.lock().unwrap().len(), 0);
}

/// Under any policy, and whatever the hook found: it is the answer.
#[tokio::test]
async fn a_reconciled_response_is_stored_with_any_status() {
    let fixture = Fixture::new();
    let layer = fixture.layer().status_policy(StatusPolicy::careful());
    let (_, shop) = reconciled(&fixture, layer, || {
        Reconciled::Landed(
            Response::builder()
                .status(503)
                .body("it was refused")
                .unwrap(),
        )
    });
    send(&shop, order("")).await;
    for _ in 0..2 {
        let again = send(&shop, order("")).await;
        assert_eq!(again.said(), (503, "it was refused"));
        assert!(again.is_replayed());
    }
    assert_eq!(fixture.runs(), 1);
}

/// A client that leaves while the hook runs leaves the outcome as it was.
#[tokio::test]
async fn a_hook_goes_on_without_its_client() {
    let fixture = Fixture::new();
    let (started, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (Arc::clone(&started), Arc::clone(&go_on));
    let layer = fixture.layer().reconcile(move |_, _| {
        let (tell, wait) = (Arc::clone(&tell), Arc::clone(&wait));
        async move {
            tell.notify_one();
            wait.notified().await;
            Reconciled::Landed(paid())
        }
    });
    let shop = unlucky(&fixture, layer);
    send(&shop, order("")).await;
    let client = spawn(&shop, order(""));
    patiently("the hook is asked", started.notified()).await;
    leave(client).await;
    go_on.notify_one();
    fixture.saw("completed value", 1).await;
    let again = send(&shop, order(Body::empty())).await;
    assert!(again.is_replayed());
    assert_eq!(again.status, 201);
    assert_eq!(fixture.runs(), 1);
}
