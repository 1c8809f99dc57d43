//! Queues of `RabbitMQ`, on a real broker.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use idem_harness::RabbitServer;
use idem_runtime::consumer::{
    Consumer, DeadLetterReason, Delivery, RabbitDelivery, RabbitQueue, Raw, Source, Summary,
    Verdict,
};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Class, Classify, Context, Engine};
use lapin::message::BasicGetMessage;
use lapin::options::{
    BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_mins(2);

/// The types of queues.
const TYPES: [&str; 2] = ["quorum", "classic"];

/// Of the tests that do not disturb it, each with queues of its own.
static SHARED: LazyLock<RabbitServer> = LazyLock::new(RabbitServer::start);

#[derive(Debug, Deserialize, Serialize)]
struct Down;

impl Classify for Down {
    fn class(&self) -> Class {
        Class::System
    }
}

/// A queue and that of its dead letters, as a producer and an operator see them.
struct Desk<'a> {
    server: &'a RabbitServer,
    queue: String,
    channel: Channel,
    _connection: Connection,
}

impl<'a> Desk<'a> {
    async fn new(server: &'a RabbitServer, queue: &str, kind: &str) -> Self {
        let queue = format!("{queue}-{kind}");
        let properties = ConnectionProperties::default();
        let connection = Connection::connect(&server.url(), properties)
            .await
            .unwrap();
        let channel = connection.create_channel().await.unwrap();
        let options = ConfirmSelectOptions::default();
        channel.confirm_select(options).await.unwrap();
        let desk = Self {
            server,
            queue,
            channel,
            _connection: connection,
        };
        let mut arguments = FieldTable::default();
        let kind = AMQPValue::LongString(kind.into());
        arguments.insert("x-queue-type".into(), kind);
        for name in [desk.queue.clone(), desk.dead()] {
            let options = QueueDeclareOptions::durable();
            let declared = desk
                .channel
                .queue_declare(name.into(), options, arguments.clone());
            declared.await.unwrap();
        }
        desk
    }

    fn dead(&self) -> String {
        format!("{}.dead", self.queue)
    }

    /// Sends messages whose payloads are their ids, and waits until the broker has stored them.
    async fn send(&self, ids: impl IntoIterator<Item = u32>) {
        let mut sent = Vec::new();
        for id in ids {
            let id = format!("m-{id}");
            let properties = BasicProperties::default().with_message_id(id.as_str().into());
            sent.push(self.publish(&id, properties).await);
        }
        for sent in sent {
            assert!(sent.await.unwrap().is_ack());
        }
    }

    async fn publish(&self, text: &str, properties: BasicProperties) -> lapin::PublisherConfirm {
        let (exchange, key) = ("".into(), self.queue.as_str().into());
        let (options, properties) = (
            BasicPublishOptions::default(),
            properties.with_delivery_mode(2),
        );
        let publication =
            self.channel
                .basic_publish(exchange, key, options, text.as_bytes(), properties);
        publication.await.unwrap()
    }

    async fn source(&self) -> RabbitQueue {
        RabbitQueue::connect(&self.server.url(), self.queue.as_str())
            .await
            .unwrap()
    }

    /// Whether every message is settled.
    fn settled(&self) -> bool {
        let queues = block_in_place(|| self.server.ctl(&["list_queues", "name", "messages"]));
        let line = queues
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{}\t", self.queue)));
        line.unwrap() == "0"
    }

