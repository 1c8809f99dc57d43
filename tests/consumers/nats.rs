//! NATS `JetStream`, on a real server.

use std::time::Duration;

use async_nats::HeaderValue;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::message::PublishMessage;
use idem_consumers::{
    DeadLetterReason, Delivery as _, JetStream, OnLostSubscription, Source as _, Verdict,
};
use idem_harness::NatsServer;
use idem_tests::brokers::nats::{DURABLE, STREAM, unsettled};
use idem_tests::brokers::{Broker as _, Nats};
use tokio::time::{sleep, timeout};

use super::desk::{Desk, LEASE, error, gated, ids, next, source, until, until_settled};

const DEAD: Verdict = Verdict::DeadLetter(DeadLetterReason::Business);

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

#[tokio::test]
async fn a_deleted_stream_is_an_error() {
    let broker = Nats::start().await;
    broker.send(&ids([1])).await;
    let mut source = source(&broker).await;
    next(&mut source).await;
    broker.client().await.delete_stream(STREAM).await.unwrap();
    let text = error(&mut source).await.to_string();
    assert!(text.contains("stream not found"), "{text}");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_is_changed_ends_the_source() {
    let broker = Nats(NatsServer::start_with_login("desk", "first"));
    let client = broker.client().await;
    Nats::create_streams(&client).await;
    let mut source = source(&broker).await;
    let ended = tokio::spawn(async move { error(&mut source).await });
    while unsettled(&client).await.is_none() {
        sleep(Duration::from_millis(5)).await;
    }
    tokio::task::block_in_place(|| broker.0.restart_with_login("desk", "second"));
    let error = ended.await.unwrap();
    let shown = format!("{error} {error:?}");
    assert!(shown.contains("authorization violation"), "{shown}");
    assert!(!shown.contains("first"), "{shown}");
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

/// Finds a start sequence of the former stream, which the server takes for the end of the new one.
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

/// Finds a verdict of a message of the former stream that settles a message of the new one, which has its sequence, and
/// a consumer that goes on with another stream in silence.
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

/// Finds a durable that is full, and so does not answer, and is taken for one that is gone, and messages that it sends
/// to a request that has ended: they come after its `ack_wait`.
#[tokio::test]
async fn a_durable_that_has_reached_its_max_ack_pending_is_neither_lost_nor_away() {
    let (broker, mut desk) = (Nats::start().await, Desk::new());
    let client = broker.client().await;
    // Longer than the test takes, so that none is delivered again but one that was not received.
    let ack_wait = Duration::from_secs(30);
    let config = pull::Config {
        durable_name: Some(DURABLE.to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait,
        max_ack_pending: 2,
        ..pull::Config::default()
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
    // One that was sent to a request that has ended is delivered once more.
    let info = stream.consumer_info(DURABLE).await.unwrap();
    assert_eq!(info.delivered.consumer_sequence, 4);
    desk.close().await;
    desk.assert_one_body_for_each_of(4);
    let lost = ["broker lost", "subscription lost"].map(|it| desk.events.count(it));
    assert_eq!(lost, [0, 0], "{:?}", desk.events.all());
}
