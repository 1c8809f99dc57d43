//! Verdicts on the messages of a queue in memory.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_consumers::{
    BrokerError, Consumer, ConsumerError, DeadLetterReason, Delivery, MemoryDelivery, MemoryQueue,
    Message, OnBusinessError, Raw, Summary,
};
use idem_runtime::clock::ManualClock;
use idem_runtime::key::{DEFAULT_MAX_KEY_BYTES, KeyBuilder, redacted};
use idem_runtime::observe::{Event, EventKind};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Class, Classify, Context, Engine, ErrorKind, Observer, Policy};
use idem_tests::events::Events;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

#[derive(Debug, Deserialize)]
struct Bill {
    account: u64,
}

#[derive(Debug, Deserialize, Serialize)]
enum BillError {
    NoSuchAccount,
    DatabaseDown,
    TimedOut,
}

impl Classify for BillError {
    fn class(&self) -> Class {
        match self {
            Self::NoSuchAccount => Class::Business,
            Self::DatabaseDown => Class::System,
            Self::TimedOut => Class::Unknown,
        }
    }
}

/// A queue, and a count of bodies.
struct Desk {
    queue: MemoryQueue,
    engine: Engine,
    bodies: Arc<AtomicU32>,
}

impl Desk {
    fn new() -> Self {
        Self {
            queue: MemoryQueue::new(),
            // Its leases lapse by no clock of the machine: time is that of tokio, which is paused.
            engine: Engine::builder(MemoryStore::new())
                .clock(ManualClock::new())
                .build()
                .unwrap(),
            bodies: Arc::default(),
        }
    }

