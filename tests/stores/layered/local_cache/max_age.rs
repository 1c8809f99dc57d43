//! How long a cached answer is used, and the age that it reports.

use std::sync::Arc;
use std::time::Duration;

use idem_runtime::clock::ManualClock;
use idem_runtime::testing::{Fault, StoreOperation};
use idem_runtime::{Answer, AnswerSource, EngineBuilder, cache::LocalCache};
use idem_tests::shop::{Failure, until};

use super::fixture::{Fixture, memory};

#[tokio::test]
async fn an_answer_ends_with_its_record_to_the_millisecond() {
    let clock = ManualClock::new();
    let fixture = Fixture::with(Arc::new(memory(&clock)), LocalCache::new(), |engine| {
        engine
            .clock(clock.clone())
            .ttl(Duration::from_secs(10))
            .error_ttl(Duration::from_secs(4))
    })
    .await;
    let run = fixture.pay("a").await.unwrap();
    let declined = async || {
        let call = fixture.call("b");
        let runs = fixture.run();
        let answer = call.run(async |_| {
            fixture.run();
            Err::<u32, _>(Failure::Declined)
        });
        assert_eq!(answer.await, Err(Failure::Declined));
        fixture.run() - runs - 1
    };
    assert_eq!(declined().await, 1);
    clock.advance(Duration::from_millis(3_999));
    assert_eq!(declined().await, 0);
    assert_eq!(fixture.told.count("local"), 1);
    clock.advance(Duration::from_millis(1));
    assert_eq!(declined().await, 1, "its life is over");
    clock.advance(Duration::from_millis(5_999));
    fixture.is_local("a", run).await;
    clock.advance(Duration::from_millis(1));
    assert_ne!(fixture.pay("a").await.unwrap(), run, "its life is over");
}

/// An answer that is replayed late has less than `max_age` of its retention left.
#[tokio::test]
async fn a_replayed_answer_ends_with_its_record_as_well() {
    let clock = ManualClock::new();
    let store = Arc::new(memory(&clock));
    let settings = |engine: EngineBuilder| {
        let engine = engine.clock(clock.clone());
        engine.ttl(Duration::from_secs(90))
    };
    let there = Fixture::with(store.clone(), LocalCache::new(), settings).await;
    let fixture = Fixture::with(store, LocalCache::new(), settings).await;
    let fixture = fixture.sharing(&there);
    let run = there.pay("a").await.unwrap();
    clock.advance(Duration::from_secs(80));
    fixture.is_asked("a", run).await;
    // The claim did not request an exact age, so the remaining retention is a lower bound.
    clock.advance(Duration::from_millis(8_999));
    fixture.is_local("a", run).await;
    clock.advance(Duration::from_millis(1));
    fixture.is_asked("a", run).await;
    clock.advance(Duration::from_millis(999));
    fixture.is_asked("a", run).await;
    clock.advance(Duration::from_millis(1));
    assert_ne!(fixture.pay("a").await.unwrap(), run);
}

/// On Redis, whose reply is less exact if the claim does not request the age of the answer.
#[tokio::test]
async fn the_age_of_an_answer_comes_from_its_store() {
    let server = idem_harness::RedisServer::start();
    let store = || async {
        let store = idem_tests::shop::connect(server.url()).await.unwrap();
        Arc::new(store)
    };
    let there = Fixture::on(store().await).await;
    let fixture = Fixture::on(store().await).await.sharing(&there);
    let run = there.pay("a").await.unwrap();
    fixture.is_asked("a", run).await;
    fixture.is_local("a", run).await;
    let aged = async || {
        let call = fixture.call("a");
        let body = async |_| Ok::<_, Failure>(Answer::from(fixture.run()));
        call.run(body).await.unwrap().how()
    };
    let claims = fixture.claims();
    assert_eq!(aged().await, AnswerSource::Replayed);
    assert_eq!(fixture.claims(), claims + 1);
    for _ in 0..2 {
        assert_eq!(aged().await, AnswerSource::Replayed);
        fixture.is_local("a", run).await;
    }
    assert_eq!(fixture.claims(), claims + 1);
}

