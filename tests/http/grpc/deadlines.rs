//! `grpc-timeout`: a repeat waits for no longer than its client does.

use std::time::Duration;

use idem_runtime::OnRunning;
use tokio::sync::watch;
use tonic::Code;

use super::layer;
use super::payments::{KEY, Payments, Shop, numbered, order, raw, receipt, refused};
use crate::client::{Fixture, frames, patiently};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A service that answers once it may.
fn waiting() -> (watch::Sender<bool>, Payments) {
    let go_on = watch::Sender::new(false);
    let through = go_on.subscribe();
    let payments = Payments::new(move |run, _| {
        let mut through = through.clone();
        async move {
            through.wait_for(|go_on| *go_on).await.unwrap();
            Ok(receipt(run))
        }
    });
    (go_on, payments)
}

/// The clock of the engine is set by hand: only the layer's use of the time-out ends the wait.
#[tokio::test]
async fn the_wait_for_a_running_call_ends_in_time_for_the_refusal() {
    for (set, timeout, waits) in [
        // A tenth for the way, and 1 s of a longer time.
        (Some(seconds(900)), Some(seconds(600)), seconds(599)),
        (Some(seconds(900)), Some(seconds(300)), seconds(299)),
        (Some(seconds(900)), None, seconds(900)),
        // It shortens the wait, and does not lengthen it.
        (Some(seconds(200)), Some(seconds(600)), seconds(200)),
        (None, Some(seconds(600)), seconds(5)),
    ] {
        let fixture = Fixture::new();
        let (go_on, payments) = waiting();
        let http = set
            .into_iter()
            .fold(fixture.layer().lease(seconds(3_600)), |layer, wait| {
                layer.on_running(OnRunning::Wait(wait))
            });
        let shop = Shop::open(payments, layer(http)).await;
        let client = shop.client().await;
        let first = tokio::spawn(async move { client.charge(order("rum")).await });
        fixture.saw("claimed", 1).await;
        let client = shop.client().await;
        let again = tokio::spawn(async move {
            let mut order = order("rum");
            if let Some(timeout) = timeout {
                order.set_timeout(timeout);
            }
            client.charge(order).await
        });
        patiently("it waits", fixture.clock.sleeper_within(waits)).await;
        assert_eq!(
            fixture.clock.next_wake(),
            Some(waits),
            "{set:?} {timeout:?}"
        );
        fixture.clock.advance(waits);
        let refusal = patiently("a refusal", again).await.unwrap();
        assert_eq!(
            refused(refusal),
            (Code::Unavailable, "REQUEST_RUNNING".into())
        );
        go_on.send_replace(true);
        assert_eq!(numbered(first.await.unwrap()), (1, false));
        assert_eq!(shop.payments.runs(), 1);
    }
}

/// Within it the answer comes.
#[tokio::test]
async fn a_call_with_a_deadline_gets_the_answer_of_the_running_one() {
    let fixture = Fixture::new();
    let (go_on, payments) = waiting();
    let shop = Shop::open(payments, layer(fixture.layer())).await;
    let mut calls = Vec::new();
    for _ in 0..2 {
        let client = shop.client().await;
        calls.push(tokio::spawn(async move {
            let mut order = order("rum");
            order.set_timeout(seconds(600));
            client.charge(order).await
        }));
    }
    fixture.saw("claimed", 1).await;
    go_on.send_replace(true);
    for call in calls {
        assert_eq!(numbered(patiently("an answer", call).await.unwrap()).0, 1);
    }
    assert_eq!(shop.payments.runs(), 1);
}

#[tokio::test]
async fn the_wait_for_a_request_ends_in_time_for_the_refusal() {
    let fixture = Fixture::new();
    let shop = Shop::open(Payments::numbered(), layer(fixture.layer())).await;
    for (timeout, waits) in [
        ("10S", seconds(9)),
        ("100S", seconds(30)),
        ("x", seconds(30)),
    ] {
        let client = shop.client().await;
        let (_source, body) = frames();
        let mut call = raw(KEY, Vec::new()).map(|_| tonic::body::Body::new(body));
        call.headers_mut()
            .insert("grpc-timeout", timeout.parse().unwrap());
        let refusal = tokio::spawn(async move { client.raw(call).await.status() });
        patiently("it waits", fixture.clock.sleeper_within(waits)).await;
        assert_eq!(fixture.clock.next_wake(), Some(waits), "{timeout}");
        fixture.clock.advance(waits);
        let refusal = patiently("a refusal", refusal).await.unwrap();
        assert_eq!(
            refused(Err(refusal)),
            (Code::Unavailable, "BODY_TIMEOUT".into())
        );
    }
    assert_eq!(shop.payments.runs(), 0);
}
