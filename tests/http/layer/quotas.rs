//! The queries of a layer to its quota, and the effects of a refusal.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::Request;
use axum::routing::post;
use http::request::Parts;
use idem_harness::RedisServer;
use idem_runtime::Engine;
use idem_runtime::http::{IdempotencyKey, IdempotencyLayer};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::redis::RedisStore;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::client::{
    Fixture, KEY, of_tenant, order, patiently, routed, send, spawn, tenant, with_key,
};

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

/// A layer with a quota.
fn limited(engine: &Engine, records: &Records) -> IdempotencyLayer {
    let take = records.clone();
    let layer = IdempotencyLayer::scoped(engine, "shop.api", tenant);
    layer.quota(move |scope, request| take.take(scope, request))
}

#[tokio::test]
async fn a_quota_is_asked_once_for_each_new_request_and_not_for_replays() {
    let (fixture, records) = (Fixture::new(), Records::left(2));
    let shop = fixture.orders(limited(&fixture.engine, &records), |run| run.to_string());
    assert_eq!(send(&shop, of("acme", "a", "tea")).await.body, "1");
    assert_eq!(send(&shop, of("acme", "b", "tea")).await.body, "2");
    for _ in 0..3 {
        assert!(send(&shop, of("acme", "a", "tea")).await.is_replayed());
    }
    let other = send(&shop, of("acme", "a", "rum")).await;
    assert_eq!(other.problem(), (422, "key-reused"));
    assert_eq!(records.asked(), ["acme: a", "acme: b"]);
    let refused = send(&shop, of("acme", "c", "tea")).await;
    assert_eq!(refused.problem(), (429, "quota-exceeded"));
    assert_eq!(refused.headers["retry-after"], "60");
    assert!(send(&shop, of("acme", "a", "tea")).await.is_replayed());
    assert_eq!(records.asked().len(), 3);
    assert_eq!(fixture.runs(), 2);
}

#[tokio::test]
async fn a_request_over_its_quota_writes_nothing() {
    let (fixture, records) = (Fixture::new(), Records::left(0));
    let layer = limited(&fixture.engine, &records);
    let shop = fixture.orders(layer.clone(), |run| run.to_string());
    for key in ["a", "b", "a"] {
        let refused = send(&shop, of("acme", key, "tea")).await;
        assert_eq!(refused.problem(), (429, "quota-exceeded"));
        assert!(layer.entry(Some("acme"), key).await.unwrap().is_none());
    }
    assert_eq!(fixture.events.count("claimed"), 0);
    assert_eq!(fixture.runs(), 0);
}

/// Nothing but a read reaches a server either.
#[tokio::test]
async fn a_request_over_its_quota_writes_nothing_in_redis() {
    let server = RedisServer::start();
    let engine = Engine::new(RedisStore::connect(&server.url()).await.unwrap());
    let (fixture, records) = (Fixture::new(), Records::left(1));
    let shop = fixture.orders(limited(&engine, &records), |run| run.to_string());
    for key in ["a", "b", "c"] {
        let refused = send(&shop, of("acme", key, "tea")).await;
        let status = if key == "a" { 200 } else { 429 };
        assert_eq!(refused.status, status);
    }
    assert!(send(&shop, of("acme", "a", "tea")).await.is_replayed());
    assert_eq!(server.cli(&["KEYS", "*"]).lines().count(), 1);
    assert_eq!(records.asked(), ["acme: a", "acme: b", "acme: c"]);
}