#[tokio::test]
async fn after_max_age_the_store_is_asked_once() {
    let clock = ManualClock::new();
    let cache = LocalCache::new().max_age(Duration::from_secs(20));
    let fixture = Fixture::with(Arc::new(memory(&clock)), cache, |engine| {
        engine.clock(clock.clone())
    })
    .await;
    let run = fixture.pay("a").await.unwrap();
    for _ in 0..3 {
        clock.advance(Duration::from_millis(19_999));
        fixture.is_local("a", run).await;
        clock.advance(Duration::from_millis(1));
        fixture.is_asked("a", run).await;
    }
}

/// The reply to the completion was lost, and it was sent again: the record's age counts from the first one.
#[tokio::test]
async fn a_completion_that_was_sent_twice_lives_since_the_first() {
    let clock = ManualClock::new();
    let fixture = Fixture::with(Arc::new(memory(&clock)), LocalCache::new(), |engine| {
        engine.clock(clock.clone()).ttl(Duration::from_secs(30))
    })
    .await;
    fixture
        .store
        .fail(StoreOperation::Complete, [Fault::ReplyLost]);
    let paying = {
        let fixture = fixture.clone();
        tokio::spawn(async move { fixture.pay("a").await })
    };
    until("it is sent", || {
        fixture.store.count(StoreOperation::Complete) == 2
    })
    .await;
    clock.advance(Duration::from_secs(1));
    let run = paying.await.unwrap().unwrap();
    assert_eq!(fixture.store.count(StoreOperation::Complete), 3);
    clock.advance(Duration::from_millis(28_999));
    fixture.is_local("a", run).await;
    clock.advance(Duration::from_millis(1));
    assert_ne!(fixture.pay("a").await.unwrap(), run);
}

/// The caller waits for the reply no longer, and the engine's thread sends the completion again.
#[tokio::test]
async fn a_completion_that_the_engine_sends_again_lives_since_that_of_the_caller() {
    let clock = ManualClock::new();
    let fixture = Fixture::with(Arc::new(memory(&clock)), LocalCache::new(), |engine| {
        engine.clock(clock.clone()).ttl(Duration::from_secs(30))
    })
    .await;
    let sent = || fixture.store.count(StoreOperation::Complete);
    let (before, entries) = (sent(), fixture.stats().entries);
    fixture
        .store
        .fail(StoreOperation::Complete, [Fault::ReplyHangs]);
    let paying = {
        let fixture = fixture.clone();
        tokio::spawn(async move { fixture.pay("a").await })
    };
    until("it is sent", || sent() == before + 1).await;
    clock.advance(Duration::from_secs(2));
    let run = paying.await.unwrap().unwrap();
    until("it is cached", || fixture.stats().entries > entries).await;
    assert_eq!(sent(), before + 2);
    clock.advance(Duration::from_millis(27_999));
    fixture.is_local("a", run).await;
    clock.advance(Duration::from_millis(1));
    assert_ne!(fixture.pay("a").await.unwrap(), run, "its life is over");
}

#[tokio::test]
async fn the_age_of_a_cached_answer_is_that_of_the_store() {
    let clock = ManualClock::new();
    let fixture = Fixture::with(Arc::new(memory(&clock)), LocalCache::new(), |engine| {
        engine.clock(clock.clone())
    })
    .await;
    let pay = async || {
        let call = fixture.call("a");
        let body = async |_| Ok::<_, Failure>(Answer::from(fixture.run()));
        call.run(body).await.unwrap()
    };
    assert!(pay().await.was_executed());
    clock.advance(Duration::from_secs(7));
    let again = pay().await;
    assert_eq!(fixture.told.all(), ["local"]);
    assert_eq!(again.how(), AnswerSource::Replayed);
    assert_eq!(again.age(), Duration::from_secs(7));
}
