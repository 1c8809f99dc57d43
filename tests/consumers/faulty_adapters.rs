//! Adapters that hang or panic, and their consumer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use idem_consumers::{ConsumerError, MemoryQueue, Summary, Verdict};
use idem_runtime::Policy;
use idem_runtime::clock::ManualClock;
use tokio::time::sleep;

use super::adapter::{Adapter, Fault};
use super::desk::{Desk, ids};

/// Consumes messages in turn. The handler takes 10 s under a lease of 3 s. Returns the number of acknowledged messages.
async fn consume(messages: u32, fault: Fault) -> (Result<Summary, ConsumerError>, usize) {
    let queue = MemoryQueue::new();
    for id in ids(0..messages) {
        queue.send(&id, &id);
    }
    queue.close();
    let source = Adapter::new(queue, fault);
    let settlements = Arc::clone(&source.settlements);
    // Its leases lapse by no clock of the machine: time is that of tokio, which is paused.
    let mut desk = Desk::at(&ManualClock::new());
    let lease = Policy::new().lease(Duration::from_secs(3));
    let consumer = desk.consumer().concurrency(1).policy(lease);
    desk.run(consumer, source, async |_| {
        sleep(Duration::from_secs(10)).await;
        Ok(())
    });
    let end = desk.end().await;
    if let Ok(summary) = &end {
        let unsettled = desk.events.count("unsettled") as u64;
        assert_eq!(unsettled, summary.unsettled, "{:?}", desk.events.all());
    }
    desk.assert_one_body_for_each_of(messages as usize);
    let gave_back = settlements.source_gave_back.load(Ordering::Relaxed);
    assert_eq!(gave_back, fault != Fault::NextPanics);
    let verdicts = settlements.verdicts();
    let acknowledged = verdicts.iter().all(|(_, it)| *it == Verdict::Acknowledge);
    assert!(acknowledged, "{verdicts:?}");
    (end, verdicts.len())
}

/// The broker delivers the first message again, and its record answers it.
#[tokio::test(start_paused = true)]
async fn a_settlement_that_hangs_or_panics_keeps_no_other_message_waiting() {
    for fault in [Fault::SettleHangs, Fault::SettlePanics] {
        let (end, acknowledged) = consume(2, fault).await;
        assert_eq!((end.unwrap().unsettled, acknowledged), (1, 2), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_panics_is_no_end_of_the_messages() {
    let (end, acknowledged) = consume(1, Fault::NextPanics).await;
    assert!(matches!(end, Err(ConsumerError::Source(_))), "{end:?}");
    assert_eq!(acknowledged, 1);
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_panics_drops_no_body() {
    let (end, acknowledged) = consume(1, Fault::ExtendPanics).await;
    assert_eq!((end.unwrap().acknowledged, acknowledged), (1, 1));
}
