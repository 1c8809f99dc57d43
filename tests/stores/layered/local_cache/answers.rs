//! Calls that the cache answers without the store, and calls that it must not answer.

use std::sync::Arc;
use std::time::Duration;

use idem_runtime::clock::ManualClock;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::testing::StoreOperation;
use idem_runtime::{Engine, EngineBuilder, ErrorKind, FOREVER, OnDuplicate, cache::LocalCache};
use idem_tests::shop::{Failure, until};

use super::fixture::{Far, Fixture, memory};

fn fresh() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new())
}

#[tokio::test]
async fn the_second_call_sends_no_command() {
    let fixture = Fixture::on(fresh()).await;
    let run = fixture.pay("a").await.unwrap();
    for _ in 0..3 {
        fixture.is_local("a", run).await;
    }
    assert_eq!(fixture.stats().hits, 3);
}

#[tokio::test]
async fn without_a_cache_every_call_asks() {
    let fixture = Fixture::on(fresh()).await;
    let engine = Engine::builder(fixture.store.clone()).build().unwrap();
    assert_eq!(engine.local_cache_stats(), None);
    for _ in 0..2 {
        let claims = fixture.claims();
        let call = engine.operation("fixture.pay").key("a");
        call.run(async |_| Ok::<_, Failure>(fixture.run()))
            .await
            .unwrap();
        assert_eq!(fixture.claims(), claims + 1);
    }
}

#[tokio::test]
async fn a_replay_and_a_wait_fill_it_as_well() {
    let store = fresh();
    let there = Fixture::on(store.clone()).await;
    let fixture = Fixture::on(store.clone()).await.sharing(&there);
    let run = there.pay("a").await.unwrap();
    fixture.is_asked("a", run).await;
    fixture.is_local("a", run).await;
    // A body that runs in another engine, and calls that wait for it here.
    let (ends, end) = tokio::sync::oneshot::channel::<()>();
    let (elsewhere, waiting) = (there.clone(), fixture.clone());
    let body = tokio::spawn(async move {
        let call = elsewhere.call("b");
        call.run(async |_| {
            end.await.unwrap();
            Ok::<_, Failure>(elsewhere.run())
        })
        .await
    });
    until("the body runs", || there.claims() == 3).await;
    let waiting = tokio::spawn(async move { waiting.pay("b").await });
    until("the other waits", || {
        fixture.store.count(StoreOperation::Read) > 0
    })
    .await;
    ends.send(()).unwrap();
    let run = body.await.unwrap().unwrap();
    assert_eq!(waiting.await.unwrap(), Ok(run));
    fixture.is_local("b", run).await;
    there.is_local("b", run).await;
}

#[tokio::test]
async fn an_adopted_answer_fills_it() {
    let (store, clock) = (MemoryStore::new(), ManualClock::new());
    let store = Arc::new(store);
    // The late owner believes that its lease lasts, while the store's time passes.
    let lease = Duration::from_millis(100);
    let late = Fixture::with(store.clone(), LocalCache::new(), |engine| {
        engine.clock(clock).lease(lease)
    })
    .await;
    let quick = Fixture::on(store.clone()).await.sharing(&late);
    let call = late.call("a").run(async |_| {
        let run = late.run();
        let overtaken = async { while quick.pay("a").await.is_err() {} };
        overtaken.await;
        Ok::<_, Failure>(run)
    });
    let adopted = call.await.unwrap();
    quick.is_local("a", adopted).await;
    late.is_local("a", adopted).await;
}

/// A late answer is stored under the header of a later claim, which only the store knows.
#[tokio::test]
async fn a_late_answer_is_asked_for_once() {
    let (store, clock) = (Arc::new(MemoryStore::new()), ManualClock::new());
    // Its clock stands still, and so it does not renew its lease.
    let late = Fixture::with(store.clone(), LocalCache::new(), |engine| {
        engine.clock(clock).lease(Duration::from_millis(100))
    })
    .await;
    let other = Fixture::on(store).await;
    let call = late.call("a").run(async |_| {
        let run = late.run();
        let call = other.call("a");
        let answer = call.run(async |_| Err::<u32, _>(Failure::Down)).await;
        assert_eq!(
            answer,
            Err(Failure::Down),
            "it took the key over and gave it back"
        );
        Ok::<_, Failure>(run)
    });
    let run = call.await.unwrap();
    late.is_asked("a", run).await;
    late.is_local("a", run).await;
}

#[tokio::test]
async fn a_business_error_is_answered_as_well() {
    let fixture = Fixture::on(fresh()).await;
    let pay = async || {
        let call = fixture.call("a");
        call.run(async |_| {
            fixture.run();
            Err::<u32, _>(Failure::Declined)
        })
        .await
    };
    assert_eq!(pay().await, Err(Failure::Declined));
    let sent = fixture.store.log().len();
    assert_eq!(pay().await, Err(Failure::Declined));
    assert_eq!(fixture.store.log().len(), sent);
    assert_eq!(fixture.told.all(), ["local"]);
}

#[tokio::test]
async fn a_system_error_and_an_unknown_outcome_are_not_kept() {
    let fixture = Fixture::on(fresh()).await;
    let fails = async |key| {
        let call = fixture.call(key);
        call.run(async |_| Err::<u32, _>(Failure::Down)).await
    };
    let entries = fixture.stats().entries;
    for _ in 0..2 {
        assert_eq!(fails("a").await, Err(Failure::Down));
    }
    let unknown = fixture.call("b").on_error(idem_runtime::on_error::Unknown);
    let answer = unknown.run(async |_| Err::<u32, _>(Failure::Down)).await;
    assert_eq!(answer, Err(Failure::Down));
    for _ in 0..2 {
        let claims = fixture.claims();
        let error = fixture.pay("b").await.unwrap_err().refused();
        assert!(matches!(error.kind(), ErrorKind::Unknown { .. }));
        assert_eq!(fixture.claims(), claims + 1);
    }
    assert_eq!(fixture.stats().entries, entries);
}

