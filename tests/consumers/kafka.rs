//! Kafka, on the mock cluster of librdkafka: real protocol, groups and rebalances, in memory.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use idem_consumers::{DeadLetterReason, Delivery as _, KafkaTopic, OnLostSubscription, Verdict};
use idem_tests::brokers::kafka::{GROUP, TOPIC, header};
use idem_tests::brokers::{Broker as _, Kafka};
use rdkafka::message::Message as _;
use tokio::runtime::Runtime;
use tokio::time::{Duration, sleep};

use super::desk::{Desk, error, gated, ids, next, source, until, until_settled};

/// Milliseconds without a heartbeat, and without a poll.
const SESSION: &str = "4000";

/// The first two wait until a third consumer has joined and left.
#[tokio::test]
async fn a_consumer_that_joins_and_leaves_costs_no_message_and_no_second_body() {
    let (broker, mut desk) = (Kafka::with_partitions(4), Desk::new());
    broker.send(&ids(0..1_000)).await;
    let (gate, body) = gated(|_| true);
    for _ in 0..2 {
        let source = source(&broker).await.max_uncommitted(20);
        desk.run(desk.consumer().concurrency(200), source, body.clone());
    }
    until("both wait in all their bodies", async || {
        desk.bodies().len() >= 80
    })
    .await;
    let handled = Arc::new(Mutex::new(BTreeSet::new()));
    let body = {
        let handled = Arc::clone(&handled);
        move |id| {
            handled.lock().unwrap().insert(id);
            async { Ok(()) }
        }
    };
    let mut third = desk.another();
    third.run(
        third.consumer().concurrency(200),
        source(&broker).await,
        body,
    );
    until("the third one has handled messages", async || {
        handled.lock().unwrap().len() >= 100
    })
    .await;
    let third = third.close().await;
    gate.send_replace(true);
    until_settled(&broker).await;
    desk.close().await;
    desk.assert_one_body_for_each_of(1_000);
    assert!(third[0].acknowledged >= 100, "{third:?}");
}

#[tokio::test]
async fn what_is_settled_is_committed_when_the_consumer_has_stopped() {
    let (broker, mut desk) = (Kafka::with_partitions(4), Desk::new());
    broker.send(&ids(0..40)).await;
    desk.open(&broker, 1, async |_| Ok(())).await;
    until("all are handled", async || desk.bodies().len() == 40).await;
    let summary = desk.close().await;
    assert_eq!(broker.unsettled().await, 0, "{summary:?}");
}

#[tokio::test]
async fn a_dead_letter_of_kafka_has_the_headers_of_its_message() {
    let broker = Kafka::with_partitions(1);
    broker.send(&ids([7])).await;
    let delivery = next(&mut source(&broker).await).await;
    let reason = DeadLetterReason::Exhausted;
    delivery.settle(Verdict::DeadLetter(reason)).await.unwrap();
    let letters = broker.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].payload(), Some(&b"m-7"[..]));
    assert_eq!(header(&letters[0], "id"), Some("m-7"));
    assert_eq!(header(&letters[0], "idem-id"), Some("m-7"));
    assert_eq!(header(&letters[0], "idem-reason"), Some(reason.as_str()));
}

/// 1 MB of its own, and the id in its dead letter. Finds the limit of a producer, which is 1 MB by default.
#[tokio::test]
async fn a_large_message_has_a_dead_letter() {
    let broker = Kafka::with_partitions(1);
    broker.send(&["x".repeat(600_000)]).await;
    let delivery = next(&mut source(&broker).await).await;
    let verdict = Verdict::DeadLetter(DeadLetterReason::InvalidId);
    delivery.settle(verdict).await.unwrap();
    assert_eq!(broker.letters().await.len(), 1);
}

/// librdkafka would mix the topic with that of the dead letters.
#[tokio::test]
async fn a_pattern_of_topics_is_refused() {
    let broker = Kafka::with_partitions(1);
    let refused = KafkaTopic::connect(&broker.url(), "^bills", GROUP).await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("is a pattern of topics"), "{text}");
}

#[tokio::test]
async fn a_partition_is_paused_while_its_first_message_is_unfinished() {
    let (broker, mut desk) = (Kafka::with_partitions(1), Desk::new());
    broker.send(&ids(0..200)).await;
    let (gate, body) = gated(|id| id == "m-0");
    let properties = ["session.timeout.ms", "max.poll.interval.ms"].map(|name| (name, SESSION));
    let source = KafkaTopic::connect_with(&broker.url(), TOPIC, GROUP, properties).await;
    let source = source.unwrap().max_uncommitted(10);
    desk.run(desk.consumer(), source, body);
    until("the partition is full", async || desk.bodies().len() == 10).await;
    // Longer than the client may go without a poll. Nothing is waited for: that it stays in its group is no event.
    sleep(Duration::from_secs(5)).await;
    assert_eq!(
        (desk.bodies().len(), broker.committed().await),
        (10, vec![0])
    );
    gate.send_replace(true);
    until_settled(&broker).await;
    let summary = desk.close().await[0];
    desk.assert_one_body_for_each_of(200);
    assert_eq!((summary.acknowledged, summary.unsettled), (200, 0));
}

