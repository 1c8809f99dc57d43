//! A request whose outcome is unknown, settled: by an operator, and by a reconcile hook.

use std::num::NonZeroU16;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use idem_runtime::admin::{Entry, EntryState};
use idem_runtime::http::{IdempotencyKey, IdempotencyLayer, StatusPolicy};
use idem_runtime::key::redacted;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Engine, ErrorKind, OnRunning, Reconciled};

use crate::client::{
    Fixture, REUSED, RUNNING, Ran, Refused, Replayed, Seen, UNKNOWN, gated, of_tenant, order, ran,
    replayed, send, spawn,
};

/// The text of the usual key.
const NAME: &str = "8e03978e-40d5-43dd-bc93-6894a57f9324";

/// A router whose handler acts and then answers 500, and afterwards 200.
fn unlucky(fixture: &Fixture, layer: IdempotencyLayer) -> Router {
    fixture.orders(layer, |run| match run {
        1 => (StatusCode::INTERNAL_SERVER_ERROR, "1".to_owned()),
        _ => (StatusCode::OK, run.to_string()),
    })
}

/// The first request of such a router, whose outcome is then unknown.
async fn fails(fixture: &Fixture, shop: &Router) {
    fixture
        .walk(shop, [("first", order("tea"), Ran(500, "1"))])
        .await;
}

/// The entry of the usual key.
async fn entry_of(layer: &IdempotencyLayer) -> Entry {
    layer.entry(None, NAME).await.unwrap().unwrap()
}

fn paid() -> Response<&'static str> {
    let response = Response::builder()
        .status(201)
        .header("location", "/payments/7")
        .header("set-cookie", "operator=1")
        .header("x-node", "fixture")
        .header("content-length", "999");
    response.body("{\"id\":7}").unwrap()
}

const PAID: Seen = Replayed(201, "{\"id\":7}");

#[tokio::test]
async fn an_operator_writes_the_response_of_a_request_that_was_done() {
    let fixture = Fixture::new();
    let layer = fixture.layer().store_header("x-node");
    let layer = layer.never_store(["x-node"]).label(|request| {
        let key = request.extensions.get::<IdempotencyKey>()?;
        let key = redacted(key.as_str(), 4);
        Some(format!("{} {key}", request.uri.path()))
    });
    let shop = unlucky(&fixture, layer.clone());
    fails(&fixture, &shop).await;
    let unknown = ("unknown", order("tea"), UNKNOWN);
    fixture.walk(&shop, [unknown]).await;
    let entry = entry_of(&layer).await;
    assert_eq!(entry.state(), EntryState::Unknown);
    assert_eq!(entry.label().as_deref(), Some("/orders …9324"));
    entry.resolve_response(paid()).await.unwrap();
    // The record remembers the request.
    let rows = [
        ("resolved", order("tea"), PAID),
        ("another", order("rum"), REUSED),
    ];
    fixture.walk(&shop, rows).await;
    let again = send(&shop, order("tea")).await;
    assert_eq!(again.headers["location"], "/payments/7");
    assert_eq!(again.headers["content-length"], "8");
    assert_eq!(again.header("set-cookie"), None);
    assert_eq!(again.header("x-node"), None);
    assert_eq!(fixture.events.count("resolved value"), 1);
    // As the command `idem show` prints it.
    let stored = entry_of(&layer).await.stored_answer().unwrap();
    let response = stored.response().expect("a response");
    assert_eq!(
        (response.status(), &response.body()[..]),
        (StatusCode::CREATED, &b"{\"id\":7}"[..])
    );
    assert_eq!(response.headers()["location"], "/payments/7");
}

#[tokio::test]
async fn an_answer_that_is_not_stored_changes_nothing() {
    let fixture = Fixture::new();
    let layer = fixture.layer().max_response_bytes(100);
    let shop = unlucky(&fixture, layer.clone());
    fails(&fixture, &shop).await;
    let upgrade = Response::builder().status(101).body("").unwrap();
    let large = Response::new("a page of more than a hundred bytes ".repeat(4));
    for response in [upgrade.map(str::to_owned), large] {
        let refused = entry_of(&layer).await.resolve_response(response).await;
        let error = refused.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NotStored, "{error}");
    }
    fixture
        .walk(&shop, [("unknown", order("tea"), UNKNOWN)])
        .await;
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

type Found = fn() -> Reconciled<Response<&'static str>>;

type Asked = Arc<Mutex<Vec<Request<Bytes>>>>;

