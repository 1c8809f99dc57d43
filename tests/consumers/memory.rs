//! Settings of a consumer, on a queue in memory.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_consumers::{
    BrokerError, Consumer, ConsumerError, DeadLetterReason, MemoryDelivery, MemoryQueue, Message,
    MessageId, Raw, Summary,
};
use idem_runtime::__private::{DEFAULT_MAX_KEY_BYTES, KeyBuilder};
use idem_runtime::clock::ManualClock;
use idem_runtime::key::redacted;
use idem_runtime::observe::{Event, EventKind};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Context, Engine, ErrorKind, Observer, Policy};
use tokio::time::Instant;

use super::desk::BillError::{self, BankDown};

/// Its leases lapse by no clock of the machine: time is that of tokio, which is paused.
fn engine(observer: impl Observer) -> Engine {
    let engine = Engine::builder(MemoryStore::new()).observer(observer);
    engine.clock(ManualClock::new()).build().unwrap()
}

fn consumer() -> Consumer {
    Consumer::new(engine(Letters::default()), "bills.collect")
}

/// A queue of messages with these ids, each a number.
fn queue(ids: &[&str]) -> MemoryQueue {
    let queue = MemoryQueue::new();
    for id in ids {
        queue.send(*id, "7");
    }
    queue
}

/// Consumes the closed queue. The handler ends as the number of its body says. Returns the number of bodies, too.
async fn run<I: MessageId<MemoryDelivery>>(
    queue: &MemoryQueue,
    consumer: Consumer<I>,
    end: fn(u32) -> Result<(), BillError>,
) -> (Summary, u32) {
    queue.close();
    let bodies = Arc::new(Mutex::new(0));
    let count = Arc::clone(&bodies);
    let handler = move |_: u32, _: Context| {
        let mut bodies = count.lock().unwrap();
        *bodies += 1;
        std::future::ready(end(*bodies))
    };
    let summary = consumer.run(queue.clone(), handler).await.unwrap();
    let bodies = *bodies.lock().unwrap();
    (summary, bodies)
}

/// The events of dead letters: digest, reason and cause.
#[derive(Clone, Debug, Default)]
struct Letters(Arc<Mutex<Vec<(String, String, String)>>>);

impl Observer for Letters {
    fn observe(&self, event: &Event<'_>) {
        match &event.kind {
            EventKind::DeadLetter { reason, cause } => {
                let key = event.key.map(ToString::to_string).unwrap_or_default();
                let letter = (key, (*reason).to_owned(), (*cause).to_owned());
                self.0.lock().unwrap().push(letter);
            }
            EventKind::Unsettled { reason } => panic!("{reason}"),
            _ => {}
        }
    }
}

fn dead(reason: DeadLetterReason) -> Vec<(String, DeadLetterReason)> {
    vec![("m-1".to_owned(), reason)]
}

#[tokio::test(start_paused = true)]
async fn a_system_error_is_retried_with_a_pause_that_doubles() {
    let start = Instant::now();
    let end = |body| if body < 4 { Err(BankDown) } else { Ok(()) };
    let (summary, bodies) = run(&queue(&["m-1"]), consumer(), end).await;
    assert_eq!((summary.retried, summary.acknowledged, bodies), (3, 1, 4));
    let pauses = start.elapsed().as_secs();
    assert!((7..9).contains(&pauses), "1 s, 2 s and 4 s: {pauses}");
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_has_the_label_of_its_message() {
    let engine = engine(Letters::default());
    let labels = [
        ("bill-4711", Some("bill …4711")),
        ("bill-none", None),
        ("bill-panics", None),
    ];
    let consumer = Consumer::new(engine.clone(), "bills.collect").label(|id| {
        assert_ne!(id, "bill-panics");
        (id != "bill-none").then(|| format!("bill {}", redacted(id, 4)))
    });
    let consumer = consumer.dead_letter_after(1);
    let (summary, bodies) = run(&queue(&labels.map(|it| it.0)), consumer, |_| Err(BankDown)).await;
    assert_eq!((bodies, summary.dead_letters), (3, 3));
    for (id, label) in labels {
        let call = engine.operation("bills.collect").key(id);
        let entry = call.entry().await.unwrap().expect("it is exhausted");
        assert_eq!(entry.recorded_attempts().len(), 1);
        assert_eq!(entry.label().as_deref(), label);
    }
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
async fn a_decoder_that_panics_makes_a_dead_letter() {
    let queue = queue(&["m-1"]);
    queue.close();
    let handler = async |_: Undecodable, _: Context| Ok::<(), BillError>(());
    consumer().run(queue.clone(), handler).await.unwrap();
    let reason = DeadLetterReason::InvalidPayload;
    assert_eq!(queue.dead_letters(), dead(reason));
}

/// Finds a dead letter without a cause, or with the message's content. Also an event without a dead letter.
#[tokio::test(start_paused = true)]
async fn the_event_of_a_dead_letter_has_its_cause_and_the_digest_of_its_id() {
    let shape = "has another shape than the handler's message, at line 1";
    for (payload, cause) in [
        ("", "the payload is empty"),
        ("secret", "is not JSON, at line 1 column 1"),
        ("\"secret", "ends in the middle of its JSON"),
        ("\"secret\"", shape),
    ] {
        let letters = Letters::default();
        let (engine, queue) = (engine(letters.clone()), queue(&["m-2"]));
        queue.send("m-1", payload);
        let consumer = Consumer::new(engine, "bills.collect");
        run(&queue, consumer, |_| Ok(())).await;
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
async fn an_id_that_is_missing_empty_too_long_or_panics_is_a_dead_letter() {
    type Id = fn(&MemoryDelivery) -> Option<String>;
    let ids: [(&str, Id); 4] = [
        ("missing", |_| None),
        ("empty", |_| Some(String::new())),
        ("too long", |_| Some("x".repeat(10_000))),
        ("panics", |_| panic!("a header is missing")),
    ];
    for (name, id) in ids {
        let queue = queue(&["m-1"]);
        let (_, bodies) = run(&queue, consumer().id(id), |_| Ok(())).await;
        let found = (queue.dead_letters(), bodies);
        assert_eq!(found, (dead(DeadLetterReason::InvalidId), 0), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn settings_out_of_range_stop_the_consumer_and_lose_no_message() {
    let queue = queue(&["m-1"]);
    let consumer = consumer().policy(Policy::new().ttl(Duration::ZERO));
    let handler = async |_: Raw, _: Context| Ok::<(), BillError>(());
    let end = consumer.run(queue.clone(), handler).await;
    let Err(ConsumerError::Refused(error)) = end else {
        panic!("{end:?}")
    };
    assert_eq!(*error.kind(), ErrorKind::InvalidPolicy);
    assert_eq!((queue.len(), queue.dead_letters()), (1, Vec::new()));
}
