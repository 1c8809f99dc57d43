//! The refusals of idem: nothing is run, and nothing stored.

use std::io;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::any;
use http::{Method, StatusCode};
use idem_runtime::http::{IdempotencyLayer, KeyRules};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Engine, OnOutage, OnRunning};
use idem_tests::faulty::{Fault, Faulty, StoreOperation};
use std::time::Duration;

use crate::client::{
    Answer, Fixture, call, data, frames, gated, keyed, of_tenant, order, patiently, send, spawn,
    with_key,
};

#[tokio::test]
async fn a_request_without_a_key_is_refused_unless_keys_are_optional() {
    let fixture = Fixture::new();
    let bare = || Request::post("/orders").body(Body::empty()).unwrap();
    let layer = fixture.layer().documented_at("https://shop.test/keys");
    let strict = fixture.orders(layer, |run| run.to_string());
    let refused = send(&strict, bare()).await;
    assert_eq!(refused.problem(), (400, "key-missing"));
    assert_eq!(
        refused.headers["link"],
        "<https://shop.test/keys>; rel=\"describedby\"; type=\"text/html\""
    );
    assert_eq!(fixture.runs(), 0);
    let lenient = fixture.orders(fixture.layer().optional(), |run| run.to_string());
    assert_eq!(send(&lenient, bare()).await.body, "1");
    assert_eq!(send(&lenient, bare()).await.body, "2");
    assert_eq!(fixture.events.all(), [""; 0], "the store was not asked");
    // A key that is there must be right all the same.
    let refused = send(&lenient, with_key(b"a, b", "")).await;
    assert_eq!(refused.problem(), (400, "key-invalid"));
}

#[tokio::test]
async fn a_key_that_is_not_one_string_is_refused() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer(), |run| run.to_string());
    let long = format!("\"{}\"", "k".repeat(256));
    let keys: [&[u8]; 9] = [
        b"",
        b"\"\"",
        b"a, b",
        b"\"a\", \"b\"",
        b"\"a\"b",
        b"\"a",
        b"\"\xe9\"",
        b"\"a\tb\"",
        long.as_bytes(),
    ];
    for key in keys {
        let refused = send(&shop, with_key(key, "")).await;
        assert_eq!(refused.problem(), (400, "key-invalid"), "{key:?}");
    }
    let twice = keyed("/orders").header("idempotency-key", "\"second\"");
    let refused = send(&shop, twice.body(Body::empty()).unwrap()).await;
    assert_eq!(refused.problem(), (400, "key-invalid"));
    assert_eq!(fixture.runs(), 0);
    assert_eq!(fixture.events.all(), [""; 0], "the store was not asked");
}

/// Most clients send no quotation marks, which the draft requires.
#[tokio::test]
async fn a_key_is_the_same_with_and_without_quotation_marks() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer(), |run| run.to_string());
    assert_eq!(send(&shop, with_key(b"bare", "")).await.status, 200);
    assert!(send(&shop, with_key(b"\"bare\"", "")).await.is_replayed());
    assert_eq!(fixture.runs(), 1);
    let strict = KeyRules::default().bare(false);
    let shop = fixture.orders(fixture.layer().keys(strict), |run| run.to_string());
    let refused = send(&shop, with_key(b"bare", "")).await;
    assert_eq!(refused.problem(), (400, "key-invalid"));
    assert!(send(&shop, with_key(b"\"bare\"", "")).await.is_replayed());
}

#[tokio::test]
async fn an_unknown_caller_has_no_keys() {
    let fixture = Fixture::new();
    let layer = fixture.scoped();
    let shop = fixture.orders(layer, |run| run.to_string());
    let blank = of_tenant(" ", order(""));
    for request in [order(""), blank] {
        let refused = send(&shop, request).await;
        assert_eq!(refused.problem(), (403, "caller-unknown"));
    }
    assert_eq!(fixture.runs(), 0);
}

