//! Queues of `RabbitMQ`, on a real broker.

use std::time::{Duration, Instant};

use idem_consumers::{DeadLetterReason, Delivery as _, RabbitQueue, Verdict};
use idem_tests::brokers::rabbit::header;
use idem_tests::brokers::{Broker, Rabbit};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use tokio::task::block_in_place;

use super::desk::BillError::NoSuchAccount;
use super::desk::{Desk, error, gated, ids, next, source, until, until_settled};

type Quorum = Rabbit<false>;
type Classic = Rabbit<true>;

async fn a_dead_letter_keeps_its_properties<const CLASSIC: bool>() {
    let broker = Rabbit::<CLASSIC>::shared().await;
    broker.send(&ids([7])).await;
    let mut source = source(&broker).await;
    drop(next(&mut source).await);
    let again = next(&mut source).await;
    assert_eq!(again.attempt(), (!CLASSIC).then_some(2));
    let reason = DeadLetterReason::Exhausted;
    again.settle(Verdict::DeadLetter(reason)).await.unwrap();
    until_settled(&broker).await;
    let letters = broker.letters().await;
    assert_eq!(letters.len(), 1);
    let letter = &letters[0];
    assert_eq!(*letter.properties.delivery_mode(), Some(2));
    assert_eq!(&*letter.data, b"m-7");
    assert_eq!(header(letter, "idem-id").unwrap(), "m-7");
    assert_eq!(header(letter, "idem-reason").unwrap(), reason.as_str());
    assert!(header(letter, "x-delivery-count").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_of_a_queue_is_persistent_and_has_no_count() {
    a_dead_letter_keeps_its_properties::<false>().await;
    a_dead_letter_keeps_its_properties::<true>().await;
}

/// Neither expires nor goes to its copies again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_without_an_id_is_a_dead_letter_that_stays_in_its_queue() {
    let (broker, mut desk) = (Quorum::shared().await, Desk::new());
    let mut headers = FieldTable::default();
    let copies = AMQPValue::FieldArray(vec![AMQPValue::LongString("elsewhere".into())].into());
    headers.insert("CC".into(), copies);
    headers.insert("kept".into(), AMQPValue::LongString("yes".into()));
    let properties = BasicProperties::default()
        .with_expiration("600000".into())
        .with_user_id("idem".into())
        .with_content_type("text/plain".into())
        .with_headers(headers);
    broker.publish("no id", properties).await;
    desk.open(&broker, 1, async |_| Ok(())).await;
    until_settled(&broker).await;
    desk.close().await;
    assert_eq!(desk.bodies().len(), 0);
    let letters = broker.letters().await;
    assert_eq!(letters.len(), 1);
    let (letter, properties) = (&letters[0], &letters[0].properties);
    let reason = DeadLetterReason::InvalidId.as_str();
    assert_eq!(header(letter, "idem-reason").unwrap(), reason);
    assert_eq!(header(letter, "kept").unwrap(), "yes");
    assert_eq!(header(letter, "idem-id"), None);
    assert!(!properties.headers().as_ref().unwrap().contains_key("CC"));
    assert_eq!(
        (properties.expiration(), properties.user_id()),
        (&None, &None)
    );
    assert_eq!(properties.content_type(), &Some("text/plain".into()));
}

/// Messages that wait for their next attempt are held by the source.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_dropped_gives_back_what_it_holds_and_keeps_what_is_handled() {
    let broker = Quorum::shared().await;
    broker.send(&ids([1, 2, 3])).await;
    let mut first = source(&broker).await;
    let handled = next(&mut first).await;
    let long = Verdict::Retry(Some(Duration::from_hours(1)));
    next(&mut first).await.settle(long).await.unwrap();
    drop(first);
    let mut second = source(&broker).await;
    let mut others = Vec::new();
    for _ in 0..2 {
        let delivery = next(&mut second).await;
        others.push(delivery.id().unwrap().into_owned());
        delivery.settle(Verdict::Acknowledge).await.unwrap();
    }
    others.sort();
    assert_eq!(others, ["m-2", "m-3"]);
    handled.settle(Verdict::Acknowledge).await.unwrap();
    until_settled(&broker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_of_one_message_holds_up_no_other() {
    let broker = Quorum::shared().await;
    broker.send(&ids([1, 2])).await;
    let mut source = source(&broker).await;
    let (pause, first) = (Duration::from_secs(1), next(&mut source).await);
    let begun = Instant::now();
    first.settle(Verdict::Retry(Some(pause))).await.unwrap();
    let second = next(&mut source).await;
    assert_eq!(second.id().as_deref(), Some("m-2"));
    assert_eq!(next(&mut source).await.id().as_deref(), Some("m-1"));
    assert!(begun.elapsed() >= pause, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_an_error_that_names_no_password() {
    let broker = Classic::shared().await;
    let queue = broker.queue.as_str();
    let url = broker.server.url_with("not-the-password");
    let error = RabbitQueue::connect(&url, queue).await.unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(text.contains("ACCESS_REFUSED"), "{text}");
    assert!(!text.contains("not-the-password"), "{text}");
    let url = "amqp://idem:not-the-password@127.0.0.1:none/%2f";
    let error = RabbitQueue::connect(url, queue).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("not-the-password"));
    let text = format!("{:?}", source(&broker).await);
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_or_dead_letter_queue_that_is_not_there_is_an_error() {
    let broker = Quorum::shared().await;
    let missing = RabbitQueue::connect(&broker.server.url(), "not-there").await;
    assert!(missing.unwrap_err().to_string().contains("NOT_FOUND"));
    for mut source in [
        source(&broker).await.dead_letter_queue("not-there"),
        source(&broker)
            .await
            .dead_letter_exchange("not-there", "key"),
    ] {
        let text = error(&mut source).await.to_string();
        assert!(text.contains("NOT_FOUND"), "{text}");
    }
}

/// The exchange is there, and no queue is bound to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_that_no_queue_takes_keeps_its_message_in_the_queue() {
    let broker = Quorum::shared().await;
    broker.send(&ids([1])).await;
    let source = source(&broker).await;
    let mut source = source.dead_letter_exchange("amq.direct", "nothing");
    let verdict = Verdict::DeadLetter(DeadLetterReason::Business);
    let settled = next(&mut source).await.settle(verdict).await;
    let text = settled.unwrap_err().to_string();
    assert!(text.contains("not stored"), "{text}");
    assert_eq!(next(&mut source).await.id().as_deref(), Some("m-1"));
}

/// Finds acknowledgements that wait with a dead letter. Where unacknowledged messages fill the broker,
/// that is for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_of_the_broker_delays_dead_letters_alone() {
    let mut broker = Classic::start().await;
    broker.is_reusable = false;
    let alarm = |what: &str| {
        let call = format!("rabbit_alarm:{what}.");
        let _ = block_in_place(|| broker.server.eval(&call));
    };
    broker.send(&ids(1..=100)).await;
    let source = source(&broker).await;
    alarm("set_alarm({{resource_limit, memory, node()}, []})");
    let mut desk = Desk::new();
    desk.run(desk.consumer(), source, async |id| match &*id {
        "m-1" => Err(NoSuchAccount),
        _ => Ok(()),
    });
    let only = "the other messages are acknowledged";
    until(only, async || broker.unsettled().await == 1).await;
    alarm("clear_alarm({resource_limit, memory, node()})");
    until_settled(&broker).await;
    desk.close().await;
    desk.assert_one_body_for_each_of(100);
    let letters = broker.dead_letters().await;
    // Twice, if the first was on its way when the alarm came.
    assert!(
        !letters.is_empty() && letters.iter().all(|(id, _)| id == "m-1"),
        "{letters:?}"
    );
}

/// The handler takes two of the broker's `consumer_timeout`. Finds a delivery whose wait, or whose handler, closes the
/// channel over and over, and a verdict, or a lost channel, of which no error names the setting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_takes_longer_than_the_broker_allows_costs_no_channel_and_no_second_body() {
    let mut broker = Quorum::start().await;
    broker.is_reusable = false;
    let settings = "application:set_env(rabbit, consumer_timeout, 2000), \
                    application:set_env(rabbit, channel_tick_interval, 100).";
    let _ = block_in_place(|| broker.server.eval(settings));
    for knows_the_limit in [true, false] {
        broker.send(&ids([1])).await;
        let mut source = source(&broker).await;
        if knows_the_limit {
            source = source.consumer_timeout(Duration::from_secs(2));
        }
        let mut desk = Desk::new();
        let (gate, body) = gated(|_| true);
        desk.run(desk.consumer(), source, body);
        until("it was given back twice", async || desk.deliveries() >= 3).await;
        gate.send_replace(true);
        until_settled(&broker).await;
        desk.events.wait_for("unsettled: ", 1).await;
        desk.close().await;
        desk.assert_one_body_for_each_of(1);
        let all = desk.events.all();
        let is_lost = desk.events.count("broker lost") > 0;
        assert_eq!(is_lost, !knows_the_limit, "{all:?}");
        let event = if is_lost {
            "broker lost: "
        } else {
            "unsettled: "
        };
        let mut named = all.iter().filter(|it| it.contains("`consumer_timeout`"));
        assert!(named.any(|it| it.starts_with(event)), "{all:?}");
    }
}

/// Finds the broker's own heartbeat of a minute. With it a silent connection is lost after two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_url_without_a_heartbeat_gets_one_of_ten_seconds() {
    let broker = Classic::shared().await;
    broker.send(&ids([1])).await;
    let mut source = RabbitQueue::connect(&broker.server.url(), &*broker.queue)
        .await
        .unwrap();
    let delivery = next(&mut source).await;
    let timeouts = "rabbit_networking:connection_info_all([timeout]).";
    let connections = block_in_place(|| broker.server.eval(timeouts));
    let negotiated = connections.contains("{timeout,10}");
    assert!(negotiated, "{connections}");
    delivery.settle(Verdict::Acknowledge).await.unwrap();
}
