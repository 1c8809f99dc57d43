//! Calls that the cache must, and calls that it must not, answer.

use std::sync::Arc;
use std::time::Duration;

use idem_runtime::clock::ManualClock;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::testing::StoreOperation;
use idem_runtime::{ErrorKind, OnDuplicate, cache::LocalCache};
use idem_tests::shop::{Failure, until};

use super::fixture::{Far, Fixture, memory};

fn fresh() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new())
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

/// In the store alone a late answer has a later claim's header.
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
    assert_eq!(fixture.locals(), 2);
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

/// A store without notifications yet, and a store without any.
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
    listener.hearing(idem_runtime::store::author::Hearing::All);
    fixture.is_asked("a", run).await;
    fixture.is_local("a", run).await;
}