    async fn until_settled(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.settled() {
            assert!(Instant::now() < deadline, "every message is settled");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn dead_letters(&self) -> Vec<BasicGetMessage> {
        let (mut letters, options) = (Vec::new(), BasicGetOptions { no_ack: true });
        while let Some(letter) = self
            .channel
            .basic_get(self.dead().into(), options)
            .await
            .unwrap()
        {
            letters.push(letter);
        }
        letters
    }
}

fn header(letter: &BasicGetMessage, name: &str) -> Option<String> {
    let headers = letter.properties.headers().as_ref()?;
    let text = headers.inner().get(name)?.as_long_string()?;
    Some(text.to_string())
}

async fn next(source: &mut RabbitQueue) -> RabbitDelivery {
    let next = timeout(PATIENCE, source.next()).await;
    next.expect("a delivery").unwrap().unwrap()
}

/// Consumers of one queue, and the number of bodies of each payload.
struct Running {
    consumers: JoinSet<Summary>,
    bodies: Arc<Mutex<BTreeMap<String, u32>>>,
    stop: watch::Sender<bool>,
}

impl Running {
    async fn start(desk: &Desk<'_>, consumers: usize, fails: fn(&str) -> bool) -> Self {
        let engine = Engine::new(MemoryStore::new());
        let mut running = Self {
            consumers: JoinSet::new(),
            bodies: Arc::default(),
            stop: watch::Sender::new(false),
        };
        for _ in 0..consumers {
            let bodies = Arc::clone(&running.bodies);
            let handler = move |message: Raw, _: Context| {
                let text = String::from_utf8(message.0).unwrap();
                *bodies.lock().unwrap().entry(text.clone()).or_default() += 1;
                async move { if fails(&text) { Err(Down) } else { Ok(()) } }
            };
            let consumer = Consumer::new(engine.clone(), "bills.collect")
                .dead_letter_after(3)
                .retry_after(Duration::from_millis(10));
            let (source, mut stopped) = (desk.source().await, running.stop.subscribe());
            let stopped = async move {
                let _ = stopped.wait_for(|stopped| *stopped).await;
            };
            running
                .consumers
                .spawn(async move { consumer.run_until(source, handler, stopped).await.unwrap() });
        }
        running
    }

    fn bodies(&self) -> BTreeMap<String, u32> {
        self.bodies.lock().unwrap().clone()
    }

    async fn until_bodies(&self, number: usize) {
        let some = async {
            while self.bodies().len() < number {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, some).await.expect("bodies run");
    }

    async fn stop(self) -> (Vec<Summary>, BTreeMap<String, u32>) {
        self.stop.send_replace(true);
        let summaries = self.consumers.join_all().await;
        let bodies = self.bodies.lock().unwrap().clone();
        (summaries, bodies)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_consumers_run_one_body_for_each_id() {
    for kind in TYPES {
        let desk = Desk::new(&SHARED, "many", kind).await;
        desk.send((0..2_000).map(|number| number % 500)).await;
        let running = Running::start(&desk, 3, |_| false).await;
        desk.until_settled().await;
        let (summaries, bodies) = running.stop().await;
        let acknowledged: u64 = summaries.iter().map(|it| it.acknowledged).sum();
        assert_eq!((bodies.len(), bodies.values().max()), (500, Some(&1)));
        assert_eq!(acknowledged, 2_000, "{kind}: {summaries:?}");
        assert!(desk.dead_letters().await.is_empty());
        assert!(desk.settled(), "{kind}: nothing was given back at the end");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_always_fails_is_a_dead_letter_with_its_reason_and_id() {
    for kind in TYPES {
        let desk = Desk::new(&SHARED, "failing", kind).await;
        desk.send(0..20).await;
        let running = Running::start(&desk, 2, |text| text == "m-7").await;
        desk.until_settled().await;
        let (_, bodies) = running.stop().await;
        assert_eq!(bodies["m-7"], 3);
        let letters = desk.dead_letters().await;
        assert_eq!(letters.len(), 1, "{kind}");
        let letter = &letters[0];
        assert_eq!(
            (&*letter.data, *letter.properties.delivery_mode()),
            (&b"m-7"[..], Some(2))
        );
        assert_eq!(header(letter, "idem-id").unwrap(), "m-7");
        let reason = DeadLetterReason::Exhausted.as_str();
        assert_eq!(header(letter, "idem-reason").unwrap(), reason);
        assert!(header(letter, "x-delivery-count").is_none());
    }
}

/// Neither expires nor goes to its copies again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_without_an_id_is_a_dead_letter_that_stays_in_its_queue() {
    let desk = Desk::new(&SHARED, "nameless", "quorum").await;
    let mut headers = FieldTable::default();
    let copies = AMQPValue::FieldArray(vec![AMQPValue::LongString("elsewhere".into())].into());
    headers.insert("CC".into(), copies);
    headers.insert("kept".into(), AMQPValue::LongString("yes".into()));
    let properties = BasicProperties::default()
        .with_expiration("600000".into())
        .with_user_id("idem".into())
        .with_content_type("text/plain".into())
        .with_headers(headers);
    let sent = desk.publish("no id", properties).await;
    assert!(sent.await.unwrap().is_ack());
    let running = Running::start(&desk, 1, |_| false).await;
    desk.until_settled().await;
    let (_, bodies) = running.stop().await;
    assert_eq!(bodies.len(), 0);
    let letters = desk.dead_letters().await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_may_come_from_a_header() {
    let desk = Desk::new(&SHARED, "header", "classic").await;
    let mut headers = FieldTable::default();
    headers.insert("bill".into(), AMQPValue::LongLongInt(7));
    let properties = BasicProperties::default().with_headers(headers);
    let sent = desk.publish("m", properties).await;
    assert!(sent.await.unwrap().is_ack());
    let mut source = desk.source().await;
    let delivery = next(&mut source).await;
    let found = (delivery.id(), delivery.header("bill").unwrap().into_owned());
    assert_eq!(found, (None, "7".to_owned()));
    assert_eq!(
        (delivery.payload(), delivery.routing_key()),
        (&b"m"[..], &*desk.queue)
    );
    delivery.settle(Verdict::Acknowledge).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_that_is_dropped_unsettled_comes_again() {
    for (kind, attempts) in TYPES.into_iter().zip([Some(2), None]) {
        let desk = Desk::new(&SHARED, "dropped", kind).await;
        desk.send([1]).await;
        let mut source = desk.source().await;
        let first = next(&mut source).await;
        assert_eq!(first.attempt(), Some(1));
        drop(first);
        let second = next(&mut source).await;
        assert_eq!(second.id().as_deref(), Some("m-1"));
        assert_eq!(second.attempt(), attempts, "{kind}");
        second.settle(Verdict::Acknowledge).await.unwrap();
        desk.until_settled().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retried_message_comes_again_after_its_pause_and_holds_up_no_other() {
    let desk = Desk::new(&SHARED, "paused", "quorum").await;
    desk.send([1, 2]).await;
    let mut source = desk.source().await;
    let (pause, first) = (Duration::from_secs(1), next(&mut source).await);
    let begun = Instant::now();
    first.settle(Verdict::Retry(Some(pause))).await.unwrap();
    let second = next(&mut source).await;
    assert_eq!(second.id().as_deref(), Some("m-2"));
    second.settle(Verdict::Acknowledge).await.unwrap();
    let first = next(&mut source).await;
    assert_eq!(first.id().as_deref(), Some("m-1"));
    assert!(begun.elapsed() >= pause, "{:?}", begun.elapsed());
    first.settle(Verdict::Acknowledge).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_dropped_gives_back_what_it_holds_and_keeps_what_is_handled() {
    let desk = Desk::new(&SHARED, "stopped", "quorum").await;
    desk.send([1, 2, 3]).await;
    let mut source = desk.source().await;
    let handled = next(&mut source).await;
    let long = Verdict::Retry(Some(Duration::from_hours(1)));
    next(&mut source).await.settle(long).await.unwrap();
    drop(source);
    let mut source = desk.source().await;
    let mut others = Vec::new();
    for _ in 0..2 {
        let delivery = next(&mut source).await;
        others.push(delivery.id().unwrap().into_owned());
        delivery.settle(Verdict::Acknowledge).await.unwrap();
    }
    others.sort();
    assert_eq!(others, ["m-2", "m-3"]);
    handled.settle(Verdict::Acknowledge).await.unwrap();
    desk.until_settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_an_error_that_names_no_password() {
    let _desk = Desk::new(&SHARED, "refused", "classic").await;
    let url = SHARED.url_with("not-the-password");
    let refused = timeout(PATIENCE, RabbitQueue::connect(&url, "refused-classic")).await;
    let error = refused.unwrap().unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(text.contains("ACCESS_REFUSED"), "{text}");
    assert!(!text.contains("not-the-password"), "{text}");
    let url = "amqp://idem:not-the-password@127.0.0.1:none/%2f";
    let error = RabbitQueue::connect(url, "bills").await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("not-the-password"));
    let source = RabbitQueue::connect(&SHARED.url(), "refused-classic").await;
    let text = format!("{:?}", source.unwrap());
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_or_dead_letter_queue_that_is_not_there_is_an_error() {
    let desk = Desk::new(&SHARED, "there", "quorum").await;
    let error = RabbitQueue::connect(&SHARED.url(), "not-there").await;
    assert!(error.unwrap_err().to_string().contains("NOT_FOUND"));
    for source in [
        desk.source().await.dead_letter_queue("not-there"),
        desk.source().await.dead_letter_exchange("not-there", "key"),
    ] {
        let mut source = source;
        let error = timeout(PATIENCE, source.next()).await.unwrap();
        assert!(error.unwrap_err().to_string().contains("NOT_FOUND"));
    }
}

/// The exchange is there, and no queue is bound to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_that_no_queue_takes_keeps_its_message_in_the_queue() {
    let desk = Desk::new(&SHARED, "unrouted", "quorum").await;
    desk.send([1]).await;
    let mut source = desk
        .source()
        .await
        .dead_letter_exchange("amq.direct", "nothing");
    let verdict = Verdict::DeadLetter(DeadLetterReason::Business);
    let settled = next(&mut source).await.settle(verdict).await;
    let error = settled.unwrap_err().to_string();
    assert!(error.contains("not stored"), "{error}");
    let again = next(&mut source).await;
    assert_eq!(again.id().as_deref(), Some("m-1"));
    again.settle(Verdict::Acknowledge).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_the_broker_closes_is_made_anew() {
    let server = block_in_place(RabbitServer::start);
    for kind in TYPES {
        let desk = Desk::new(&server, "closed", kind).await;
        desk.send([1]).await;
        let mut source = desk.source().await;
        let lost = next(&mut source).await;
        let _ = block_in_place(|| server.ctl(&["close_all_connections", "by the test"]));
        let again = next(&mut source).await;
        assert_eq!(again.id().as_deref(), Some("m-1"));
        assert!(lost.settle(Verdict::Acknowledge).await.is_err());
        again.settle(Verdict::Acknowledge).await.unwrap();
        desk.until_settled().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_killed_and_comes_back_loses_no_message_and_repeats_no_body() {
    let server = block_in_place(RabbitServer::start);
    for kind in TYPES {
        let desk = Desk::new(&server, "killed", kind).await;
        desk.send((0..2_000).map(|number| number % 500)).await;
        let running = Running::start(&desk, 3, |_| false).await;
        running.until_bodies(100).await;
        block_in_place(|| server.restart());
        desk.until_settled().await;
        let (summaries, bodies) = running.stop().await;
        assert_eq!((bodies.len(), bodies.values().max()), (500, Some(&1)));
        assert!(
            summaries.iter().all(|it| it.dead_letters == 0),
            "{kind}: {summaries:?}"
        );
    }
}
