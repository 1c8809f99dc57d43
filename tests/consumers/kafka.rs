//! Kafka, on the mock cluster of librdkafka: real protocol, groups and rebalances, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_harness::{KafkaCluster, RedisServer, Worker};
use idem_runtime::consumer::{
    Consumer, DeadLetterReason, Delivery, KafkaDelivery, KafkaTopic, Raw, Source, Summary, Verdict,
};
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Class, Classify, Context, Engine, Policy};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders, OwnedMessage};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

const TOPIC: &str = "bills";
const DEAD: &str = "bills.dead";
const GROUP: &str = "collectors";
const PATIENCE: Duration = Duration::from_mins(1);
const LEASE: Duration = Duration::from_secs(2);
/// Of a client that sends no heartbeat, and of one that is not polled.
const SESSION: Duration = Duration::from_secs(4);

#[derive(Debug, Deserialize, Serialize)]
struct Down;

impl Classify for Down {
    fn class(&self) -> Class {
        Class::System
    }
}

/// A cluster, a store that its consumers share, and how often each payload was handled.
struct Desk {
    cluster: KafkaCluster,
    redis: RedisServer,
    partitions: u32,
    bodies: Arc<Mutex<BTreeMap<String, u32>>>,
}

/// A consumer of the topic, until it is told to stop.
struct Running {
    stop: watch::Sender<bool>,
    end: JoinHandle<Summary>,
}

impl Running {
    async fn stop(self) -> Summary {
        self.stop.send_replace(true);
        timeout(PATIENCE, self.end).await.unwrap().unwrap()
    }
}

impl Desk {
    fn new(partitions: u32) -> Self {
        let cluster = KafkaCluster::start();
        cluster.create_topic(TOPIC, partitions);
        cluster.create_topic(DEAD, 1);
        let redis = RedisServer::builder().append_only_every_second().start();
        Self {
            cluster,
            redis,
            partitions,
            bodies: Arc::default(),
        }
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.cluster.brokers());
        config
    }

    /// Sends messages with these ids, as header and payload, to all partitions in turn.
    async fn send(&self, ids: impl IntoIterator<Item = u32>) {
        let producer: FutureProducer = self.client().create().unwrap();
        let mut sent = Vec::new();
        for (number, id) in (0..).zip(ids) {
            let (id, partition) = (format!("m-{id}"), (number + number / 500) % self.partitions);
            let header = Header {
                key: "id",
                value: Some(&id),
            };
            let record = FutureRecord::<str, str>::to(TOPIC)
                .partition(partition.try_into().unwrap())
                .headers(OwnedHeaders::new().insert(header))
                .payload(&id);
            sent.push(
                producer
                    .send_result(record)
                    .map_err(|(error, _)| error)
                    .unwrap(),
            );
        }
        for sent in sent {
            sent.await.unwrap().unwrap();
        }
    }

    async fn source(&self) -> KafkaTopic {
        // A rebalance of the mock cluster takes as long as a session, less a second.
        let session = SESSION.as_millis().to_string();
        let properties = [
            ("session.timeout.ms", &*session),
            ("max.poll.interval.ms", &session),
            ("heartbeat.interval.ms", "200"),
        ];
        KafkaTopic::connect_with(self.cluster.brokers(), TOPIC, GROUP, properties)
            .await
            .unwrap()
    }

    async fn consumer(&self) -> Consumer {
        let store = RedisStore::connect(self.redis.url()).await.unwrap();
        Consumer::new(Engine::new(store), "bills.collect")
            .dead_letter_after(3)
            .retry_after(Duration::from_millis(10))
            .drain(Duration::from_millis(100))
            .policy(Policy::new().lease(LEASE))
    }

    /// Starts a consumer whose bodies are counted and then do this with the payload.
    fn start<F>(
        &self,
        consumer: Consumer,
        source: KafkaTopic,
        body: impl Fn(String) -> F + Send + Sync + 'static,
    ) -> Running
    where
        F: Future<Output = Result<(), Down>> + Send + 'static,
    {
        let bodies = Arc::clone(&self.bodies);
        let handler = move |message: Raw, _: Context| {
            let text = String::from_utf8(message.0).unwrap();
            *bodies.lock().unwrap().entry(text.clone()).or_default() += 1;
            body(text)
        };
        let (stop, mut stopped) = watch::channel(false);
        let stopped = async move {
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        let end =
            tokio::spawn(
                async move { consumer.run_until(source, handler, stopped).await.unwrap() },
            );
        Running { stop, end }
    }

    /// The committed offset of each partition.
    async fn committed(&self) -> Vec<i64> {
        let client: BaseConsumer = self.client().set("group.id", GROUP).create().unwrap();
        let mut list = TopicPartitionList::new();
        let partitions = i32::try_from(self.partitions).unwrap();
        list.add_partition_range(TOPIC, 0, partitions - 1);
        let read = move || client.committed_offsets(list, PATIENCE).unwrap();
        let list = tokio::task::spawn_blocking(read).await.unwrap();
        let offset = |offset| match offset {
            Offset::Offset(offset) => offset,
            _ => 0,
        };
        list.elements()
            .iter()
            .map(|it| offset(it.offset()))
            .collect()
    }

    /// Waits until so many messages of all partitions are committed.
    async fn all_committed(&self, messages: i64) {
        until("every message is committed", async || {
            self.committed().await.iter().sum::<i64>() == messages
        })
        .await;
    }

    fn bodies(&self) -> BTreeMap<String, u32> {
        self.bodies.lock().unwrap().clone()
    }

    fn assert_one_body_for_each_of(&self, ids: usize) {
        let bodies = self.bodies();
        assert_eq!((bodies.len(), bodies.values().max()), (ids, Some(&1)));
    }

    /// So many dead letters.
    async fn dead_letters(&self, count: usize) -> Vec<OwnedMessage> {
        let client: BaseConsumer = self.client().set("group.id", "operators").create().unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(DEAD, 0, Offset::Beginning)
            .unwrap();
        client.assign(&list).unwrap();
        let read = move || {
            let poll = || client.poll(PATIENCE).expect("a dead letter in time").ok();
            let found = std::iter::repeat_with(poll).flatten();
            found.map(|it| it.detach()).take(count).collect()
        };
        tokio::task::spawn_blocking(read).await.unwrap()
    }
}

