//! The metrics of calls, as an exporter shows them.

use std::future::ready;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use idem_consumers::{
    BrokerError, Consumer, MemoryDelivery, MemoryQueue, OnLostSubscription, Source, SourceEvents,
};
use idem_runtime::admin::EntryFilter;
use idem_runtime::cache::LocalCache;
use idem_runtime::observe::MetricsObserver;
use idem_runtime::{Class, Classify, Context, OnOutage};
use idem_tests::faulty::{Fault, StoreOperation};
use idem_tests::payment::PayError;
use serde::{Deserialize, Serialize};

use crate::support::{Answer, Shop, never, receipt};

#[tokio::test]
async fn calls_are_counted_by_outcome_and_timed() {
    let shop = Shop::new("counted.pay");
    let body = |_| async {
        shop.clock.advance(Duration::from_millis(250));
        receipt(1)
    };
    shop.pay().run(body).await.unwrap();
    for _ in 0..4 {
        shop.pay().run(|_| async { never() }).await.unwrap();
    }
    assert_eq!(shop.calls("executed", "value"), 1.0);
    assert_eq!(shop.calls("replayed", "value"), 4.0);
    assert_eq!(shop.metric("idem_calls_total", &[]), 5.0);
    assert_eq!(shop.metric("idem_body_seconds_count", &[]), 1.0);
    assert!((shop.metric("idem_body_seconds_sum", &[]) - 0.25).abs() < 1e-9);
    assert_eq!(
        shop.metric("idem_body_seconds_bucket", &["le=\"0.1\""]),
        0.0
    );
    assert_eq!(
        shop.metric("idem_body_seconds_bucket", &["le=\"0.25\""]),
        1.0
    );
    // The faulty store hands no answer over at hand, so each call queries it.
    assert_eq!(shop.metric("idem_store_seconds_count", &[]), 5.0);
    assert_eq!(shop.metric("idem_running_calls", &[]), 0.0);
}

#[tokio::test]
async fn metrics_of_an_alert_exist_before_their_first_event() {
    let shop = Shop::new("exists.pay");
    shop.pay().run(|_| async { receipt(1) }).await.unwrap();
    let text = shop.all.exporter.render();
    for name in [
        "idem_unknown_outcomes_total",
        "idem_leases_lost_total",
        "idem_unprotected_total",
        "idem_unsaved_total",
        "idem_renewals_total",
        "idem_running_calls",
    ] {
        let sample = format!("{name}{{operation=\"exists.pay\"");
        assert!(text.contains(&sample), "{name}");
    }
}

#[tokio::test]
async fn a_hit_of_the_local_cache_is_counted_and_reads_no_store() {
    let shop = Shop::with("cached.pay", |engine| engine.local_cache(LocalCache::new()));
    shop.pay().run(|_| async { receipt(1) }).await.unwrap();
    while shop.metric("idem_local_cache_hits_total", &[]) < 1.0 {
        // The cache opens on the engine's own thread.
        tokio::task::yield_now().await;
        shop.pay().run(|_| async { receipt(1) }).await.unwrap();
    }
    let spans = shop.all.calls("cached.pay");
    let last = spans.iter().rfind(|span| span.name == "idem.call").unwrap();
    assert_eq!(last.field("idem.local"), "true");
    assert_eq!(last.field("idem.store_ms"), "");
}

#[tokio::test]
async fn a_body_without_protection_is_counted() {
    let shop = Shop::with("unprotected.pay", |engine| {
        engine.claim_deadline(Duration::ZERO)
    });
    shop.store
        .fail(StoreOperation::Claim, [Fault::Unreachable; 4]);
    let call = shop.pay().on_outage(OnOutage::Run);
    let answer = call.run(|_| async { receipt(1) }).await;
    assert_eq!(answer, receipt(1));
    assert_eq!(shop.metric("idem_unprotected_total", &[]), 1.0);
    assert_eq!(shop.calls("unprotected", "value"), 1.0);
    let spans = shop.closed(1).await;
    let warns = Some(tracing::Level::WARN);
    assert_eq!(spans[0].level("unprotected"), warns);
}

#[tokio::test]
async fn unknown_records_are_what_a_listing_has_counted() {
    let shop = Shop::new("listed.pay");
    let late = shop
        .pay()
        .run(|_| async { Err(PayError::TimedOut) as Answer });
    assert_eq!(late.await, Err(PayError::TimedOut));
    let unknown = shop.engine.entries().state(EntryFilter::Unknown);
    MetricsObserver::set_unknown_records(unknown.count().await.unwrap());
    assert_eq!(shop.all.metric("idem_unknown_records", &[]), 1.0);
}

#[derive(Debug, Deserialize)]
struct Bill {
    account: u64,
}

#[derive(Debug, Deserialize, Serialize)]
struct NoSuchAccount;

impl Classify for NoSuchAccount {
    fn class(&self) -> Class {
        Class::Business
    }
}

/// Reports a loss of each kind.
struct Losing(MemoryQueue, Arc<OnceLock<SourceEvents>>);

impl Source for Losing {
    type Delivery = MemoryDelivery;

    fn report_to(&mut self, events: SourceEvents) {
        events.broker_lost("no route");
        events.broker_lost("still no route");
        events.subscription_lost("the group is gone", OnLostSubscription::FromNow);
        events.message_skipped("7-0", "trimmed");
        let _ = self.1.set(events);
    }

    async fn next(&mut self) -> Result<Option<MemoryDelivery>, BrokerError> {
        self.0.next().await
    }
}

/// Finds a loss without a metric, and an alarm that never ends. Finds an alarm that another consumer of the operation
/// ends.
#[tokio::test]
async fn losses_of_a_consumer_are_counted_and_its_broker_is_lost_until_it_ends() {
    let shop = Shop::new("bills.losses");
    let queue = MemoryQueue::new();
    queue.close();
    let consumer = || Consumer::new(shop.engine.clone(), shop.operation);
    let handler = |_: Bill, _: Context| ready(Ok::<_, NoSuchAccount>(()));
    let held = Arc::new(OnceLock::new());
    let losing = Losing(queue.clone(), Arc::clone(&held));
    let summary = consumer().run(losing, handler).await;
    assert_eq!(summary.unwrap().skipped, 1);
    for name in [
        "idem_broker_lost",
        "idem_broker_losses_total",
        "idem_subscriptions_lost_total",
        "idem_messages_skipped_total",
    ] {
        assert_eq!(shop.metric(name, &[]), 1.0, "{name}");
    }
    consumer().run(queue, handler).await.unwrap();
    assert_eq!(shop.metric("idem_broker_lost", &[]), 1.0);
    drop(held);
    assert_eq!(shop.metric("idem_broker_lost", &[]), 0.0);
}

#[tokio::test]
async fn a_dead_letter_of_a_consumer_is_counted() {
    let shop = Shop::new("bills.observed");
    let queue = MemoryQueue::new();
    queue.send("bill-1", r#"{"account":1}"#);
    queue.send("bill-2", r#"{"account":2}"#);
    queue.close();
    let consumer = Consumer::new(shop.engine.clone(), shop.operation);
    let handler = |bill: Bill, _: Context| {
        let found = bill.account == 1;
        ready(if found { Ok(()) } else { Err(NoSuchAccount) })
    };
    consumer.run(queue, handler).await.unwrap();
    assert_eq!(shop.calls("executed", "value"), 1.0);
    assert_eq!(shop.calls("executed", "error"), 1.0);
    let reason = ["reason=\"business\""];
    assert_eq!(shop.metric("idem_dead_letters_total", &reason), 1.0);
}
