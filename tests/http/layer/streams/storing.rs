//! Storing a stream: faults, resets, another answer, a short life.

use std::time::Duration;

use idem_runtime::testing::{Fault, StoreOperation};
use idem_runtime::{OnRunning, OnUnconfirmed};
use idem_tests::shop::{connect, started};

use super::super::bodies::next;
use super::shop::{BOTH, EVENTS, ONE, Shop, TWO, assert_both, assert_streaming};
use crate::client::{
    Fixture, RUNNING, call, gated, order, others, patiently, replayed, send, spawn,
};

/// The record outlives the stream, also with a shorter life of answers.
#[tokio::test]
async fn a_stream_outlasts_the_life_of_its_answer() {
    let second = Duration::from_secs(1);
    let mut shop = Shop::open(|layer| {
        let layer = layer.ttl(second).error_ttl(second);
        layer.on_running(OnRunning::Reject)
    });
    drop(shop.first().await);
    for _ in 0..14 {
        shop.fixture.clock.advance(Duration::from_mins(1));
        assert_streaming(&shop.repeat().await);
    }
    shop.write(TWO);
    shop.end();
    shop.completed().await;
    assert_both(&shop.repeat().await);
    assert_eq!(shop.fixture.runs(), 1);
}

#[tokio::test]
async fn a_reset_in_the_middle_lets_the_next_request_run() {
    for next_comes_first in [true, false] {
        let mut shop = Shop::open(|layer| layer.on_running(OnRunning::Reject));
        drop(shop.first().await);
        assert!(shop.entry().await.is_streaming());
        shop.entry().await.reset().await.unwrap();
        // A service over the same records, with a handler that answers.
        let (gate, again) = gated(&shop.fixture, shop.layer.clone());
        shop.write(TWO);
        if next_comes_first {
            let second = spawn(&again, order(""));
            gate.runs().await;
            shop.end();
            shop.repeats("while the second runs", &again, RUNNING).await;
            gate.go_on.notify_one();
            let second = patiently("the second answer", second).await.unwrap();
            assert_eq!(second.replay(), (false, "2"));
            shop.fixture.clock.advance(Duration::from_secs(10));
            shop.fixture.saw("adopted", 1).await;
            shop.repeats("afterwards", &again, replayed("2")).await;
        } else {
            shop.end();
            shop.fixture.saw("completed value late", 1).await;
            assert_both(&send(&again, order("")).await);
        }
    }
}

#[tokio::test]
async fn the_answer_of_an_operator_stays() {
    let mut shop = Shop::open(|layer| layer);
    drop(shop.first().await);
    let by_hand = http::Response::new("by hand");
    let entry = shop.entry().await;
    entry.resolve_response(by_hand).await.unwrap();
    shop.write(TWO);
    shop.end();
    shop.fixture.saw("adopted", 1).await;
    shop.repeats("again", &shop.service, replayed("by hand"))
        .await;
}

/// The unknown outcome gets no reply; it is sent again meanwhile.
#[tokio::test]
async fn an_outage_before_the_first_byte_delays_the_unknown_outcome_alone() {
    for on_unconfirmed in [OnUnconfirmed::WithinLease, OnUnconfirmed::Fail] {
        let mut shop = Shop::open(|layer| {
            let layer = layer.on_running(OnRunning::Reject);
            layer.on_unconfirmed(on_unconfirmed)
        });
        let elsewhere = shop.elsewhere();
        let clock = &shop.fixture.clock;
        shop.store.fail(StoreOperation::Complete, [Fault::Hangs; 2]);
        let client = spawn(&shop.service, order(""));
        clock.sleeper_within(Duration::from_secs(2)).await;
        shop.repeats("no reply", &elsewhere, RUNNING).await;
        clock.advance(Duration::from_secs(2));
        shop.fixture.saw("unsaved", 1).await;
        shop.write(ONE);
        // The second one is in flight, and has no reply either.
        shop.repeats("still none", &elsewhere, RUNNING).await;
        let sent = || shop.store.count(StoreOperation::Complete) == 3;
        shop.passes("a third is sent", sent).await;
        others().await;
        assert_streaming(&send(&elsewhere, order("")).await);
        shop.write(TWO);
        shop.end();
        let client = patiently("an answer", client).await.unwrap();
        if on_unconfirmed == OnUnconfirmed::Fail {
            assert_eq!(client.problem(), (503, "answer-unconfirmed"));
        } else {
            assert_eq!(client.said(), (200, BOTH));
        }
        shop.completed().await;
        assert_both(&send(&elsewhere, order("")).await);
    }
}

/// Storing the unknown outcome fails, or storing the whole answer.
#[tokio::test]
async fn each_fault_of_storing_delays_the_answer_alone() {
    for fault in [
        Fault::Lost,
        Fault::ReplyLost,
        Fault::Hangs,
        Fault::ReplyHangs,
        Fault::Twice,
        Fault::Refused,
        Fault::Full,
        Fault::Busy,
        Fault::Unreachable,
    ] {
        for faults in [[fault, Fault::None], [Fault::None, fault], [fault; 2]] {
            let mut shop = Shop::open(|layer| layer.on_running(OnRunning::Reject));
            shop.store.fail(StoreOperation::Complete, faults);
            let client = spawn(&shop.service, order(""));
            shop.write(ONE);
            shop.write(TWO);
            shop.end();
            let stored = || shop.fixture.events.count("completed value") == 1;
            shop.passes(&format!("{faults:?}"), stored).await;
            let client = patiently("all of the stream", client).await.unwrap();
            assert_eq!(client.said(), (200, BOTH), "{faults:?}");
            assert_both(&send(&shop.elsewhere(), order("")).await);
            assert_eq!(shop.fixture.runs(), 1, "{faults:?}");
        }
    }
}

/// The bytes of the record, seen from another connection: unknown before the first byte leaves, then the answer.
#[tokio::test]
async fn redis_has_an_unknown_outcome_until_the_end_of_a_stream() {
    let (server, store) = started().await;
    let stores = [store, connect(server.url()).await.unwrap()];
    let mut shop = Shop::over(stores, Fixture::new(), (EVENTS, 200), |layer| layer);
    let mut response = call(&shop.service, order("")).await;
    // The start-up check of a connection has a key for a millisecond.
    let record = server.cli(&["KEYS", "*shop.api*"]);
    let state = || {
        let state = server.cli(&["GETRANGE", record.trim(), "1", "1"]);
        state.chars().next()
    };
    assert_eq!(state(), Some('U'));
    shop.write(ONE);
    assert_eq!(next(&mut response).await.unwrap().unwrap(), ONE.as_bytes());
    let elsewhere = shop.elsewhere();
    assert_streaming(&send(&elsewhere, order("")).await);
    shop.write(TWO);
    shop.end();
    while next(&mut response).await.is_some() {}
    patiently("it is stored", async {
        while state() == Some('U') {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(state(), Some('D'));
    assert_both(&send(&elsewhere, order("")).await);
    assert_eq!(shop.fixture.runs(), 1);
}
