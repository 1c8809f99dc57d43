//! The longest use of a cached answer, and its reported age.

use std::sync::Arc;
use std::time::Duration;

use idem_runtime::clock::ManualClock;
use idem_runtime::testing::{Fault, StoreOperation};
use idem_runtime::{Answer, AnswerSource, EngineBuilder, cache::LocalCache};
use idem_tests::shop::{Failure, until};

use super::fixture::{Fixture, memory};

/// Two values and an error, each with its own retention.
#[tokio::test]
async fn an_answer_ends_with_its_record_to_the_millisecond() {
    let clock = ManualClock::new();
    let fixture = Fixture::with(Arc::new(memory(&clock)), LocalCache::new(), |engine| {
        let engine = engine.clock(clock.clone()).ttl(Duration::from_secs(10));
        engine.error_ttl(Duration::from_secs(4))
    })
    .await;
    for (ends, chosen, seconds) in [
        (Ok(()), None, 10),
        (Ok(()), Some(Duration::from_secs(7)), 7),
        (Err(Failure::Declined), Some(Duration::from_secs(1)), 4),
    ] {
        // One more than the runs of the body.
        let runs = async || {
            let (before, call) = (fixture.run(), fixture.call(&seconds.to_string()));
            let body = async |_| {
                let run = fixture.run();
                ends.clone().map(|()| run)
            };
            let call = call.ttl_of(move |_: &u32| chosen);
            let _: Result<u32, Failure> = call.run(body).await;
            fixture.run() - before
        };
        assert_eq!(runs().await, 2);
        clock.advance(Duration::from_millis(seconds * 1_000 - 1));
        let (local, replayed) = (fixture.locals(), runs().await);
        assert_eq!(
            (replayed, fixture.locals()),
            (1, local + 1),
            "its record lives"
        );
        clock.advance(Duration::from_millis(1));
        assert_eq!(runs().await, 2, "its life is over");
    }
}

/// A late replay has less than `max_age` of its retention left.
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

/// On Redis, whose reply to an undated claim is less exact.
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

/// The caller leaves, and the engine's thread sends the completion again.
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
