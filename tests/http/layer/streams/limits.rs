//! Time, permits and a shutdown.

use std::time::Duration;

use idem_runtime::OnRunning;

use super::super::bodies::next;
use super::shop::{EVENTS, ONE, Shop, TWO};
use crate::client::{
    LOST, RUNNING, Refused, Replayed, call, order, others, patiently, ran, replayed, routed, send,
    with_key,
};

/// A response with a stalled body, and one with a stalled client.
#[tokio::test]
async fn a_response_that_stalls_holds_its_key_no_longer_than_its_handler_may_run() {
    let (whole, error) = (replayed(ONE), Replayed(409, ONE));
    for (of_type, status, ends, during, after, at_last) in [
        // It is held back until its end. So is a stream of an error, which replaces no unknown outcome.
        ("text/plain", 200, false, RUNNING, RUNNING, ran("2")),
        (EVENTS, 409, false, RUNNING, RUNNING, ran("2")),
        (EVENTS, 200, false, RUNNING, LOST, LOST),
        // Nothing waits for a client that reads nothing.
        ("text/plain", 200, true, whole, whole, whole),
        (EVENTS, 200, true, whole, whole, whole),
        (EVENTS, 409, true, error, error, error),
    ] {
        let (minute, lease) = (Duration::from_mins(1), Duration::from_mins(3));
        let mut shop = Shop::of_type(of_type, status, |layer| {
            let layer = layer.lease(lease).max_run(minute * 15);
            layer.on_running(OnRunning::Reject)
        });
        let again = (shop.fixture).orders(shop.layer.clone(), |run| run.to_string());
        shop.write(ONE);
        if ends {
            shop.end();
        }
        let service = shop.service.clone();
        let unread = tokio::spawn(async move { call(&service, order("")).await });
        let is_held_back = matches!(after, Refused(409, _));
        let begins = if ends { "completed" } else { "claimed" };
        shop.fixture.saw(begins, 1).await;
        others().await;
        for at in 0..15 {
            let row = format!("{of_type} {status}, at {at} min, ends: {ends}");
            shop.repeats(row, &again, during).await;
            shop.fixture.clock.advance(minute);
            match at {
                14 if is_held_back => shop.fixture.saw("lease lost", 1).await,
                14 if !ends => shop.fixture.saw("unsaved", 1).await,
                _ if is_held_back => shop.fixture.saw("renewed", at + 1).await,
                _ => {}
            }
        }
        let row = |at| format!("{of_type} {status}, {at}, ends: {ends}");
        shop.repeats(row("after `max_run`"), &again, after).await;
        shop.fixture.clock.advance(lease);
        shop.repeats(row("after the lease"), &again, at_last).await;
        drop(unread);
    }
}

#[tokio::test]
async fn a_recorded_stream_counts_as_running_until_it_is_stored() {
    let mut shop = Shop::open(|layer| layer.max_running(1));
    drop(shop.first().await);
    let full = Refused(503, "too-many-running");
    let other = || with_key("\"other\"", "");
    shop.fixture
        .walk(&shop.service, [("full", other(), full)])
        .await;
    let engine = shop.engine.clone();
    let shutdown = tokio::spawn(async move { engine.shutdown(Duration::from_hours(1)).await });
    others().await;
    assert!(!shutdown.is_finished(), "a stream is recorded");
    shop.end();
    let ended = patiently("the end of the shutdown", shutdown).await;
    ended.unwrap().unwrap();
    assert_eq!(shop.fixture.events.count("completed value"), 1);
}

#[tokio::test]
async fn a_stream_that_is_not_recorded_does_not_count_as_running() {
    let shop = Shop::open(|layer| layer.record_streams(false).max_running(1));
    let _response = shop.first().await;
    let other = routed(axum::routing::post("other"), shop.layer.clone());
    assert_eq!(send(&other, with_key("\"other\"", "")).await.body, "other");
}

#[tokio::test]
async fn a_shutdown_waits_no_longer_than_it_may_for_a_stream_without_end() {
    let shop = Shop::open(|layer| layer);
    let mut response = shop.first().await;
    let engine = shop.engine.clone();
    let shutdown = tokio::spawn(async move { engine.shutdown(Duration::from_secs(20)).await });
    others().await;
    shop.fixture.clock.advance(Duration::from_secs(20));
    let ended = patiently("the end of the shutdown", shutdown).await;
    assert_eq!(ended.unwrap().unwrap_err().running, 1);
    shop.write(TWO);
    assert_eq!(next(&mut response).await.unwrap().unwrap(), TWO.as_bytes());
}
