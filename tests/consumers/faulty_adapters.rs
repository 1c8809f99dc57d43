//! Adapters that hang or panic, and what a consumer does then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idem_consumers::{Consumer, ConsumerError, MemoryQueue, Raw, Summary, Verdict};
use idem_runtime::clock::ManualClock;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Context, Engine, Error, Policy};
use idem_tests::events::Events;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::adapter::{Adapter, Fault};

const HANDLED_FOR: Duration = Duration::from_secs(10);

fn queue(ids: &[&str]) -> MemoryQueue {
    let queue = MemoryQueue::new();
    for id in ids {
        queue.send(*id, "");
    }
    queue
}

/// Consumes one message after the other, with a handler of 10 s under a lease of 3 s. Returns the ids that were
/// acknowledged, and the number of bodies.
async fn consume(ids: &[&str], fault: Fault) -> (Result<Summary, ConsumerError>, Vec<String>, u32) {
    let (queue, bodies) = (queue(ids), Arc::new(AtomicU32::new(0)));
    queue.close();
    let source = Adapter::new(queue, fault);
    let settlements = Arc::clone(&source.settlements);
    let (count, events) = (Arc::clone(&bodies), Events::default());
    let handler = move |_: Raw, _: Context| {
        let bodies = Arc::clone(&count);
        async move {
            sleep(HANDLED_FOR).await;
            bodies.fetch_add(1, Ordering::Relaxed);
            Ok::<(), Error>(())
        }
    };
    // Its leases lapse by no clock of the machine: time is that of tokio, which is paused.
    let engine = Engine::builder(MemoryStore::new()).clock(ManualClock::new());
    let engine = engine.observer(events.clone()).build().unwrap();
    let consumer = Consumer::new(engine, "bills.collect").concurrency(1);
    let policy = Policy::new().lease(Duration::from_secs(3));
    let end = consumer.policy(policy).run(source, handler).await;
    if let Ok(summary) = &end {
        let unsettled = events.count("unsettled") as u64;
        assert_eq!(unsettled, summary.unsettled, "{:?}", events.all());
    }
    let verdicts = settlements.verdicts().into_iter();
    let acknowledged = verdicts.map(|(id, verdict)| {
        assert_eq!(verdict, Verdict::Acknowledge);
        id
    });
    (end, acknowledged.collect(), bodies.load(Ordering::Relaxed))
}

/// The first message is delivered again when the broker's time for it has passed, and answered by its record.
#[tokio::test(start_paused = true)]
async fn a_settlement_that_hangs_or_panics_keeps_no_other_message_waiting() {
    for fault in [Fault::SettleHangs, Fault::SettlePanics] {
        let (end, acknowledged, bodies) = consume(&["m-1", "m-2"], fault).await;
        assert_eq!(end.unwrap().unsettled, 1, "{fault:?}");
        assert_eq!((acknowledged.len(), bodies), (2, 2), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_panics_is_no_end_of_the_messages() {
    let (end, acknowledged, bodies) = consume(&["m-1"], Fault::NextPanics).await;
    assert!(matches!(end, Err(ConsumerError::Source(_))), "{end:?}");
    assert_eq!((&*acknowledged, bodies), (&["m-1".to_owned()][..], 1));
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_panics_drops_no_body() {
    let (end, acknowledged, bodies) = consume(&["m-1"], Fault::ExtendPanics).await;
    assert_eq!(end.unwrap().acknowledged, 1);
    assert_eq!((&*acknowledged, bodies), (&["m-1".to_owned()][..], 1));
}

/// The consumer stops before it takes the first delivery.
#[tokio::test(start_paused = true)]
async fn a_delivery_that_no_handler_has_begun_is_given_back_at_shutdown() {
    let source = Adapter::new(queue(&["m-1", "m-2", "m-3"]), Fault::None);
    let (settlements, begun) = (Arc::clone(&source.settlements), Arc::new(Notify::new()));
    let begins = Arc::clone(&begun);
    let handler = move |_: Raw, _: Context| {
        begins.notify_one();
        async {
            sleep(HANDLED_FOR).await;
            Ok::<(), Error>(())
        }
    };
    let consumer = Consumer::new(Engine::new(MemoryStore::new()), "bills.collect");
    // The source has delivered the next one by the time that the first handler begins.
    let shutdown = async move { begun.notified().await };
    let end = consumer.run_until(source, handler, shutdown).await;
    let (summary, taken) = (end.unwrap(), settlements.verdicts());
    assert!(settlements.source_gave_back.load(Ordering::Relaxed));
    let given_back = taken.iter().filter(|(_, it)| *it == Verdict::Stop).count();
    assert_eq!(summary.retried, given_back as u64, "{taken:?}");
    assert_eq!(summary.acknowledged, (taken.len() - given_back) as u64);
    assert!(given_back > 0, "{taken:?}");
}
