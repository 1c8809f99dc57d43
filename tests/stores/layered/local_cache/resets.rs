//! Resets of cached answers.

use std::sync::Arc;
use std::time::Duration;

use idem_runtime::cache::LocalCache;
use idem_runtime::clock::ManualClock;
use idem_runtime::store::Hearing;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::testing::{Fault, StoreOperation};
use idem_tests::shop::until;

use super::fixture::{Far, Fixture, memory};

#[tokio::test]
async fn a_reset_by_this_engine_counts_at_once() {
    // Even where the store sends no notifications.
    let fixture = Fixture::on(Far::new(&MemoryStore::new(), false)).await;
    for _ in 0..3 {
        let run = fixture.pay("a").await.unwrap();
        fixture.is_local("a", run).await;
        fixture.reset("a").await;
        assert_eq!(fixture.pay("a").await, Ok(run + 1));
        fixture.is_local("a", run + 1).await;
    }
}

#[tokio::test]
async fn another_key_is_answered_as_before() {
    let fixture = Fixture::on(Arc::new(MemoryStore::new())).await;
    let run = fixture.pay("a").await.unwrap();
    fixture.pay("b").await.unwrap();
    fixture.reset("b").await;
    fixture.is_local("a", run).await;
}

#[tokio::test]
async fn a_reset_by_another_engine_on_the_same_memory_counts_at_once() {
    let store = Arc::new(MemoryStore::new());
    let one = Fixture::on(store.clone()).await;
    let other = Fixture::on(store).await.sharing(&one);
    for _ in 0..3 {
        let run = one.pay("a").await.unwrap();
        assert_eq!(other.pay("a").await, Ok(run));
        other.is_local("a", run).await;
        one.reset("a").await;
        assert_eq!(other.pay("a").await, Ok(run + 1));
    }
}

#[tokio::test]
async fn records_of_another_prefix_are_none_of_its_business() {
    let store = Arc::new(MemoryStore::new());
    let one = Fixture::on(store.clone()).await;
    let other = Fixture::with(store, LocalCache::new(), |engine| engine.prefix("other")).await;
    let run = one.pay("a").await.unwrap();
    other.pay("a").await.unwrap();
    other.reset("a").await;
    one.is_local("a", run).await;
    assert_eq!(one.stats().invalidations, 0);
}

#[tokio::test]
async fn an_answer_without_notifications_is_replayed_for_max_age_only() {
    let clock = ManualClock::new();
    let store = memory(&clock);
    let cache = LocalCache::new().max_age(Duration::from_secs(20));
    let settings = |engine: idem_runtime::EngineBuilder| engine.clock(clock.clone());
    let fixture = Fixture::with(Far::new(&store, false), cache, settings).await;
    let far = Fixture::with(Arc::new(store), LocalCache::new(), settings).await;
    let far = far.sharing(&fixture);
    let run = fixture.pay("a").await.unwrap();
    clock.advance(Duration::from_secs(10));
    far.reset("a").await;
    clock.advance(Duration::from_millis(9_999));
    fixture.is_local("a", run).await;
    clock.advance(Duration::from_millis(1));
    assert_eq!(fixture.pay("a").await, Ok(run + 1));
    assert_eq!(far.pay("a").await, Ok(run + 1));
}

/// An operator resolves the unknown outcome of an attempt.
#[tokio::test]
async fn a_resolution_is_answered_from_then_on() {
    let fixture = Fixture::on(Arc::new(MemoryStore::new())).await;
    let call = fixture.call("a").on_error(idem_runtime::on_error::Unknown);
    let failed = async |_| Err::<u32, _>(idem_tests::shop::Failure::Down);
    call.run(failed).await.unwrap_err();
    fixture.entry("a").await.resolve(&77_u32).await.unwrap();
    fixture.is_asked("a", 77).await;
    fixture.is_local("a", 77).await;
}

#[tokio::test]
async fn without_notifications_the_cache_answers_nothing() {
    let far = Far::new(&MemoryStore::new(), true);
    let fixture = Fixture::closed(far.clone(), LocalCache::new(), |engine| engine);
    let run = fixture.pay("a").await.unwrap();
    let listener = far.listener().await;
    for _ in 0..3 {
        listener.hearing(Hearing::All);
        fixture.is_asked("a", run).await;
        fixture.is_local("a", run).await;
        listener.hearing(Hearing::Nothing);
        assert_eq!(fixture.stats().entries, 0);
        assert_eq!(fixture.stats().bytes, 0);
        fixture.is_asked("a", run).await;
        fixture.is_asked("a", run).await;
        assert_eq!(fixture.stats().entries, 0);
    }
}

/// The reset was executed, but its reply was lost.
#[tokio::test]
async fn a_reset_of_which_nothing_is_known_takes_the_answer_away_all_the_same() {
    for fault in [Fault::ReplyHangs, Fault::Refused] {
        let clock = ManualClock::new();
        let store = Far::new(&MemoryStore::new(), false);
        let settings = |engine: idem_runtime::EngineBuilder| engine.clock(clock.clone());
        let fixture = Fixture::with(store, LocalCache::new(), settings).await;
        let run = fixture.pay("a").await.unwrap();
        fixture.is_local("a", run).await;
        fixture.store.fail(StoreOperation::Resolve, [fault]);
        let entry = fixture.entry("a").await;
        let reset = tokio::spawn(entry.reset());
        until("it is sent", || {
            fixture.store.count(StoreOperation::Resolve) == 1
        })
        .await;
        clock.advance(Duration::from_secs(3));
        reset.await.unwrap().unwrap_err();
        let now = if fault == Fault::Refused {
            run
        } else {
            run + 1
        };
        assert_eq!(fixture.pay("a").await, Ok(now), "{fault:?}");
        fixture.is_local("a", now).await;
    }
}