#[tokio::test]
async fn a_kafka_message_without_the_header_has_the_id_of_its_place_and_time() {
    let broker = Kafka::with_partitions(1);
    broker.send(&ids([7, 8])).await;
    let mut source = source(&broker).await.id_header("ce_id");
    let delivery = next(&mut source).await;
    let id = delivery.id().unwrap().into_owned();
    assert!(id.starts_with("bills/0/0/1"), "{id}");
    assert_eq!(
        (delivery.header("id"), delivery.attempt()),
        (Some(&b"m-7"[..]), None)
    );
    assert_eq!(delivery.payload(), b"m-7");
    drop(delivery);
    let delivery = next(&mut source).await;
    assert!(delivery.id().unwrap().starts_with("bills/0/1/1"));
    let again = next(&mut source).await;
    assert_eq!(again.id().as_deref(), Some(&*id));
}

/// Finds a lost message: it was taken for a former one.
#[tokio::test]
async fn a_topic_that_is_created_anew_has_no_id_of_the_former_one() {
    let mut desk = Desk::new();
    for expected in [1, 2] {
        let (broker, mut of_topic) = (Kafka::with_partitions(1), desk.another());
        broker.send(&ids([7])).await;
        let source = source(&broker).await.id_header("ce_id");
        of_topic.run(of_topic.consumer(), source, async |_| Ok(()));
        until_settled(&broker).await;
        of_topic.close().await;
        assert_eq!(desk.bodies()["m-7"], expected);
    }
    desk.close().await;
}

#[tokio::test]
async fn a_commit_that_the_cluster_refused_is_repeated() {
    let (broker, mut desk) = (Kafka::with_partitions(1), Desk::new());
    broker.cluster.refuse_commits(2);
    broker.send(&ids(0..20)).await;
    desk.open(&broker, 1, async |_| Ok(())).await;
    until_settled(&broker).await;
    desk.close().await;
    desk.assert_one_body_for_each_of(20);
}

#[tokio::test]
async fn an_error_of_the_client_shows_no_value_of_a_property() {
    let property = [("no.such.property", "secret")];
    let refused = KafkaTopic::connect_with("127.0.0.1:1", TOPIC, GROUP, property).await;
    let error = refused.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(shown.contains("no.such.property"), "{shown}");
    assert!(!shown.contains("secret"), "{shown}");
}

/// Sends large messages: the mock cluster keeps 5 MiB of a partition; an id is in the header and in the payload.
async fn delete_by_retention(broker: &Kafka) {
    for _ in 0..10 {
        broker.send(&["m".repeat(400_000)]).await;
    }
}

async fn until_committed(broker: &Kafka, offset: usize) {
    until("it is committed", async || {
        broker.committed().await == [offset]
    })
    .await;
}

/// Acknowledges the first message; then the cluster keeps only the last few of many large ones.
async fn source_out_of_range(on_lost: OnLostSubscription) -> (Kafka, KafkaTopic) {
    let broker = Kafka::with_partitions(1);
    broker.send(&ids([0])).await;
    let mut first = source(&broker).await;
    let delivery = next(&mut first).await;
    delivery.settle(Verdict::Acknowledge).await.unwrap();
    drop(first);
    assert_eq!(broker.committed().await, [1]);
    delete_by_retention(&broker).await;
    let source = source(&broker).await.on_lost_subscription(on_lost);
    (broker, source)
}

/// Finds a consumer that retention has overtaken and that skips messages silently.
#[tokio::test]
async fn offsets_that_retention_deleted_end_the_source_unless_on_lost_subscription_is_set() {
    let (_broker, mut source) = source_out_of_range(OnLostSubscription::default()).await;
    let text = error(&mut source).await.to_string();
    for part in [TOPIC, GROUP, "partition 0", "the next one is 1"] {
        assert!(text.contains(part), "{text}");
    }
    let (broker, mut source) = source_out_of_range(OnLostSubscription::FromStart).await;
    let delivery = next(&mut source).await;
    assert!(delivery.offset() > 1, "{delivery:?}");
    // It reads on from there.
    broker.send(&ids([1])).await;
    while next(&mut source).await.payload() != b"m-1" {}
}

