//! A process that ends in the middle of a stream.

use std::num::NonZeroU16;
use std::time::Duration;

use axum::response::Response;
use idem_runtime::OnRunning;
use idem_runtime::admin::EntryState;
use idem_runtime::testing::{Fault, StoreOperation};
use tokio::runtime::{Builder, Runtime};

use super::shop::{BOLD, Set, Shop, assert_streaming, landed};
use crate::client::{RUNNING, UNKNOWN, patiently, ran, replayed};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// The process of the first request ends in the middle: the store keeps its records, and nothing runs there any more.
fn crash(shop: &Shop, unacknowledged: usize) -> Response {
    let hang = std::iter::repeat_n(Fault::Hangs, unacknowledged);
    shop.store.fail(StoreOperation::Complete, hang);
    let sent = || shop.store.count(StoreOperation::Complete) >= unacknowledged;
    runtime().block_on(async {
        let (first, ()) = tokio::join!(shop.first(), shop.passes("it is sent", sent));
        shop.repeats("during the stream", &shop.service, RUNNING)
            .await;
        first
    })
}

#[test]
fn a_crash_in_the_middle_starts_no_other_handler() {
    // Two requests without a reply: the engine goes on storing that the outcome is unknown.
    for unacknowledged in [0, 2] {
        let shop = Shop::open(|layer| {
            let layer = layer.max_attempts(NonZeroU16::new(3));
            layer.on_running(OnRunning::Reject)
        });
        let first = crash(&shop, unacknowledged);
        runtime().block_on(async {
            patiently("the outcome is unknown", async {
                while !shop.entry().await.is_streaming() {}
            })
            .await;
            assert_streaming(&shop.repeat().await);
            // Neither after the lease nor after the time of any handler.
            for (minutes, seen) in [(1, RUNNING), (20, UNKNOWN), (60, UNKNOWN)] {
                shop.fixture.clock.advance(Duration::from_mins(minutes));
                shop.repeats(minutes, &shop.service, seen).await;
            }
            // By then it cannot go on.
            let late = shop.repeat().await;
            assert_eq!(late.json()["retryable"], false);
            assert_eq!(late.header("retry-after"), None);
            assert_eq!(shop.fixture.runs(), 1);
            assert_eq!(shop.entry().await.state(), EntryState::Unknown);
        });
        drop(first);
    }
}

/// With a hook the claim is held: a hook that ran beside the handler could start another.
#[test]
fn a_crash_of_a_held_stream_ends_as_that_of_a_handler() {
    for (set, after) in [(landed as Set, replayed("found")), (BOLD, ran("2"))] {
        let shop = Shop::open(|layer| set(layer.on_running(OnRunning::Reject)));
        let first = crash(&shop, 0);
        runtime().block_on(async {
            shop.fixture.clock.advance(Duration::from_mins(1));
            let again = (shop.fixture).orders(shop.layer.clone(), |run| run.to_string());
            shop.repeats("after the crash", &again, after).await;
        });
        drop(first);
    }
}
