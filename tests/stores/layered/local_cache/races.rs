//! Resets of answers that are about to be cached, step by step.

use std::sync::Arc;

use idem_runtime::cache::LocalCache;
use idem_runtime::clock::ManualClock;
use idem_runtime::store::author::{Hearing, Listener};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::testing::{Fault, StoreOperation};
use idem_tests::shop::{Failure, patiently, until};
use tokio::task::JoinHandle;

use super::fixture::{Far, Fixture};

/// A fixture, its listener, and another process on the same records.
struct Race {
    fixture: Fixture,
    listener: Arc<dyn Listener>,
    other: Fixture,
}

impl Race {
    async fn new() -> Self {
        let store = MemoryStore::new();
        let far = Far::new(&store, true);
        // Its clock stands still, so that it reads only when notified.
        let clock = ManualClock::new();
        let fixture = Fixture::closed(far.clone(), LocalCache::new(), |engine| engine.clock(clock));
        fixture.pay("first").await.unwrap();
        let listener = far.listener().await;
        listener.hearing(Hearing::All);
        let other = Fixture::on(Arc::new(store)).await.sharing(&fixture);
        Self {
            fixture,
            listener,
            other,
        }
    }

    /// Resets the answer from the other process. This fixture is not notified yet.
    async fn takes_back(&self) {
        self.other.reset("a").await;
    }

    /// Notifies the fixture of the reset.
    async fn heard(&self) {
        let entry = self.other.entry("a").await;
        self.listener.resolved(entry.key());
    }

    /// A call with an executed claim, whose reply is on its way.
    async fn claim_on_its_way(&self) -> JoinHandle<Result<u32, Failure>> {
        self.on_its_way(StoreOperation::Claim).await
    }

    async fn on_its_way(&self, operation: StoreOperation) -> JoinHandle<Result<u32, Failure>> {
        self.fixture.store.fail(operation, [Fault::ReplyHeld]);
        let sent = self.fixture.store.count(operation);
        let fixture = self.fixture.clone();
        let call = tokio::spawn(async move { fixture.pay("a").await });
        until("it is sent", || self.fixture.store.count(operation) > sent).await;
        call
    }

    async fn arrives(&self, call: JoinHandle<Result<u32, Failure>>) -> u32 {
        self.fixture.store.deliver();
        call.await.unwrap().unwrap()
    }
}

#[tokio::test]
async fn a_replay_that_arrives_after_word_of_the_reset_is_not_kept() {
    let race = Race::new().await;
    let run = race.other.pay("a").await.unwrap();
    let replay = race.claim_on_its_way().await;
    race.takes_back().await;
    race.heard().await;
    assert_eq!(
        race.arrives(replay).await,
        run,
        "as it was when it was asked"
    );
    assert_eq!(race.fixture.pay("a").await, Ok(run + 1));
}

#[tokio::test]
async fn an_own_answer_that_is_taken_back_before_its_reply_comes_is_not_kept() {
    let race = Race::new().await;
    let first = race.on_its_way(StoreOperation::Complete).await;
    race.takes_back().await;
    race.heard().await;
    let run = race.arrives(first).await;
    assert_eq!(race.fixture.pay("a").await, Ok(run + 1));
}

/// The same for the answer found by a waiting call.
#[tokio::test]
async fn an_answer_found_after_a_gap_is_not_cached() {
    let race = Race::new().await;
    let (ends, end) = tokio::sync::oneshot::channel::<()>();
    let other = race.other.clone();
    let body = tokio::spawn(async move {
        let call = other.call("a");
        call.run(async |_| {
            end.await.unwrap();
            Ok::<_, Failure>(other.run())
        })
        .await
    });
    until("the body runs", || race.other.claims() == 2).await;
    // The first read finds a running body. The second finds its answer, and its reply is held.
    let store = &race.fixture.store;
    store.fail(StoreOperation::Read, [Fault::None, Fault::ReplyHeld]);
    let fixture = race.fixture.clone();
    let waiting = tokio::spawn(async move { fixture.pay("a").await });
    until("it has looked", || store.count(StoreOperation::Read) == 1).await;
    ends.send(()).unwrap();
    let run = body.await.unwrap().unwrap();
    until("it looks", || store.count(StoreOperation::Read) == 2).await;
    race.listener.hearing(Hearing::Nothing);
    race.takes_back().await;
    race.listener.hearing(Hearing::All);
    store.deliver();
    assert_eq!(waiting.await.unwrap(), Ok(run));
    assert_eq!(race.fixture.pay("a").await, Ok(run + 1));
}

/// From before the reset is sent until it has returned, and after.
#[tokio::test]
async fn nothing_is_answered_or_kept_while_this_engine_takes_an_answer_back() {
    for held in [Fault::Held, Fault::ReplyHeld] {
        let fixture = Fixture::on(Far::new(&MemoryStore::new(), false)).await;
        let run = fixture.pay("a").await.unwrap();
        fixture.is_local("a", run).await;
        // The entry is read before the reset is sent.
        let entry = fixture.entry("a").await;
        fixture.store.fail(StoreOperation::Resolve, [held]);
        let reset = tokio::spawn(entry.reset());
        until("it is sent", || {
            fixture.store.count(StoreOperation::Resolve) == 1
        })
        .await;
        // Only the store knows whether the reset was executed yet.
        let now = if held == Fault::Held { run } else { run + 1 };
        fixture.is_asked("a", now).await;
        fixture.is_asked("a", now).await;
        assert_eq!(fixture.locals(), 1);
        fixture.store.deliver();
        let reset = reset.await.unwrap();
        reset.unwrap();
        assert_eq!(fixture.pay("a").await, Ok(run + 1), "{held:?}");
        fixture.is_local("a", run + 1).await;
    }
}

/// The caller of the reset leaves, and the reset is executed later.
#[tokio::test]
async fn a_reset_that_is_dropped_does_not_close_the_cache_for_ever() {
    let fixture = Fixture::on(Far::new(&MemoryStore::new(), false)).await;
    let run = fixture.pay("a").await.unwrap();
    let entry = fixture.entry("a").await;
    fixture.store.fail(StoreOperation::Resolve, [Fault::Hangs]);
    let reset = tokio::spawn(entry.reset());
    until("it is sent", || {
        fixture.store.count(StoreOperation::Resolve) == 1
    })
    .await;
    fixture.is_asked("a", run).await;
    reset.abort();
    reset.await.unwrap_err();
    fixture.is_asked("a", run).await;
    fixture.is_local("a", run).await;
}

/// A call after a reset never receives an earlier claim's reply.
#[tokio::test]
async fn a_call_after_a_reset_does_not_wait_with_one_from_before() {
    for heard in [false, true] {
        let race = Race::new().await;
        let run = race.other.pay("a").await.unwrap();
        let before = race.claim_on_its_way().await;
        if heard {
            race.takes_back().await;
            race.heard().await;
        } else {
            race.fixture.reset("a").await;
        }
        let after = patiently("a call that follows no other", race.fixture.pay("a"));
        assert_eq!(after.await, Ok(run + 1), "heard: {heard}");
        assert_eq!(race.arrives(before).await, run);
        race.fixture.is_local("a", run + 1).await;
    }
}
