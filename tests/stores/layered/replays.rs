//! The cost of calls.

use idem_harness::Edition;
use idem_runtime::Reconciled;
use idem_runtime::store::redis::RedisStore;
use idem_tests::shop::{connected, patiently, until};
use idem_tests::{Redis, Shape, shop};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_is_one_command_and_no_question_to_the_durable_store() {
    let (server, durable, fixture) = Fixture::alone().await;
    let first = fixture.pay("a").await.unwrap();
    assert_eq!(durable.asked(), (1, 1), "a first call claims and completes");
    fixture.settle().await;
    fixture.pay("a").await.unwrap(); // the script is known from here on
    let mut monitor = server.monitor();
    monitor.names();
    let before = durable.asked();
    for _ in 0..3 {
        assert_eq!(fixture.pay("a").await.unwrap(), first);
        assert_eq!(monitor.names(), ["EVALSHA"]);
    }
    assert_eq!(durable.asked(), before);
    assert_eq!(fixture.runs.count(), 1);
    assert_eq!(fixture.stats().hits, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_answer_is_replayed_with_two_commands() {
    let (server, durable, fixture) = Fixture::alone().await;
    let pay = async || {
        let call = fixture.call("large");
        let text = call
            .run(async |_| Ok::<_, PayError>("x".repeat(20_000)))
            .await;
        text.unwrap()
    };
    let first = pay().await;
    fixture.settle().await;
    assert_eq!(pay().await, first);
    let mut monitor = server.monitor();
    monitor.names();
    assert_eq!(pay().await, first);
    assert_eq!(monitor.names(), ["EVALSHA", "GETRANGE"]);
    assert_eq!(durable.asked(), (1, 1));
}

/// Finds a copy that is sent to a fast store whose limit it exceeds.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_over_the_limit_of_the_fast_store_has_no_copy() {
    let (server, durable) = (RedisServer::start(), Counted::memory());
    let fast = RedisStore::builder(server.url()).max_record_bytes(10_000);
    let fixture = Fixture::with(connected(fast).await, &durable, patient);
    let pay = async || {
        let call = fixture.call("large");
        let text = call.run(async |_| Ok::<_, PayError>("x".repeat(20_000)));
        text.await.unwrap()
    };
    let first = pay().await;
    fixture.settle().await;
    assert_eq!(pay().await, first);
    let copies = server.cli(&["EXISTS", &Fixture::copy_name("large")]);
    assert_eq!((&*copies, fixture.stats().failures), ("0", 0));
}

/// Replays from copies, then deletes them.
async fn copies_are_made_and_forgotten(fast: RedisStore) {
    let durable = Counted::memory();
    let fixture = Fixture::with(fast, &durable, patient);
    let first = fixture.pay("a").await.unwrap();
    fixture.settle().await;
    assert_eq!(fixture.pay("a").await.unwrap(), first);
    assert_eq!(durable.asked(), (1, 1));
    fixture.store.forget(&Fixture::key("a")).await.unwrap();
    assert_eq!(fixture.pay("a").await.unwrap(), first);
    assert_eq!(durable.asked(), (2, 1));
    fixture.settle().await;
    assert_eq!(fixture.stats().failures, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_rights_are_enough() {
    let rights = "on >secret ~fixture:* +eval +evalsha +get +getrange +set +time +pttl +pexpire \
                  +strlen +exists +hello +info resetchannels &fixture:* +publish +subscribe +unsubscribe";
    let server = RedisServer::builder().acl_user("app", rights).start();
    let url = server.url_as("app", "secret");
    let store = shop::patient(RedisStore::builder(url)).checked_prefix("fixture");
    copies_are_made_and_forgotten(store.connect().await.unwrap()).await;
    assert_eq!(server.cli(&["ACL", "LOG"]), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_may_be_in_front() {
    let redis = Redis::start(Shape::Cluster).await;
    copies_are_made_and_forgotten(redis.store().clone()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_of_another_age_may_be_in_front() {
    let redis = Redis::start(Shape::Edition(Edition::Redis62)).await;
    copies_are_made_and_forgotten(redis.store().clone()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_error_is_replayed_from_the_fast_store() {
    let (_server, durable, fixture) = Fixture::alone().await;
    for _ in 0..3 {
        let declined = async |_| {
            Err::<Receipt, _>(PayError::Declined {
                run: fixture.runs.start(),
            })
        };
        let answer = fixture.call("a").run(declined).await;
        assert_eq!(answer, Err(PayError::Declined { run: 1 }));
        fixture.settle().await;
    }
    assert_eq!(durable.asked(), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_with_a_hook_is_answered_from_the_fast_store() {
    let (_server, durable, fixture) = Fixture::alone().await;
    let first = fixture.pay("a").await.unwrap();
    fixture.settle().await;
    let hook = async |_| -> Reconciled<Receipt> { panic!("nobody need find out") };
    let body = async |_| panic!("it is done");
    let call = fixture.call("a");
    let again: Result<Receipt, PayError> = call.run_reconciled(hook, body).await;
    assert_eq!(again.unwrap(), first);
    assert_eq!(durable.asked(), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_calls_poll_the_fast_store_and_are_notified_there() {
    let (server, durable) = (RedisServer::start(), Counted::memory());
    let first = Fixture::on(&server, &durable).await;
    let mut others = Vec::new();
    for _ in 0..8 {
        let other = Fixture::on(&server, &durable).await.sharing(&first);
        others.push(Arc::new(other));
    }
    let (begun, goes_on) = (Notify::new(), Notify::new());
    let body = async |_| {
        let run = first.runs.start();
        begun.notify_one();
        goes_on.notified().await;
        Ok::<_, PayError>(Receipt { run })
    };
    let leads = first.call("a").run(body);
    let waits = async {
        begun.notified().await;
        let mut waiting = JoinSet::new();
        for other in &others {
            let other = Arc::clone(other);
            waiting.spawn(async move { other.pay("a").await });
        }
        let hits = || others.iter().map(|other| other.stats().hits).sum::<u64>();
        until("they have looked often", || hits() >= 20).await;
        let (reads, hits) = (durable.reads() as u64, hits());
        assert!(
            reads <= hits,
            "{reads} looks at the durable store, {hits} not"
        );
        goes_on.notify_one();
        let answers = patiently("all are told", waiting.join_all()).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap().run == 1));
    };
    let (answer, ()) = tokio::join!(leads, waits);
    assert_eq!(answer.unwrap().run, 1);
    assert_eq!(first.runs.count(), 1);
}
