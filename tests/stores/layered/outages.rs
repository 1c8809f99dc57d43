//! The fast store is unavailable, in each of the ways in which a store can fail.

use std::time::Instant;

use idem_harness::TcpProxy;
use idem_runtime::store::{ClaimReply, ClaimRequest, Owner, Remains};
use idem_tests::shop::{connect, happened, patiently};

use crate::prelude::*;

const PATIENCE: Duration = Duration::from_millis(500);

fn hasty(store: LayeredStoreBuilder) -> LayeredStoreBuilder {
    store.patience(PATIENCE)
}

/// Calls until the fast store has answered: a busy machine may have delayed it, which would count among the
/// consecutive failures.
async fn known(fixture: &Fixture, key: &str) {
    let answers = async {
        let before = fixture.stats().hits;
        while fixture.stats().hits == before {
            fixture.pay(key).await.unwrap();
            fixture.settle().await;
        }
    };
    patiently("the fast store answers", answers).await;
}

/// Causes five consecutive failures.
async fn degrade(fixture: &Fixture, calls: &str) {
    for n in 0..5 {
        fixture.pay(&format!("{calls} {n}")).await.unwrap();
    }
    happened(&fixture.events, "degraded", 1).await;
    assert!(fixture.stats().degraded);
}

/// Replays until the fast store answers again.
async fn recovers(fixture: &Fixture, key: &str) {
    let answers = async {
        let before = fixture.stats().hits;
        while fixture.stats().hits == before {
            fixture.pay(key).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    patiently("the fast store is asked again", answers).await;
    happened(&fixture.events, "restored", 1).await;
    assert!(!fixture.stats().degraded);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_black_hole_costs_patience_five_times_and_nothing_then() {
    let (server, durable) = (RedisServer::start(), Counted::memory());
    let proxy = TcpProxy::start(server.addr());
    let fast = connect(proxy.url()).await.unwrap();
    let fixture = Fixture::with(fast, &durable, hasty);
    known(&fixture, "known").await;
    proxy.black_hole(true);
    let begun = Instant::now();
    degrade(&fixture, "silent").await;
    let waited = begun.elapsed();
    assert!(waited >= PATIENCE * 5, "{waited:?}");
    // The degraded store is skipped: otherwise each of these calls would wait for it.
    let begun = Instant::now();
    for n in 0..50 {
        fixture.pay(&format!("skipped {n}")).await.unwrap();
    }
    let spent = begun.elapsed();
    assert!(spent < PATIENCE * 20, "{spent:?}");
    proxy.black_hole(false);
    recovers(&fixture, "known").await;
    assert_eq!(fixture.runs.count(), 56);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fast_store_that_is_down_at_the_start_is_found_later() {
    let (server, durable) = (RedisServer::start(), Counted::memory());
    let url = server.url();
    server.kill();
    let fast = LazyStore::new(move || connect(url.clone()));
    let fixture = Fixture::with(fast, &durable, hasty);
    let first = fixture.pay("a").await.unwrap();
    assert_eq!(fixture.pay("a").await.unwrap(), first);
    degrade(&fixture, "down").await;
    server.restart();
    recovers(&fixture, "a").await;
    assert_eq!(fixture.runs.count(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fast_store_that_is_killed_and_comes_back_empty_costs_time_only() {
    let (server, durable) = (RedisServer::start(), Counted::memory());
    let fast = connect(server.url()).await.unwrap();
    let fixture = Fixture::with(fast, &durable, hasty);
    let first = fixture.pay("a").await.unwrap();
    server.kill();
    degrade(&fixture, "killed").await;
    assert_eq!(fixture.pay("a").await.unwrap(), first);
    server.restart();
    recovers(&fixture, "a").await;
    assert_eq!(fixture.pay("a").await.unwrap(), first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fast_store_that_stands_still_costs_time_only() {
    let (server, durable) = (RedisServer::start(), Counted::memory());
    let fast = connect(server.url()).await.unwrap();
    let fixture = Fixture::with(fast, &durable, hasty);
    let first = fixture.pay("a").await.unwrap();
    known(&fixture, "a").await;
    server.pause();
    degrade(&fixture, "paused").await;
    assert_eq!(fixture.pay("a").await.unwrap(), first);
    server.resume();
    recovers(&fixture, "a").await;
    assert_eq!(fixture.pay("a").await.unwrap(), first);
    assert_eq!(fixture.runs.count(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flushed_answer_is_copied_again() {
    let (server, durable) = (RedisServer::start(), Counted::memory());
    let fixture = Fixture::with(connect(server.url()).await.unwrap(), &durable, patient);
    let first = fixture.pay("a").await.unwrap();
    fixture.settle().await;
    server.cli(&["FLUSHALL"]);
    assert_eq!(fixture.pay("a").await.unwrap(), first);
    assert_eq!(durable.asked(), (2, 1));
    fixture.settle().await;
    assert_eq!(fixture.pay("a").await.unwrap(), first);
    assert_eq!(durable.asked(), (2, 1));
}

/// A waiting call then watches the durable store, which may notify only claims that it knows to be watched.
#[tokio::test]
async fn claims_seen_by_a_poll_are_notified_while_the_fast_store_is_down() {
    let (server, durable) = (RedisServer::start(), RedisServer::start());
    let url = server.url();
    server.kill();
    let durable = Counted::over(Arc::new(connect(durable.url()).await.unwrap()));
    let fast = LazyStore::new(move || connect(url.clone()));
    let fixture = Fixture::with(fast, &durable, |store| {
        hasty(store).pause(Duration::from_secs(30))
    });
    let fails = async {
        // The durable store is not queried before the epoch is known.
        while !fixture.stats().degraded {
            fixture.pay("b").await.unwrap();
        }
    };
    patiently("the fast store is given up", fails).await;
    let (key, store) = (Fixture::key("a"), &fixture.store);
    let mut watch = store.watch(&key).await.unwrap().expect("it is told of");
    for owner in [1, 2] {
        let mut request = ClaimRequest::new(
            Owner::from_bytes([owner; 16]),
            Duration::from_mins(1),
            Duration::from_hours(1),
        );
        request.dated = false;
        let claim = store.claim(&key, &request).await.unwrap();
        assert!(matches!(claim, ClaimReply::Granted { .. }), "{claim:?}");
        store.poll(&key).await.unwrap();
        store
            .release(&key, &request.owner, Remains::Request)
            .await
            .unwrap();
        patiently("a release is told of", watch.changed()).await;
    }
}
