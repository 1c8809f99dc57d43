//! NATS `JetStream`, on a real server.

use std::time::Duration;

use async_nats::HeaderValue;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream;
use idem_consumers::{
    DeadLetterReason, Delivery as _, JetStream, OnLostSubscription, Source as _, Verdict,
};
use idem_harness::NatsServer;
use idem_tests::brokers::nats::{DURABLE, STREAM, unsettled};
use idem_tests::brokers::{Broker as _, Nats};
use tokio::time::{sleep, timeout};

use super::desk::BillError::BankDown;
use super::desk::{Desk, LEASE, error, gated, ids, next, source, until, until_settled};

const DEAD: Verdict = Verdict::DeadLetter(DeadLetterReason::Business);

/// The settings of a durable that is there before its consumers.
fn durable(ack_wait: Duration) -> pull::Config {
    pull::Config {
        durable_name: Some(DURABLE.to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait,
        ..pull::Config::default()
    }
}

async fn publish(broker: &Nats, message: PublishMessage) {
    let sent = broker.client().await;
    let sent = sent.send_publish("bills.eu", message).await.unwrap();
    sent.await.unwrap();
}

/// The first dead letter was stored, and its delivery not settled.
#[tokio::test]
async fn a_dead_letter_has_the_headers_and_is_stored_once_when_it_is_published_again() {
    let broker = Nats::start().await;
    let message = PublishMessage::build().payload("m-1".into());
    let message = message.message_id("m-1").header("account", "7");
    publish(&broker, message.expected_stream(STREAM)).await;
    let mut source = source(&broker).await;
    let first = next(&mut source).await;
    let second = next(&mut source).await;
    assert_eq!(first.sequence(), second.sequence());
    first.settle(DEAD).await.unwrap();
    second.settle(DEAD).await.unwrap();
    until_settled(&broker).await;
    let letters = broker.letters().await;
    let [letter] = &*letters else {
        panic!("one dead letter: {letters:?}")
    };
    let header = |name: &str| letter.headers.get(name).map(HeaderValue::as_str);
    assert_eq!(letter.subject.as_str(), "dead.bills");
    assert_eq!(&*letter.payload, b"m-1");
    let reason = DeadLetterReason::Business.as_str();
    assert_eq!(
        (header("idem-id"), header("idem-reason")),
        (Some("m-1"), Some(reason))
    );
    assert_eq!(header("idem-subject"), Some("bills.eu"));
    assert_eq!(header("account"), Some("7"));
    assert_eq!(header("Nats-Expected-Stream"), None);
}

#[tokio::test]
async fn a_message_without_an_id_has_that_of_its_place() {
    let broker = Nats::start().await;
    publish(&broker, PublishMessage::build().payload("bill".into())).await;
    let mut source = source(&broker).await;
    let first = next(&mut source).await;
    let id = first.id().unwrap().into_owned();
    assert!(id.starts_with("bills:1:"), "{id}");
    let second = next(&mut source).await;
    assert_eq!((first.attempt(), second.attempt()), (Some(1), Some(2)));
    assert_eq!(second.id().as_deref(), Some(&*id));
}

/// Finds a message that is terminated before its dead letter is stored.
#[tokio::test]
async fn a_dead_letter_that_a_sealed_stream_refuses_stays_in_its_stream() {
    let broker = Nats::start().await;
    broker.send(&ids([1])).await;
    let delivery = next(&mut source(&broker).await).await;
    let client = broker.client().await;
    let dead = client.get_stream("dead").await.unwrap();
    let config = stream::Config {
        sealed: true,
        ..dead.cached_info().config.clone()
    };
    client.update_stream(config).await.unwrap();
    let text = delivery.settle(DEAD).await.unwrap_err().to_string();
    assert!(text.contains("sealed"), "{text}");
    assert_eq!(unsettled(&client).await, Some(1));
}

/// Finds a message whose last delivery is no event.
#[tokio::test]
async fn a_retry_beyond_max_deliver_is_skipped() {
    let (broker, mut desk) = (Nats::start().await, Desk::new());
    let config = pull::Config {
        max_deliver: 2,
        ..durable(LEASE)
    };
    let stream = broker.client().await.get_stream(STREAM).await.unwrap();
    stream.create_consumer(config).await.unwrap();
    broker.send(&ids([1])).await;
    desk.open(&broker, 1, async |_| Err(BankDown)).await;
    desk.events.wait_for("skipped as max-deliver: 1", 1).await;
    let it = desk.close().await[0];
    let found = (
        it.retried,
        it.skipped,
        it.dead_letters,
        desk.bodies()["m-1"],
    );
    assert_eq!(found, (2, 1, 0, 2));
}

#[tokio::test]
async fn a_wrong_password_is_an_error_that_does_not_show_it() {
    let server = NatsServer::start_with_login("desk", "p@ss,word%");
    let url = |password: &str| format!("nats://desk:{password}@{}", server.addr());
    for wrong in ["wr0ng", "p@ss:word"] {
        let error = JetStream::connect(&url(wrong), STREAM, DURABLE).await;
        let error = error.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(wrong), "{shown}");
    }
    // The login is right, and there is no stream.
    let error = JetStream::connect(&url("p%40ss%2Cword%25"), STREAM, DURABLE).await;
    let text = error.unwrap_err().to_string();
    assert!(text.contains("stream not found"), "{text}");
}