#[tokio::test]
async fn a_request_that_waits_for_another_asks_no_quota() {
    let (fixture, records) = (Fixture::new(), Records::left(1));
    let (begun, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (tell, through) = (Arc::clone(&begun), Arc::clone(&go_on));
    let handler = post(move || async move {
        tell.add_permits(1);
        through.acquire().await.unwrap().forget();
        "done"
    });
    let layer = limited(&fixture.engine, &records);
    let shop = routed(handler, layer);
    let spawn = || spawn(&shop, of("acme", "a", "tea"));
    let first = spawn();
    patiently("the handler runs", begun.acquire())
        .await
        .unwrap()
        .forget();
    let repeat = spawn();
    let waits = fixture.clock.sleeper_within(Duration::from_secs(5));
    patiently("the repeat waits", waits).await;
    go_on.add_permits(1);
    assert_eq!(patiently("the first", first).await.unwrap().body, "done");
    assert!(patiently("its repeat", repeat).await.unwrap().is_replayed());
    assert_eq!(records.asked(), ["acme: a"]);
}

/// A request refused at the limit of running handlers uses up nothing of the quota.
#[tokio::test]
async fn a_request_at_the_limit_asks_no_quota() {
    let (fixture, records) = (Fixture::new(), Records::left(9));
    let (begun, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (tell, through) = (Arc::clone(&begun), Arc::clone(&go_on));
    let handler = post(move || async move {
        tell.add_permits(1);
        through.acquire().await.unwrap().forget();
    });
    let layer = limited(&fixture.engine, &records).max_running(1);
    let shop = routed(handler, layer);
    let first = spawn(&shop, of("acme", "a", "tea"));
    patiently("the handler runs", begun.acquire())
        .await
        .unwrap()
        .forget();
    assert_eq!(send(&shop, of("acme", "b", "tea")).await.status, 503);
    assert_eq!(records.asked(), ["acme: a"]);
    go_on.add_permits(1);
    assert_eq!(patiently("the first", first).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_public_layer_has_one_scope_for_its_quota() {
    let (fixture, records) = (Fixture::new(), Records::left(1));
    let take = records.clone();
    let layer = fixture.layer();
    let layer = layer.quota(move |scope, request| take.take(scope, request));
    let shop = fixture.orders(layer, |run| run.to_string());
    assert_eq!(send(&shop, order("tea")).await.body, "1");
    assert_eq!(records.asked(), [format!(": {}", KEY.trim_matches('"'))]);
}

/// A released record holds no answer: the next request with its key would write, and queries the quota.
#[tokio::test]
async fn a_released_request_asks_again() {
    let (fixture, records) = (Fixture::new(), Records::left(2));
    let shop = fixture.orders(limited(&fixture.engine, &records), |run| {
        (http::StatusCode::UNPROCESSABLE_ENTITY, run.to_string())
    });
    for status in [422, 422, 429] {
        assert_eq!(send(&shop, of("acme", "a", "tea")).await.status, status);
    }
    assert_eq!(records.asked().len(), 3);
    assert_eq!(fixture.runs(), 2);
}

#[tokio::test]
async fn a_panic_of_a_quota_leaves_nothing_behind() {
    let fixture = Fixture::new();
    let panics = Arc::new(Mutex::new(true));
    let next = Arc::clone(&panics);
    let layer = fixture.layer().max_running(1).quota(move |_, _| {
        let panics = std::mem::take(&mut *next.lock().unwrap_or_else(PoisonError::into_inner));
        assert!(!panics, "as it was told to");
        Ok(())
    });
    let shop = fixture.orders(layer.clone(), |run| run.to_string());
    let first = spawn(&shop, order("tea"));
    assert!(patiently("a panic", first).await.unwrap_err().is_panic());
    assert!(
        layer
            .entry(None, KEY.trim_matches('"'))
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(send(&shop, order("tea")).await.body, "1");
}

/// With a quota each request reads before it claims, under both of its names.
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
    assert!(send(&shop, of("acme", "a", "tea")).await.is_replayed());
    assert_eq!(send(&shop, of("acme", "b", "tea")).await.body, "2");
    assert!(send(&shop, of("acme", "b", "tea")).await.is_replayed());
    assert_eq!(records.asked(), ["acme: a", "acme: b"]);
    assert_eq!(fixture.runs(), 2);
    // Duplicates at once need one record, too.
    let mut duplicates = JoinSet::new();
    for _ in 0..50 {
        let shop = shop.clone();
        duplicates.spawn(async move { send(&shop, of("acme", "c", "tea")).await.body });
    }
    let bodies = duplicates.join_all().await;
    assert!(bodies.iter().all(|body| body == "3"), "{bodies:?}");
    assert_eq!(records.asked(), ["acme: a", "acme: b", "acme: c"]);
}