#[tokio::test]
async fn the_same_key_with_another_request_is_refused() {
    let fixture = Fixture::new();
    let counter = fixture.clone();
    let handler = any(move || async move { counter.run().to_string() });
    let shop = Router::new()
        .fallback_service(handler)
        .layer(fixture.layer());
    let of = |method: Method, uri: &str, body: &'static str| {
        let request = keyed(uri).method(method);
        request.body(Body::from(body)).unwrap()
    };
    let post = Method::POST;
    let first = send(&shop, of(post.clone(), "/orders?a=1", "tea")).await;
    assert_eq!(first.status, 200);
    let others = [
        of(Method::PATCH, "/orders?a=1", "tea"),
        of(post.clone(), "/order?s=a=1", "tea"),
        of(post.clone(), "/orders?a=2", "tea"),
        of(post.clone(), "/orders?", "tea"),
        of(post.clone(), "/orders", "?a=1tea"),
        of(post.clone(), "/orders?a=1", "tea "),
        of(post.clone(), "/orders?a=1te", "a"),
        of(post.clone(), "/orders?a=1", ""),
    ];
    for other in others {
        let what = format!("{} {}", other.method(), other.uri());
        let refused = send(&shop, other).await;
        assert_eq!(refused.problem(), (422, "key-reused"), "{what}");
    }
    assert_eq!(fixture.runs(), 1);
    assert!(
        send(&shop, of(post, "/orders?a=1", "tea"))
            .await
            .is_replayed()
    );
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_before_anything_is_claimed() {
    let fixture = Fixture::new();
    let layer = fixture.layer().max_body_bytes(10);
    let shop = fixture.orders(layer, |run| run.to_string());
    let too_large = (413, "body-too-large");
    // By its declared length: this body never comes.
    let (_never, body) = frames();
    let announced = keyed("/orders").header("content-length", "11").body(body);
    assert_eq!(send(&shop, announced.unwrap()).await.problem(), too_large);
    // By its size.
    assert_eq!(send(&shop, order("12345678901")).await.problem(), too_large);
    // By what came, before its end.
    let (source, body) = frames();
    for _ in 0..11 {
        source.send(data("1")).unwrap();
    }
    assert_eq!(send(&shop, order(body)).await.problem(), too_large);
    assert_eq!(fixture.events.all(), [""; 0], "the store was not asked");
    assert_eq!(send(&shop, order("1234567890")).await.body, "1");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_refused_and_can_be_sent_again() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer(), |run| run.to_string());
    let (source, body) = frames();
    source.send(data("te")).unwrap();
    let broken = io::Error::from(io::ErrorKind::ConnectionReset);
    source.send(Err(broken)).unwrap();
    let refused = send(&shop, order(body)).await;
    assert_eq!(refused.problem(), (400, "body-unreadable"));
    assert_eq!(fixture.runs(), 0);
    assert_eq!(send(&shop, order("tea")).await.body, "1");
}

/// A handler that answers the first request with this status, and others with 201.
async fn after(status: StatusCode) -> Answer {
    let fixture = Fixture::new();
    let respond = move |run| {
        if run == 1 {
            status
        } else {
            StatusCode::CREATED
        }
    };
    let shop = fixture.orders(fixture.layer(), respond);
    assert_eq!(send(&shop, order("wrong")).await.status, status);
    send(&shop, order("corrected")).await
}

#[tokio::test]
async fn a_request_that_was_refused_may_be_corrected_under_its_key() {
    for status in [400, 404, 413, 415, 422, 429] {
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(after(status).await.status, 201, "{status}");
    }
}

#[tokio::test]
async fn a_request_that_was_not_refused_is_to_be_repeated_as_it_was() {
    for status in [408, 503] {
        let status = StatusCode::from_u16(status).unwrap();
        let corrected = after(status).await;
        assert_eq!(corrected.problem(), (422, "key-reused"), "{status}");
    }
}