#[tokio::test]
async fn settings_that_would_lose_messages_are_errors() {
    let broker = Nats::start().await;
    let mut filtered = source(&broker).await.filter_subject("bills.us");
    broker.send(&ids([1])).await;
    for (subject, remedy) in [("letters", "create one"), ("bills.dead", "another one")] {
        let mut source = source(&broker).await.dead_letters(subject);
        let text = error(&mut source).await.to_string();
        assert!(text.contains(remedy), "{text}");
    }
    let nothing = timeout(LEASE, filtered.next()).await;
    assert!(nothing.is_err(), "its filter is another subject");
    let text = error(&mut source(&broker).await).await.to_string();
    assert!(text.contains("another filter"), "{text}");
}

/// Finds a former stream's start sequence, beyond the new one's end.
#[tokio::test]
async fn resume_begins_with_the_first_message_of_a_stream_that_was_created_anew() {
    let broker = Nats::start().await;
    broker.send(&ids([1, 2])).await;
    let resume = OnLostSubscription::Resume;
    let mut source = source(&broker).await.on_lost_subscription(resume);
    for _ in 0..2 {
        let delivery = next(&mut source).await;
        delivery.settle(Verdict::Acknowledge).await.unwrap();
    }
    let client = broker.client().await;
    client.delete_stream(STREAM).await.unwrap();
    Nats::create_streams(&client).await;
    broker.send(&ids([3])).await;
    let delivery = next(&mut source).await;
    assert_eq!((delivery.sequence(), delivery.payload()), (1, &b"m-3"[..]));
}

/// Finds a former stream's verdict on a message of the new one. The two have one sequence. Also a consumer that goes on
/// with another stream in silence.
#[tokio::test]
async fn a_delivery_of_a_former_stream_settles_no_message_of_the_new_one() {
    let (broker, minute) = (Nats::start().await, Duration::from_mins(1));
    broker.send(&ids([1, 2])).await;
    let mut first = source(&broker).await.ack_wait(minute);
    let former = [next(&mut first).await, next(&mut first).await];
    let client = broker.client().await;
    client.delete_stream(STREAM).await.unwrap();
    Nats::create_streams(&client).await;
    broker.send(&ids([3, 4])).await;
    let mut second = source(&broker).await.ack_wait(minute);
    let present = [next(&mut second).await, next(&mut second).await];
    for (former, verdict) in former.into_iter().zip([Verdict::Acknowledge, DEAD]) {
        former.extend(LEASE).await.unwrap_err();
        let error = former.settle(verdict).await.unwrap_err();
        assert!(error.to_string().contains("created anew"), "{error}");
    }
    assert_eq!(unsettled(&client).await, Some(2));
    assert_eq!(broker.letters().await.len(), 0);
    let text = error(&mut first).await.to_string();
    assert!(text.contains("created anew"), "{text}");
    for delivery in present {
        delivery.settle(Verdict::Acknowledge).await.unwrap();
    }
    assert_eq!(unsettled(&client).await, Some(0));
}

/// Finds a full durable that is taken for a deleted one. Also messages that it sends to an ended request: they come
/// after its `ack_wait`.
#[tokio::test]
async fn a_durable_that_has_reached_its_max_ack_pending_is_neither_lost_nor_away() {
    let (broker, mut desk) = (Nats::start().await, Desk::new());
    let client = broker.client().await;
    // Longer than the test takes, so that none is delivered again but an unreceived one.
    let ack_wait = Duration::from_secs(30);
    let config = pull::Config {
        max_ack_pending: 2,
        ..durable(ack_wait)
    };
    let stream = client.get_stream(STREAM).await.unwrap();
    stream.create_consumer(config).await.unwrap();
    broker.send(&ids(0..4)).await;
    let (gate, body) = gated(|_| true);
    let source = Nats::source(&broker.url(), ack_wait).await.unwrap();
    desk.run(desk.consumer(), source, body);
    until("both are handled", async || desk.bodies().len() == 2).await;
    // Longer than an answer to a request may take. Nothing is waited for: that none is lost is no event.
    sleep(Duration::from_secs(8)).await;
    assert_eq!(desk.bodies().len(), 2);
    gate.send_replace(true);
    until_settled(&broker).await;
    // A message that was sent to an ended request is delivered once more.
    let info = stream.consumer_info(DURABLE).await.unwrap();
    assert_eq!(info.delivered.consumer_sequence, 4);
    desk.close().await;
    desk.assert_one_body_for_each_of(4);
    let lost = ["broker lost", "subscription lost"].map(|it| desk.events.count(it));
    assert_eq!(lost, [0, 0], "{:?}", desk.events.all());
}
