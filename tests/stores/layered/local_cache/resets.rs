//! Resets of cached answers.

use std::sync::Arc;
use std::time::Duration;

use idem_runtime::cache::LocalCache;
use idem_runtime::clock::ManualClock;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::testing::{Fault, StoreOperation};
use idem_tests::shop::until;

use super::fixture::{Far, Fixture, memory};

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