async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn next(source: &mut KafkaTopic) -> KafkaDelivery {
    timeout(PATIENCE, source.next())
        .await
        .unwrap()
        .unwrap()
        .unwrap()
}

fn header<'a>(message: &'a OwnedMessage, name: &str) -> Option<&'a str> {
    let mut headers = message.headers()?.iter();
    let found = headers.find(|it| it.key == name)?;
    std::str::from_utf8(found.value?).ok()
}

#[tokio::test]
async fn three_consumers_of_a_kafka_topic_run_one_body_for_each_id() {
    let desk = Desk::new(4);
    desk.send((0..2_000).map(|number| number % 500)).await;
    let mut running = Vec::new();
    for _ in 0..3 {
        let (consumer, source) = (desk.consumer().await, desk.source().await);
        running.push(desk.start(consumer, source, async |_| Ok(())));
    }
    desk.all_committed(2_000).await;
    let mut acknowledged = 0;
    for running in running {
        acknowledged += running.stop().await.acknowledged;
    }
    desk.assert_one_body_for_each_of(500);
    assert!(acknowledged >= 2_000, "{acknowledged}");
}

/// The bodies of the first two wait, and their partitions are paused, until a third consumer has joined, handled
/// messages, and left.
#[tokio::test]
async fn a_consumer_that_joins_and_leaves_costs_no_message_and_no_second_body() {
    let desk = Desk::new(4);
    desk.send(0..1_000).await;
    let (gate, open) = watch::channel(false);
    let mut running = Vec::new();
    for _ in 0..2 {
        let open = open.clone();
        let body = move |_| {
            let mut open = open.clone();
            async move {
                open.wait_for(|open| *open).await.unwrap();
                Ok(())
            }
        };
        let (consumer, source) = (desk.consumer().await, desk.source().await);
        let source = source.max_uncommitted(20);
        running.push(desk.start(consumer.concurrency(200), source, body));
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
    let (consumer, source) = (desk.consumer().await, desk.source().await);
    let third = desk.start(consumer.concurrency(200), source, body);
    until("the third one has handled messages", async || {
        handled.lock().unwrap().len() >= 100
    })
    .await;
    let third = third.stop().await;
    gate.send_replace(true);
    desk.all_committed(1_000).await;
    for running in running {
        running.stop().await;
    }
    desk.assert_one_body_for_each_of(1_000);
    assert!(third.acknowledged >= 100, "{third:?}");
}

#[tokio::test]
async fn no_offset_behind_an_unfinished_message_is_committed_and_a_restart_loses_none() {
    let desk = Desk::new(1);
    desk.send(0..50).await;
    let body = async |id| {
        if id == "m-10" {
            std::future::pending::<()>().await;
        }
        Ok(())
    };
    let first = desk.start(desk.consumer().await, desk.source().await, body);
    desk.all_committed(10).await;
    until("the others are handled", async || desk.bodies().len() == 50).await;
    desk.send(50..70).await;
    until("the later ones are handled", async || {
        desk.bodies().len() == 70
    })
    .await;
    assert_eq!(desk.committed().await, [10]);
    let first = first.stop().await;
    assert_eq!((first.acknowledged, first.abandoned), (69, 1));
    assert_eq!(desk.committed().await, [10]);

    let second = desk.start(desk.consumer().await, desk.source().await, async |_| Ok(()));
    desk.all_committed(70).await;
    let second = second.stop().await;
    assert_eq!((second.acknowledged, second.dead_letters), (60, 0));
    let mut bodies = desk.bodies();
    assert_eq!(bodies.remove("m-10"), Some(2), "abandoned, then run");
    assert_eq!((bodies.len(), bodies.values().max()), (69, Some(&1)));
}

/// A consumer in a process of its own, which prints its bodies.
fn worker(desk: &Desk) -> Worker {
    let worker = Worker::sibling("idem-kafka-worker").args([desk.cluster.brokers(), TOPIC, GROUP]);
    let session = SESSION.as_millis().to_string();
    worker.arg(session).arg(desk.redis.url()).spawn()
}

#[tokio::test]
async fn the_messages_of_a_killed_consumer_are_another_one_s() {
    let desk = Desk::new(4);
    desk.send(0..400).await;
    let mut bodies = BTreeMap::<String, u32>::new();
    let mut first = worker(&desk);
    for _ in 0..100 {
        *bodies.entry(first.line_after("body ")).or_default() += 1;
    }
    first.kill9();
    let mut second = worker(&desk);
    desk.all_committed(400).await;
    assert!(second.wait().success());
    for line in first.rest().into_iter().chain(second.rest()) {
        let id = line.strip_prefix("body ").unwrap();
        *bodies.entry(id.to_owned()).or_default() += 1;
    }
    assert_eq!(bodies.len(), 400);
    // Those that were running, at most as many as run at once.
    let repeated = bodies.values().filter(|bodies| **bodies > 1).count();
    assert!(repeated <= 16, "{bodies:?}");
}

#[tokio::test]
async fn what_is_settled_is_committed_when_the_consumer_has_stopped() {
    let desk = Desk::new(4);
    desk.send(0..40).await;
    let running = desk.start(desk.consumer().await, desk.source().await, async |_| Ok(()));
    until("all are handled", async || desk.bodies().len() == 40).await;
    let summary = running.stop().await;
    assert_eq!(
        desk.committed().await.iter().sum::<i64>(),
        40,
        "{summary:?}"
    );
}

#[tokio::test]
async fn a_kafka_message_that_always_fails_is_a_dead_letter_with_its_headers() {
    let desk = Desk::new(2);
    desk.send(0..20).await;
    let body = async |id| if id == "m-7" { Err(Down) } else { Ok(()) };
    let running = desk.start(desk.consumer().await, desk.source().await, body);
    desk.all_committed(20).await;
    let summary = running.stop().await;
    let found = (summary.acknowledged, summary.retried, summary.dead_letters);
    assert_eq!(found, (19, 3, 1), "{summary:?}");
    assert_eq!(desk.bodies()["m-7"], 3);
    let letter = desk.dead_letters(1).await.remove(0);
    assert_eq!(letter.payload(), Some(&b"m-7"[..]));
    assert_eq!(header(&letter, "id"), Some("m-7"));
    assert_eq!(header(&letter, "idem-id"), Some("m-7"));
    let reason = DeadLetterReason::Exhausted.as_str();
    assert_eq!(header(&letter, "idem-reason"), Some(reason));
}

#[tokio::test]
async fn a_partition_is_paused_while_its_first_message_is_unfinished() {
    let desk = Desk::new(1);
    desk.send(0..200).await;
    let (gate, open) = watch::channel(false);
    let body = move |id| {
        let mut open = open.clone();
        async move {
            if id == "m-0" {
                open.wait_for(|open| *open).await.unwrap();
            }
            Ok(())
        }
    };
    let source = desk.source().await.max_uncommitted(10);
    let running = desk.start(desk.consumer().await, source, body);
    until("the partition is full", async || desk.bodies().len() == 10).await;
    // Longer than the client may go without a poll. Nothing is waited for: that it stays in its group is no event.
    sleep(SESSION * 2).await;
    assert_eq!((desk.bodies().len(), desk.committed().await), (10, vec![0]));
    gate.send_replace(true);
    desk.all_committed(200).await;
    let summary = running.stop().await;
    desk.assert_one_body_for_each_of(200);
    assert_eq!((summary.acknowledged, summary.unsettled), (200, 0));
}

#[tokio::test]
async fn a_delivery_of_a_revoked_partition_is_another_consumer_s() {
    let desk = Desk::new(2);
    desk.send([0, 1]).await;
    let mut first = desk.source().await;
    let deliveries = [next(&mut first).await, next(&mut first).await];
    for delivery in &deliveries {
        delivery.extend(LEASE).await.unwrap();
    }
    let mut second = desk.source().await;
    let moved = next(&mut second).await;
    for delivery in deliveries {
        let is_moved = delivery.partition() == moved.partition();
        assert_eq!(delivery.extend(LEASE).await.is_err(), is_moved);
        assert_eq!(
            delivery.settle(Verdict::Acknowledge).await.is_err(),
            is_moved
        );
    }
    moved.settle(Verdict::Acknowledge).await.unwrap();
    desk.all_committed(2).await;
}

#[tokio::test]
async fn a_kafka_message_without_the_header_has_the_id_of_its_place() {
    let desk = Desk::new(1);
    desk.send([7, 8]).await;
    let mut source = desk.source().await.id_header("ce_id");
    let delivery = next(&mut source).await;
    assert_eq!(delivery.id().as_deref(), Some("bills/0/0"));
    assert_eq!(
        (delivery.header("id"), delivery.attempt()),
        (Some(&b"m-7"[..]), None)
    );
    assert_eq!(delivery.payload(), b"m-7");
    delivery.settle(Verdict::Acknowledge).await.unwrap();
    let delivery = next(&mut source).await;
    assert_eq!(delivery.id().as_deref(), Some("bills/0/1"));
}

#[tokio::test]
async fn a_kafka_delivery_that_is_dropped_or_given_back_is_delivered_again() {
    let desk = Desk::new(1);
    desk.send([7]).await;
    let mut source = desk.source().await;
    drop(next(&mut source).await);
    let delivery = next(&mut source).await;
    delivery.settle(Verdict::Retry(None)).await.unwrap();
    let delivery = next(&mut source).await;
    delivery.settle(Verdict::Stop).await.unwrap();
    drop(source);
    assert_eq!(desk.committed().await, [0]);
    let mut source = desk.source().await;
    assert_eq!(next(&mut source).await.payload(), b"m-7");
}

#[tokio::test]
async fn a_kafka_cluster_that_was_down_is_consumed_again() {
    let desk = Desk::new(2);
    desk.send(0..20).await;
    let running = desk.start(desk.consumer().await, desk.source().await, async |_| Ok(()));
    desk.all_committed(20).await;
    desk.cluster.take_down();
    desk.cluster.bring_up();
    desk.send(20..40).await;
    desk.all_committed(40).await;
    let summary = running.stop().await;
    desk.assert_one_body_for_each_of(40);
    assert_eq!(summary.dead_letters, 0);
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