#[tokio::test]
async fn a_repeat_of_a_running_request_gets_retry_after() {
    let fixture = Fixture::new();
    let layer = fixture.layer().lease(Duration::from_mins(1));
    // It is not renewed.
    let layer = layer.max_run(Duration::ZERO).on_running(OnRunning::Reject);
    let (gate, shop) = gated(&fixture, layer);
    let first = spawn(&shop, order(""));
    gate.runs().await;
    // The rest of the lease, rounded up, and 2 s at most.
    for (passed, seconds) in [(0, "2"), (57_900, "2"), (1_200, "1"), (800, "1")] {
        fixture.clock.advance(Duration::from_millis(passed));
        let refused = send(&shop, order("")).await;
        assert_eq!(refused.problem(), (409, "request-running"));
        assert_eq!(refused.headers["retry-after"], seconds, "after {passed} ms");
    }
    // Another request with the key is refused at once.
    let other = send(&shop, order("other")).await;
    assert_eq!(other.problem(), (422, "key-reused"));
    gate.go_on.notify_one();
    assert_eq!(
        patiently("the first response", first).await.unwrap().body,
        "1"
    );
    assert!(send(&shop, order("")).await.is_replayed());
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn a_repeat_waits_for_the_first() {
    let fixture = Fixture::new();
    let (gate, shop) = gated(&fixture, fixture.layer());
    let ask = || spawn(&shop, order(""));
    let first = ask();
    gate.runs().await;
    let second = ask();
    waits(&fixture).await;
    fixture.clock.advance(Duration::from_millis(4_999));
    others().await;
    assert!(!second.is_finished());
    gate.go_on.notify_one();
    let first = patiently("the first response", first).await.unwrap();
    let second = patiently("the second response", second).await.unwrap();
    assert!(!first.is_replayed() && second.is_replayed());
    assert_eq!(first.body, second.body);
    assert_eq!(fixture.runs(), 1);
}

/// Until a repeat waits, for 5 s at most. The renewal of the lease is due after 10 s.
async fn waits(fixture: &Fixture) {
    let patience = Duration::from_secs(5);
    patiently("a repeat waits", fixture.clock.sleeper_within(patience)).await;
}

/// Woken tasks of this thread go first.
async fn others() {
    for _ in 0..32 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_repeat_that_has_waited_for_5_s_gets_retry_after() {
    let fixture = Fixture::new();
    // Renewals are due every 20 s.
    let (gate, shop) = gated(&fixture, fixture.layer().lease(Duration::from_mins(1)));
    let ask = || spawn(&shop, order(""));
    let first = ask();
    gate.runs().await;
    for _ in 0..2 {
        let repeat = ask();
        waits(&fixture).await;
        fixture.clock.advance(Duration::from_secs(5));
        let refused = patiently("a refusal", repeat).await.unwrap();
        assert_eq!(refused.problem(), (409, "request-running"));
        assert_eq!(refused.headers["retry-after"], "2");
    }
    gate.go_on.notify_one();
    assert_eq!(
        patiently("the first response", first).await.unwrap().body,
        "1"
    );
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn the_layer_overrides_on_running_of_the_engine() {
    let fixture = Fixture::with(|engine| engine.on_running(OnRunning::Reject));
    let (gate, shop) = gated(&fixture, fixture.layer());
    let first = spawn(&shop, order(""));
    gate.runs().await;
    let refused = send(&shop, order("")).await;
    assert_eq!(refused.problem(), (409, "request-running"));
    gate.go_on.notify_one();
    patiently("the first response", first).await.unwrap();
}

#[tokio::test]
async fn while_the_store_is_down_nothing_runs() {
    let fixture = Fixture::new();
    let store = Faulty::new(MemoryStore::new());
    let engine = Engine::builder(store.clone()).claim_deadline(Duration::from_secs(1));
    let engine = engine.build().unwrap();
    let shop = |on_outage| {
        let layer = IdempotencyLayer::public(&engine, "shop.api");
        fixture.orders(layer.on_outage(on_outage), |run| run.to_string())
    };
    store.fail(StoreOperation::Claim, [Fault::Unreachable; 10_000]);
    let refused = send(&shop(OnOutage::Fail), order("")).await;
    assert_eq!(refused.problem(), (503, "unavailable"));
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(fixture.runs(), 0);
    let unprotected = send(&shop(OnOutage::Run), order("")).await;
    assert_eq!(unprotected.body, "1");
    assert!(!unprotected.is_replayed());
    // The effects of a flood switch no protection off.
    for fault in [Fault::Full, Fault::Overloaded, Fault::Busy, Fault::Refused] {
        store.heal();
        store.fail(StoreOperation::Claim, [fault; 10_000]);
        let refused = send(&shop(OnOutage::Run), order("")).await;
        assert_eq!(refused.problem().0, 503, "{fault:?}");
    }
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn a_service_may_word_a_problem() {
    let fixture = Fixture::new();
    let layer = fixture.layer().on_problem(|problem| {
        let mut response = http::Response::new(problem.code().to_owned());
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response
    });
    let shop = fixture.orders(layer, |run| run.to_string());
    let bare = Request::post("/orders").body(Body::empty()).unwrap();
    let told = call(&shop, bare).await;
    assert_eq!(told.status(), StatusCode::IM_A_TEAPOT);
}