#[tokio::test]
async fn an_answer_that_was_not_stored_is_read_each_time() {
    let small = |engine: EngineBuilder| engine.max_value_bytes(4);
    let fixture = Fixture::with(fresh(), LocalCache::new(), small).await;
    let long = fixture.call("a");
    let answer = long.run(async |_| Ok::<u32, Failure>(1_000_000)).await;
    assert_eq!(answer.unwrap(), 1_000_000);
    for _ in 0..2 {
        let claims = fixture.claims();
        let error = fixture.pay("a").await.unwrap_err().refused();
        assert_eq!(error.kind(), &ErrorKind::NotStored);
        assert_eq!(fixture.claims(), claims + 1);
    }
}

#[tokio::test]
async fn other_arguments_are_a_mismatch_as_before() {
    let fixture = Fixture::on(fresh()).await;
    let run = fixture.pay("a").await.unwrap();
    fixture.is_local("a", run).await;
    let other = fixture
        .engine
        .operation("fixture.pay")
        .key("a")
        .fingerprint(&2);
    let answer = other.run(async |_| Ok::<_, Failure>(fixture.run())).await;
    let error = answer.unwrap_err().refused();
    assert_eq!(error.kind(), &ErrorKind::Mismatch);
    // As in the store: an absent fingerprint is no mismatch.
    let any = fixture.engine.operation("fixture.pay").key("a");
    let answer = any.run(async |_| Ok::<_, Failure>(fixture.run())).await;
    assert_eq!(answer, Ok(run));
    assert_eq!(fixture.told.count("local"), 2);
}

/// The record keeps the fingerprint of an attempt that counts; a call without a fingerprint does not know it.
#[tokio::test]
async fn a_call_without_a_fingerprint_keeps_the_comparison_on() {
    let fixture = Fixture::on(fresh()).await;
    let first = fixture.call("a").count_errors(true);
    let answer = first.run(async |_| Err::<u32, _>(Failure::Down)).await;
    assert_eq!(answer, Err(Failure::Down));
    let any = fixture.engine.operation("fixture.pay").key("a");
    any.run(async |_| Ok::<_, Failure>(fixture.run()))
        .await
        .unwrap();
    let other = fixture
        .engine
        .operation("fixture.pay")
        .key("a")
        .fingerprint(&2);
    let answer = other.run(async |_| Ok::<_, Failure>(fixture.run())).await;
    let error = answer.unwrap_err().refused();
    assert_eq!(error.kind(), &ErrorKind::Mismatch);
}

#[tokio::test]
async fn a_refused_duplicate_gets_the_remaining_lease_from_the_store() {
    let clock = ManualClock::new();
    let fixture = Fixture::with(Arc::new(memory(&clock)), LocalCache::new(), |engine| {
        engine.clock(clock.clone())
    })
    .await;
    let call = || fixture.call("a").ttl(Duration::from_mins(10));
    let rejecting = || call().on_duplicate(OnDuplicate::Reject);
    let run = call().run(async |_| Ok::<_, Failure>(fixture.run())).await;
    fixture.is_local("a", run.unwrap()).await;
    for minutes in [10, 9, 8] {
        let claims = fixture.claims();
        let answer = rejecting().run(async |_| Ok::<u32, Failure>(0)).await;
        let error = answer.unwrap_err().refused();
        let retry_after = Duration::from_mins(minutes);
        assert_eq!(error.kind(), &ErrorKind::Duplicate { retry_after });
        assert_eq!(fixture.claims(), claims + 1);
        clock.advance(Duration::from_mins(1));
    }
}

#[tokio::test]
async fn the_bounds_are_refused_by_name() {
    for (cache, named) in [
        (LocalCache::new().max_entries(0), "max_entries"),
        (LocalCache::new().max_bytes(0), "max_bytes"),
        (LocalCache::new().max_age(FOREVER), "max_age"),
    ] {
        let error = Engine::builder(MemoryStore::new())
            .local_cache(cache)
            .build()
            .unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::InvalidPolicy);
        assert!(error.to_string().contains(named), "{error}");
    }
}

#[tokio::test]
async fn many_keys_stay_within_the_bounds() {
    let cache = LocalCache::new().max_entries(256).max_bytes(100_000);
    let fixture = Fixture::with(fresh(), cache, |engine| engine).await;
    for number in 0..2_000 {
        fixture.pay(&number.to_string()).await.unwrap();
        let stats = fixture.stats();
        assert!(stats.entries <= 256 && stats.bytes <= 100_000, "{stats:?}");
    }
    let stats = fixture.stats();
    assert!(stats.entries >= 200 && stats.evictions > 1_000, "{stats:?}");
    let run = fixture.pay("last").await.unwrap();
    fixture.is_local("last", run).await;
}

/// A store that does not support notifications yet, and one that never will.
#[tokio::test]
async fn it_opens_when_the_store_notifies_or_cannot() {
    let far = Far::new(&MemoryStore::new(), false);
    let fixture = Fixture::on(far).await;
    let run = fixture.pay("a").await.unwrap();
    fixture.is_local("a", run).await;

    let far = Far::new(&MemoryStore::new(), true);
    let fixture = Fixture::closed(far.clone(), LocalCache::new(), |engine| engine);
    let run = fixture.pay("a").await.unwrap();
    let listener = far.listener().await;
    fixture.is_asked("a", run).await;
    fixture.is_asked("a", run).await;
    listener.hearing(idem_runtime::store::Hearing::All);
    fixture.is_asked("a", run).await;
    fixture.is_local("a", run).await;
}
