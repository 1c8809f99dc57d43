//! The queries of a layer to its quota, and its refusals.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::Request;
use http::request::Parts;
use idem_runtime::Engine;
use idem_runtime::http::{IdempotencyKey, IdempotencyLayer};
use idem_runtime::store::memory::MemoryStore;
use idem_tests::shop::{engine, started};

use crate::client::{
    Fixture, REUSED, Refused, Seen, gated, of_tenant, patiently, ran, replayed, send, spawn,
    tenant, with_key,
};

const EXCEEDED: Seen = Refused(429, "quota-exceeded");

/// The queries to a quota, and how many more records it grants.
#[derive(Clone, Default)]
struct Records(Arc<Mutex<(Vec<String>, usize)>>);

impl Records {
    fn left(records: usize) -> Self {
        Self(Arc::new(Mutex::new((Vec::new(), records))))
    }

    fn take(&self, scope: &str, request: &Parts) -> Result<(), Duration> {
        let key = request.extensions.get::<IdempotencyKey>().unwrap();
        let mut records = self.0.lock().unwrap();
        records.0.push(format!("{scope}: {}", key.as_str()));
        let left = records.1.checked_sub(1).ok_or(Duration::from_mins(1))?;
        records.1 = left;
        Ok(())
    }

    fn asked(&self) -> Vec<String> {
        self.0.lock().unwrap().0.clone()
    }
}

fn of(tenant: &str, key: &str, body: &'static str) -> Request {
    of_tenant(tenant, with_key(format!("\"{key}\""), body))
}

fn limited(engine: &Engine, records: &Records) -> IdempotencyLayer {
    let take = records.clone();
    let layer = IdempotencyLayer::scoped(engine, "shop.api", tenant);
    layer.quota(move |scope, request| take.take(scope, request))
}

#[tokio::test]
async fn a_quota_is_asked_once_for_each_new_request_and_not_for_replays() {
    let (fixture, records) = (Fixture::new(), Records::left(2));
    let shop = fixture.orders(limited(&fixture.engine, &records), |run| run.to_string());
    let rows = [
        ("a", of("acme", "a", "tea"), ran("1")),
        ("b", of("acme", "b", "tea"), ran("2")),
        ("a again", of("acme", "a", "tea"), replayed("1")),
        ("a once more", of("acme", "a", "tea"), replayed("1")),
        ("a with another body", of("acme", "a", "rum"), REUSED),
    ];
    fixture.walk(&shop, rows).await;
    assert_eq!(records.asked(), ["acme: a", "acme: b"]);
    let refused = send(&shop, of("acme", "c", "tea")).await;
    assert_eq!(refused.problem(), (429, "quota-exceeded"));
    assert_eq!(refused.headers["retry-after"], "60");
    let again = ("a at last", of("acme", "a", "tea"), replayed("1"));
    fixture.walk(&shop, [again]).await;
    assert_eq!(records.asked().len(), 3);
}

/// Nothing but a read reaches a server either.
#[tokio::test]
async fn a_request_over_its_quota_writes_nothing() {
    let (server, redis) = started().await;
    let fixture = Fixture::new();
    for engine in [fixture.engine.clone(), engine(redis)] {
        let records = Records::left(1);
        let layer = limited(&engine, &records);
        let shop = fixture.orders(layer.clone(), |_| "done");
        let first = ("a", of("acme", "a", "tea"), ran("done"));
        fixture.walk(&shop, [first]).await;
        for key in ["b", "c", "b"] {
            let row = (key, of("acme", key, "tea"), EXCEEDED);
            fixture.walk(&shop, [row]).await;
            assert!(layer.entry(Some("acme"), key).await.unwrap().is_none());
        }
        let again = ("a", of("acme", "a", "tea"), replayed("done"));
        fixture.walk(&shop, [again]).await;
        let asked = ["acme: a", "acme: b", "acme: c", "acme: b"];
        assert_eq!(records.asked(), asked);
    }
    assert_eq!(fixture.events.count("claimed"), 1);
    assert_eq!(server.cli(&["KEYS", "*"]).lines().count(), 1);
}

/// Nor does a request refused at the limit of running handlers.
#[tokio::test]
async fn a_request_that_waits_for_another_asks_no_quota() {
    let (fixture, records) = (Fixture::new(), Records::left(9));
    let layer = limited(&fixture.engine, &records).max_running(1);
    let (gate, shop) = gated(&fixture, layer);
    let spawn = || spawn(&shop, of("acme", "a", "tea"));
    let first = spawn();
    gate.runs().await;
    let repeat = spawn();
    let waits = fixture.clock.sleeper_within(Duration::from_secs(5));
    patiently("the repeat waits", waits).await;
    let full = Refused(503, "too-many-running");
    let row = ("at the limit", of("acme", "b", "tea"), full);
    fixture.walk(&shop, [row]).await;
    gate.go_on.notify_one();
    assert_eq!(patiently("the first", first).await.unwrap().body, "1");
    assert!(patiently("its repeat", repeat).await.unwrap().is_replayed());
    assert_eq!(records.asked(), ["acme: a"]);
}

/// With a quota, each request reads before it claims, under both names.
#[tokio::test]
async fn a_quota_is_asked_once_while_a_former_digest_key_is_looked_for() {
    let store = Arc::new(MemoryStore::new());
    let engine = || Engine::builder(Arc::clone(&store));
    let before = engine().digest_key([1; 32]).build().unwrap();
    let fixture = Fixture::with(|_| engine().digest_key([2; 32]).former_digest_key([1; 32]));
    let records = Records::left(9);
    let shop = fixture.orders(limited(&before, &records), |run| run.to_string());
    assert_eq!(send(&shop, of("acme", "a", "tea")).await.body, "1");
    let shop = fixture.orders(limited(&fixture.engine, &records), |run| run.to_string());
    let rows = [
        ("a of before", of("acme", "a", "tea"), replayed("1")),
        ("b", of("acme", "b", "tea"), ran("2")),
        ("b again", of("acme", "b", "tea"), replayed("2")),
    ];
    fixture.walk(&shop, rows).await;
    assert_eq!(records.asked(), ["acme: a", "acme: b"]);
}