/// Finds a group whose every member begins at the end. Messages sent between two of them are skipped.
#[tokio::test]
async fn a_group_that_begins_at_the_end_loses_no_message_that_its_first_member_did_not_settle() {
    let broker = Kafka::with_partitions(1);
    broker.send(&ids([0])).await;
    let from_end = async || {
        // The first member leaves without a word, and is missed after this time.
        let latest = [
            ("auto.offset.reset", "latest"),
            ("session.timeout.ms", SESSION),
        ];
        let source = KafkaTopic::connect_with(&broker.url(), TOPIC, GROUP, latest).await;
        source.unwrap()
    };
    let mut first = from_end().await;
    let received = tokio::spawn(async move {
        let delivery = next(&mut first).await;
        delivery.payload().to_vec()
    });
    until_committed(&broker, 1).await;
    broker.send(&ids([1])).await;
    assert_eq!(received.await.unwrap(), b"m-1");
    let mut second = from_end().await;
    assert_eq!(next(&mut second).await.payload(), b"m-1");
}

/// Finds a running source that retention ends, or makes skip messages.
#[tokio::test]
async fn resume_continues_with_the_first_message_where_retention_has_deleted_the_next_one() {
    let broker = Kafka::with_partitions(1);
    let source = source(&broker).await.max_uncommitted(1);
    let mut source = source.on_lost_subscription(OnLostSubscription::Resume);
    broker.send(&ids([0, 1])).await;
    let delivery = next(&mut source).await;
    delivery.settle(Verdict::Acknowledge).await.unwrap();
    until_committed(&broker, 1).await;
    // Its partition is paused while it is unsettled.
    let delivery = next(&mut source).await;
    delete_by_retention(&broker).await;
    delivery.settle(Verdict::Acknowledge).await.unwrap();
    let delivery = next(&mut source).await;
    assert!(delivery.offset() > 2, "{delivery:?}");
    delivery.settle(Verdict::Acknowledge).await.unwrap();
    broker.send(&ids([2])).await;
    loop {
        let delivery = next(&mut source).await;
        if delivery.payload() == b"m-2" {
            break;
        }
        delivery.settle(Verdict::Acknowledge).await.unwrap();
    }
}

/// Finds new offsets that only one member has: the next one fails, or skips messages sent since.
#[tokio::test]
async fn the_next_member_continues_with_the_offsets_that_replaced_lost_ones() {
    let (broker, first) = source_out_of_range(OnLostSubscription::FromNow).await;
    let mut desk = Desk::new();
    desk.run(desk.consumer(), first, async |_| Ok(()));
    desk.events.wait_for("subscription lost: ", 1).await;
    desk.close().await;
    broker.send(&ids([1])).await;
    let mut second = source(&broker).await;
    assert_eq!(next(&mut second).await.payload(), b"m-1");
}

/// Finds a consumer that waits for a topic that no broker has.
#[tokio::test]
async fn a_topic_that_is_gone_ends_the_source() {
    let broker = Kafka::with_partitions(1);
    broker.send(&ids([0])).await;
    let refresh = [("topic.metadata.refresh.interval.ms", "100")];
    let source = KafkaTopic::connect_with(&broker.url(), TOPIC, GROUP, refresh).await;
    let mut source = source.unwrap();
    let delivery = next(&mut source).await;
    delivery.settle(Verdict::Acknowledge).await.unwrap();
    broker.cluster.forget_topic(TOPIC);
    let text = error(&mut source).await.to_string();
    assert!(
        text.contains("is gone") && text.contains(TOPIC) && text.contains(GROUP),
        "{text}"
    );
}

/// Finds the client's text of any fatal error, which names no cause.
#[tokio::test]
async fn a_static_member_that_another_one_replaces_ends_with_its_cause() {
    let (broker, mut desk) = (Kafka::with_partitions(1), Desk::new());
    let properties = [
        ("group.instance.id", "desk-1"),
        ("heartbeat.interval.ms", "100"),
    ];
    let source = KafkaTopic::connect_with(&broker.url(), TOPIC, GROUP, properties).await;
    desk.run(desk.consumer(), source.unwrap(), async |_| Ok(()));
    broker.send(&ids([1])).await;
    desk.events.wait_for("completed", 1).await;
    broker.cluster.fence();
    let ended = desk.end().await.unwrap_err();
    let text = std::error::Error::source(&ended).unwrap().to_string();
    let names = text.starts_with("kafka:bills/collectors: ") && text.contains("group.instance.id");
    assert!(names, "{text}");
}

#[test]
fn a_retry_does_not_need_the_runtime_that_connected() {
    let [of_broker, connecting, consuming] = [(); 3].map(|()| Runtime::new().unwrap());
    let broker = of_broker.block_on(Kafka::start());
    of_broker.block_on(broker.send(&ids([1])));
    let mut topic = connecting.block_on(source(&broker));
    drop(connecting);
    consuming.block_on(async {
        let delivery = next(&mut topic).await;
        let again = Verdict::Retry(Some(Duration::ZERO));
        delivery.settle(again).await.unwrap();
        next(&mut topic).await;
    });
}