/// A router behind a layer whose hook returns this.
fn reconciled(fixture: &Fixture, layer: IdempotencyLayer, found: Found) -> (Asked, Router) {
    let asked = Asked::default();
    let seen = Arc::clone(&asked);
    let layer = layer.reconcile(move |request, _| {
        seen.lock().unwrap().push(request);
        async move { found() }
    });
    (asked, unlucky(fixture, layer))
}

/// The hook is asked neither about a first request nor another one.
#[tokio::test]
async fn a_hook_that_finds_the_effect_gives_its_response() {
    let fixture = Fixture::new();
    let layer = fixture.layer().store_header("x-node");
    let layer = layer.never_store(["x-node"]);
    let (asked, shop) = reconciled(&fixture, layer, || Reconciled::Landed(paid()));
    fails(&fixture, &shop).await;
    fixture
        .walk(&shop, [("another", order("rum"), REUSED)])
        .await;
    assert_eq!(asked.lock().unwrap().len(), 0, "nothing is to be found out");

    let found = send(&shop, order("tea")).await;
    assert_eq!(found.said(), (201, "{\"id\":7}"));
    assert!(found.is_replayed(), "its handler did not run");
    assert_eq!(found.headers["set-cookie"], "operator=1");
    fixture.walk(&shop, [("again", order("tea"), PAID)]).await;
    let again = send(&shop, order("tea")).await;
    assert_eq!(again.header("set-cookie"), None);
    assert_eq!(again.header("x-node"), None);
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

/// Under any policy, whatever the hook found is the answer.
#[tokio::test]
async fn a_hook_decides_what_a_repeat_gets_and_whether_it_is_asked_again() {
    let refused: Found = || {
        let response = Response::builder().status(503).body("it was refused");
        Reconciled::Landed(response.unwrap())
    };
    let nothing: Found = || Reconciled::NotLanded;
    let refusal = Replayed(503, "it was refused");
    for (row, found, repeats, queries) in [
        ("it was refused", refused, [refusal, refusal], 1),
        ("nothing was done", nothing, [ran("2"), replayed("2")], 1),
        ("unknown", || Reconciled::Unknown, [UNKNOWN, UNKNOWN], 2),
        (
            "a panic",
            || panic!("the provider is down"),
            [UNKNOWN, UNKNOWN],
            2,
        ),
    ] {
        let fixture = Fixture::new();
        let layer = fixture.layer().status_policy(StatusPolicy::careful());
        let (asked, shop) = reconciled(&fixture, layer, found);
        fails(&fixture, &shop).await;
        for repeat in repeats {
            fixture.walk(&shop, [(row, order("tea"), repeat)]).await;
        }
        assert_eq!(asked.lock().unwrap().len(), queries, "{row}");
        if queries == 2 {
            let unknown = send(&shop, order("tea")).await;
            assert_eq!(unknown.json()["retryable"], true, "{row}");
        }
    }
}

/// The server of the first request is killed: its lease is not renewed, and runs out.
#[tokio::test]
async fn a_request_whose_server_was_killed_is_run_again_or_refused_or_found() {
    let exhausted = Refused(500, "attempts-exhausted");
    let found = replayed("found: tea");
    for (attempts, has_hook, [seen, again]) in [
        (3, false, [ran("2"), replayed("2")]),
        (1, false, [exhausted, exhausted]),
        (3, true, [found, found]),
        (1, true, [found, found]),
    ] {
        let row = format!("{attempts} attempts, a hook: {has_hook}");
        let fixture = Fixture::new();
        let store = MemoryStore::builder().clock(fixture.clock.clone()).build();
        let server = || {
            let engine = Engine::builder(store.clone()).clock(fixture.clock.clone());
            let engine = engine.observer(fixture.events.clone()).build().unwrap();
            IdempotencyLayer::public(engine, "shop.api")
                .lease(Duration::from_mins(1))
                .max_run(Duration::ZERO)
                .max_attempts(NonZeroU16::new(attempts))
                .on_running(OnRunning::Reject)
        };
        let (gate, killed) = gated(&fixture, server());
        let client = spawn(&killed, order("tea"));
        gate.runs().await;
        let next = if has_hook {
            server().reconcile(|request, _| async move {
                let found = [b"found: ", &request.body()[..]].concat();
                Reconciled::Landed(Response::new(found))
            })
        } else {
            server()
        };
        let next = fixture.orders(next, |run| run.to_string());
        fixture.walk(&next, [(&row, order("tea"), RUNNING)]).await;
        fixture.clock.advance(Duration::from_mins(1));
        let rows = [(&row, order("tea"), seen), (&row, order("tea"), again)];
        fixture.walk(&next, rows).await;
        assert_eq!(
            fixture.events.count("landed"),
            usize::from(has_hook),
            "{row}"
        );
        client.abort();
    }
}
