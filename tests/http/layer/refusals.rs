//! The refusals of idem: nothing is run, and nothing stored.

use std::io;
use std::time::Duration;

use http::StatusCode;
use idem_runtime::http::IdempotencyLayer;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Engine, OnDuplicate, OnOutage};
use idem_tests::faulty::{Fault, Faulty, StoreOperation};

use crate::client::{
    Fixture, INVALID, MISSING, REUSED, Ran, Refused, bare, data, frames, gated, keyed, numbered,
    order, others, patiently, ran, send, spawn, with_key,
};

#[tokio::test]
async fn a_request_without_a_key_is_refused_unless_keys_are_optional() {
    let (fixture, shop) = numbered(|layer| layer);
    fixture.walk(&shop, [("no key", bare(""), MISSING)]).await;
    let (fixture, shop) = numbered(IdempotencyLayer::optional);
    let rows = [
        ("no key", bare(""), ran("1")),
        ("no key again", bare(""), ran("2")),
        ("a key that is none", with_key("a, b", ""), INVALID),
    ];
    fixture.walk(&shop, rows).await;
    assert_eq!(fixture.events.all(), [""; 0], "the store was not asked");
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_before_anything_is_claimed() {
    let (fixture, shop) = numbered(|layer| layer.max_body_bytes(10));
    let too_large = Refused(413, "body-too-large");
    let (_never, body) = frames();
    let announced = keyed("/orders").header("content-length", "11").body(body);
    let (source, endless) = frames();
    for _ in 0..11 {
        source.send(data("1")).unwrap();
    }
    let rows = [
        ("by its declared length", announced.unwrap(), too_large),
        ("by its size", order("12345678901"), too_large),
        ("by what came, before its end", order(endless), too_large),
    ];
    fixture.walk(&shop, rows).await;
    assert_eq!(fixture.events.all(), [""; 0], "the store was not asked");
    let row = ("of ten bytes", order("1234567890"), ran("1"));
    fixture.walk(&shop, [row]).await;
}

#[tokio::test]
async fn a_body_that_breaks_off_is_refused_and_can_be_sent_again() {
    let (fixture, shop) = numbered(|layer| layer);
    let (source, body) = frames();
    source.send(data("te")).unwrap();
    let broken = io::Error::from(io::ErrorKind::ConnectionReset);
    source.send(Err(broken)).unwrap();
    let unreadable = Refused(400, "body-unreadable");
    let rows = [
        ("half of it", order(body), unreadable),
        ("all of it", order("tea"), ran("1")),
    ];
    fixture.walk(&shop, rows).await;
}

/// A refused request may be corrected under its key; any other is to be repeated as it was.
#[tokio::test]
async fn a_request_that_was_refused_may_be_corrected_under_its_key() {
    for status in [400, 404, 413, 415, 422, 429, 408, 503] {
        let fixture = Fixture::new();
        let shop = fixture.orders(fixture.layer(), move |run| match run {
            1 => StatusCode::from_u16(status).unwrap(),
            _ => StatusCode::CREATED,
        });
        let corrected = match status {
            408 | 503 => REUSED,
            _ => Ran(201, ""),
        };
        let rows = [
            (status, order("wrong"), Ran(status, "")),
            (status, order("corrected"), corrected),
        ];
        fixture.walk(&shop, rows).await;
    }
}

/// For 5 s. Renewals of the lease are due every 20 s.
#[tokio::test]
async fn a_repeat_waits_for_the_first() {
    let fixture = Fixture::new();
    let (gate, shop) = gated(&fixture, fixture.layer().lease(Duration::from_mins(1)));
    let first = spawn(&shop, order(""));
    gate.runs().await;
    let wait = async |repeat: &tokio::task::JoinHandle<_>| {
        let waits = fixture.clock.sleeper_within(Duration::from_secs(5));
        patiently("a repeat waits", waits).await;
        fixture.clock.advance(Duration::from_millis(4_999));
        others().await;
        assert!(!repeat.is_finished());
    };
    for _ in 0..2 {
        let repeat = spawn(&shop, order(""));
        wait(&repeat).await;
        fixture.clock.advance(Duration::from_millis(1));
        let refused = patiently("a refusal", repeat).await.unwrap();
        assert_eq!(refused.problem(), (409, "request-running"));
        assert_eq!(refused.headers["retry-after"], "2");
    }
    let repeat = spawn(&shop, order(""));
    wait(&repeat).await;
    gate.go_on.notify_one();
    let first = patiently("the first response", first).await.unwrap();
    let repeat = patiently("its repeat", repeat).await.unwrap();
    assert_eq!(
        (first.replay(), repeat.replay()),
        ((false, "1"), (true, "1"))
    );
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn a_repeat_is_refused_by_a_layer_that_rejects() {
    let (fixture, shop) = numbered(|layer| {
        let layer = layer.on_duplicate(OnDuplicate::Reject);
        layer.ttl(Duration::from_mins(1))
    });
    let first = ("the first", order(""), ran("1"));
    fixture.walk(&shop, [first]).await;
    let again = send(&shop, order("")).await;
    assert_eq!(again.problem(), (409, "request-repeated"));
    assert_eq!(again.headers["retry-after"], "60");
    assert_eq!(fixture.runs(), 1);
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
    let unprotected = ("unprotected", order(""), ran("1"));
    fixture.walk(&shop(OnOutage::Run), [unprotected]).await;
    // The effects of a flood switch no protection off.
    for fault in [Fault::Full, Fault::Overloaded, Fault::Busy, Fault::Refused] {
        store.heal();
        store.fail(StoreOperation::Claim, [fault; 10_000]);
        let refused = send(&shop(OnOutage::Run), order("")).await;
        assert_eq!(refused.problem().0, 503, "{fault:?}");
    }
    assert_eq!(fixture.runs(), 1);
}