    /// Sends a bill of this account under this id.
    fn send(&self, id: &str, account: u64) {
        self.queue.send(id, format!(r#"{{"account": {account}}}"#));
    }

    fn consumer(&self) -> Consumer {
        Consumer::new(self.engine.clone(), "bills.collect")
    }

    fn bodies(&self) -> u32 {
        self.bodies.load(Ordering::Relaxed)
    }

    /// Consumes the closed queue with a handler that ends as the number of its body says.
    async fn run<I>(
        &self,
        consumer: Consumer<I>,
        end: impl Fn(u32) -> Result<(), BillError> + Send + Sync + 'static,
    ) -> Summary
    where
        I: idem_consumers::MessageId<MemoryDelivery>,
    {
        self.queue.close();
        let bodies = Arc::clone(&self.bodies);
        let handler = move |bill: Bill, _: Context| {
            assert!(bill.account < 10, "as it was sent");
            let end = end(bodies.fetch_add(1, Ordering::Relaxed) + 1);
            async { end }
        };
        consumer.run(self.queue.clone(), handler).await.unwrap()
    }

    fn dead(&self) -> Vec<(String, DeadLetterReason)> {
        self.queue.dead_letters()
    }
}

/// The events of dead letters: digest, reason and cause.
#[derive(Clone, Debug, Default)]
struct Letters(Arc<Mutex<Vec<(String, String, String)>>>);

impl Observer for Letters {
    fn observe(&self, event: &Event<'_>) {
        if let EventKind::DeadLetter { reason, cause } = &event.kind {
            let key = event.key.unwrap().to_string();
            let letter = (key, (*reason).to_owned(), (*cause).to_owned());
            self.0.lock().unwrap().push(letter);
        }
    }
}

fn dead(id: &str, reason: DeadLetterReason) -> Vec<(String, DeadLetterReason)> {
    vec![(id.to_owned(), reason)]
}

#[tokio::test(start_paused = true)]
async fn a_message_that_was_sent_twice_runs_one_body() {
    let desk = Desk::new();
    desk.send("m-1", 7);
    desk.send("m-1", 7);
    let summary = desk.run(desk.consumer(), |_| Ok(())).await;
    assert_eq!((summary.acknowledged, desk.bodies()), (2, 1));
    assert_eq!((desk.dead(), desk.queue.len()), (Vec::new(), 0));
}

#[tokio::test(start_paused = true)]
async fn a_system_error_is_retried_with_a_pause_that_doubles() {
    let (desk, start) = (Desk::new(), Instant::now());
    desk.send("m-1", 7);
    let end = |body| {
        if body < 4 {
            Err(BillError::DatabaseDown)
        } else {
            Ok(())
        }
    };
    let summary = desk.run(desk.consumer(), end).await;
    assert_eq!(
        (summary.retried, summary.acknowledged, desk.bodies()),
        (3, 1, 4)
    );
    let pauses = start.elapsed();
    assert!(
        (7..9).contains(&pauses.as_secs()),
        "1 s, 2 s and 4 s: {pauses:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_is_a_dead_letter_after_so_many_failed_attempts() {
    let desk = Desk::new();
    desk.send("m-1", 7);
    let consumer = desk.consumer().dead_letter_after(3);
    desk.run(consumer, |_| Err(BillError::DatabaseDown)).await;
    assert_eq!(desk.bodies(), 3);
    assert_eq!(desk.dead(), dead("m-1", DeadLetterReason::Exhausted));
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_has_the_label_of_its_message() {
    let desk = Desk::new();
    desk.send("bill-4711", 7);
    desk.send("bill-none", 7);
    desk.send("bill-panics", 7);
    let consumer = desk.consumer().dead_letter_after(1).label(|id| {
        assert_ne!(id, "bill-panics");
        (id != "bill-none").then(|| format!("bill {}", redacted(id, 4)))
    });
    desk.run(consumer, |_| Err(BillError::DatabaseDown)).await;
    assert_eq!((desk.bodies(), desk.dead().len()), (3, 3));
    for (id, label) in [
        ("bill-4711", Some("bill …4711")),
        ("bill-none", None),
        ("bill-panics", None),
    ] {
        let call = desk.engine.operation("bills.collect").key(id);
        let entry = call.entry().await.unwrap().expect("it is exhausted");
        assert_eq!(entry.recorded_attempts().len(), 1);
        assert_eq!(entry.label().as_deref(), label);
    }
}

#[tokio::test(start_paused = true)]
async fn the_observer_is_notified_of_dead_letters_alone() {
    let (mut desk, events) = (Desk::new(), Events::default());
    let engine = Engine::builder(MemoryStore::new()).observer(events.clone());
    desk.engine = engine.clock(ManualClock::new()).build().unwrap();
    desk.send("m-1", 7);
    desk.send("m-2", 7);
    let end = |body| {
        if body == 1 {
            Err(BillError::NoSuchAccount)
        } else {
            Ok(())
        }
    };
    desk.run(desk.consumer().concurrency(1), end).await;
    assert_eq!(events.count("dead letter: business"), 1);
    assert_eq!(events.count("dead letter"), 1);
    assert_eq!(events.count("unsettled"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_uses_up_its_attempts() {
    let desk = Desk::new();
    desk.send("m-1", 7);
    let consumer = desk.consumer().dead_letter_after(2);
    desk.run(consumer, |body| panic!("body {body}")).await;
    assert_eq!(desk.bodies(), 2);
    assert_eq!(desk.dead(), dead("m-1", DeadLetterReason::Exhausted));
}

/// Its decoder panics.
#[derive(Debug)]
struct Undecodable;

impl Message for Undecodable {
    fn decode(_: &[u8]) -> Result<Self, BrokerError> {
        panic!("a decoder with an assertion")
    }
}

#[tokio::test(start_paused = true)]
async fn a_decoder_or_an_id_that_panics_makes_a_dead_letter() {
    let desk = Desk::new();
    desk.send("m-1", 7);
    desk.queue.close();
    let handler = async |_: Undecodable, _: Context| Ok::<(), BillError>(());
    let run = desk.consumer().run(desk.queue.clone(), handler);
    run.await.unwrap();
    assert_eq!(desk.dead(), dead("m-1", DeadLetterReason::InvalidPayload));
    let desk = Desk::new();
    desk.send("m-1", 7);
    let id = |_: &MemoryDelivery| -> Option<String> { panic!("a header is missing") };
    desk.run(desk.consumer().id(id), |_| Ok(())).await;
    assert_eq!(desk.dead(), dead("m-1", DeadLetterReason::InvalidId));
}

#[tokio::test(start_paused = true)]
async fn a_business_error_is_a_dead_letter_or_acknowledged() {
    for (choice, letters) in [
        (
            OnBusinessError::DeadLetter,
            dead("m-1", DeadLetterReason::Business),
        ),
        (OnBusinessError::Acknowledge, Vec::new()),
    ] {
        let desk = Desk::new();
        desk.send("m-1", 0);
        let consumer = desk.consumer().on_business_error(choice);
        desk.run(consumer, |_| Err(BillError::NoSuchAccount)).await;
        assert_eq!((desk.bodies(), desk.dead()), (1, letters), "{choice:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_a_dead_letter_and_stays_one() {
    let desk = Desk::new();
    desk.send("m-1", 7);
    desk.send("m-1", 7);
    desk.run(desk.consumer(), |_| Err(BillError::TimedOut))
        .await;
    assert_eq!(desk.bodies(), 1);
    let letter = ("m-1".to_owned(), DeadLetterReason::Unknown);
    assert_eq!(desk.dead(), [letter.clone(), letter]);
}

#[tokio::test(start_paused = true)]
async fn another_message_with_the_same_id_is_not_acknowledged() {
    for (compares, letters, acknowledged) in [
        (true, dead("m-1", DeadLetterReason::Mismatch), 1),
        (false, Vec::new(), 2),
    ] {
        let desk = Desk::new();
        desk.send("m-1", 7);
        desk.send("m-1", 8);
        let consumer = desk.consumer().concurrency(1).compare_payload(compares);
        let summary = desk.run(consumer, |_| Ok(())).await;
        let found = (desk.dead(), summary.acknowledged, desk.bodies());
        assert_eq!(found, (letters, acknowledged, 1), "compares: {compares}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_is_no_message_is_a_dead_letter_without_a_body() {
    let desk = Desk::new();
    desk.queue.send("m-1", "not JSON");
    desk.run(desk.consumer(), |_| Ok(())).await;
    assert_eq!(desk.bodies(), 0);
    assert_eq!(desk.dead(), dead("m-1", DeadLetterReason::InvalidPayload));
}

/// Finds a dead letter whose event says nothing but its reason, and one that shows the message.
#[tokio::test(start_paused = true)]
async fn the_event_of_a_dead_letter_has_its_cause_and_the_digest_of_its_id() {
    for (payload, cause) in [
        ("", "the payload is empty"),
        ("secret", "is not JSON, at line 1 column 1"),
        ("{\"secret\":", "ends in the middle of its JSON"),
        (
            "\"secret\"",
            "has another shape than the handler's message, at line 1",
        ),
    ] {
        let letters = Letters::default();
        let desk = Desk {
            engine: Engine::builder(MemoryStore::new())
                .clock(ManualClock::new())
                .observer(letters.clone())
                .build()
                .unwrap(),
            ..Desk::new()
        };
        desk.queue.send("m-1", payload);
        desk.run(desk.consumer(), |_| Ok(())).await;
        let seen = letters.0.lock().unwrap().clone();
        let [(key, reason, text)] = &seen[..] else {
            panic!("{seen:?}")
        };
        assert_eq!(reason, "invalid-payload");
        assert!(text.contains(cause) && !text.contains("secret"), "{text}");
        let id = KeyBuilder::new("bills.collect", DEFAULT_MAX_KEY_BYTES).key("m-1");
        assert_eq!(*key, id.unwrap().to_string());
    }
}

#[tokio::test(start_paused = true)]
async fn an_id_that_is_missing_empty_or_too_long_is_a_dead_letter() {
    for id in [None, Some(String::new()), Some("x".repeat(10_000))] {
        let desk = Desk::new();
        desk.send("m-1", 7);
        let length = id.as_ref().map(String::len);
        let consumer = desk.consumer().id(move |_: &MemoryDelivery| id.clone());
        desk.run(consumer, |_| Ok(())).await;
        assert_eq!(desk.bodies(), 0, "{length:?}");
        assert_eq!(
            desk.dead(),
            dead("m-1", DeadLetterReason::InvalidId),
            "{length:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_id_may_be_a_function_of_the_delivery() {
    let desk = Desk::new();
    desk.send("m-1", 7);
    desk.send("m-2", 7);
    let payload = |it: &MemoryDelivery| String::from_utf8(it.payload().to_vec()).ok();
    desk.run(desk.consumer().id(payload), |_| Ok(())).await;
    assert_eq!(desk.bodies(), 1);
}

#[tokio::test(start_paused = true)]
async fn settings_out_of_range_stop_the_consumer_and_lose_no_message() {
    let desk = Desk::new();
    desk.send("m-1", 7);
    let policy = Policy::new().ttl(Duration::ZERO);
    let handler = async |_: Raw, _: Context| Ok::<(), BillError>(());
    let end = desk
        .consumer()
        .policy(policy)
        .run(desk.queue.clone(), handler)
        .await;
    let Err(ConsumerError::Refused(error)) = end else {
        panic!("{end:?}")
    };
    assert_eq!(*error.kind(), ErrorKind::InvalidPolicy);
    assert_eq!((desk.queue.len(), desk.dead()), (1, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_handler_longer_than_the_broker_s_deadline_keeps_its_delivery() {
    let desk = Desk::new();
    desk.send("m-1", 7);
    desk.queue.close();
    let bodies = Arc::clone(&desk.bodies);
    let handler = move |_: Raw, _: Context| {
        bodies.fetch_add(1, Ordering::Relaxed);
        async {
            sleep(Duration::from_mins(5)).await;
            Ok::<(), BillError>(())
        }
    };
    let summary = desk
        .consumer()
        .run(desk.queue.clone(), handler)
        .await
        .unwrap();
    assert_eq!((summary.acknowledged, summary.retried), (1, 0));
    assert_eq!(desk.bodies(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_running_handlers_and_takes_no_more() {
    let desk = Desk::new();
    desk.send("m-1", 7);
    desk.send("m-2", 7);
    let (started, may_end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = {
        let (started, may_end) = (Arc::clone(&started), Arc::clone(&may_end));
        move |_: Raw, _: Context| {
            let (started, may_end) = (Arc::clone(&started), Arc::clone(&may_end));
            async move {
                started.notify_one();
                may_end.notified().await;
                Ok::<(), BillError>(())
            }
        }
    };
    let shutdown = async move {
        started.notified().await;
        may_end.notify_one();
    };
    let consumer = desk.consumer().concurrency(1);
    let summary = consumer
        .run_until(desk.queue.clone(), handler, shutdown)
        .await
        .unwrap();
    assert_eq!((summary.acknowledged, summary.abandoned), (1, 0));
    assert_eq!(desk.queue.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_does_not_end_in_time_is_dropped_and_its_message_returns() {
    let desk = Desk::new();
    desk.send("m-1", 7);
    let started = Arc::new(Notify::new());
    let handler = {
        let started = Arc::clone(&started);
        move |_: Raw, _: Context| {
            started.notify_one();
            std::future::pending::<Result<(), BillError>>()
        }
    };
    let consumer = desk.consumer().drain(Duration::from_secs(2));
    let shutdown = async move { started.notified().await };
    let summary = consumer
        .run_until(desk.queue.clone(), handler, shutdown)
        .await
        .unwrap();
    assert_eq!((summary.acknowledged, summary.abandoned), (0, 1));
    assert_eq!((desk.queue.len(), desk.dead()), (1, Vec::new()));
}
