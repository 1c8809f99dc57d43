//! Consumer groups of Kafka.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use idem_runtime::__private::Lock;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::sleep;

use self::first_offset::{PATIENCE, first_offset};
use self::poll::{Callbacks, KafkaMessage, PollThread, Polled, Poller, refused};
use crate::delivery::{BrokerError, Delivery, Source};
use crate::source_events::SourceEvents;
use crate::subscription::{OnLostSubscription, name};
use crate::verdict::{DeadLetterReason, Verdict};

mod first_offset;
mod offsets;
mod poll;

/// Longest wait of a dead letter in the client's full queue.
const QUEUE_PATIENCE: Duration = Duration::from_secs(5);

/// The pause before the redelivery of a dropped or unsettled delivery.
const UNSETTLED_PAUSE: Duration = Duration::from_secs(1);

/// Headers that a dead letter has beside those of its message.
const ID: &str = "idem-id";
const REASON: &str = "idem-reason";

/// A consumer group of a Kafka topic, as a [`Source`].
///
/// Kafka knows one number of each partition: the offset before which everything is done. The messages of a partition
/// are handled at once and end in any order; the committed offset is that of the first unsettled one.
/// After a crash or a rebalance everything from there on is delivered again, and a message that was done is
/// acknowledged without its handler.
///
/// | verdict | effect |
/// | --- | --- |
/// | acknowledge | the offset may be committed: in the background, every 100 ms, until the brokers take it, and before the partition is given up |
/// | retry | this process delivers the message again after the pause, from memory; the offset is not committed |
/// | dead letter | the message is sent to [`dead_letters`](Self::dead_letters) with `acks=all`, all its headers, `idem-id` and `idem-reason`; then as acknowledge |
/// | stop | the offset is not committed |
///
/// Kafka counts no deliveries and sets no deadline. A thread polls the client while handlers run, so that they may take
/// longer than `max.poll.interval.ms`. Once a partition is revoked, extending or settling a delivery of it is an error:
/// another consumer gets the message.
///
/// **Dead letters** may be there several times: a message whose dead letter was sent, behind the committed offset, is
/// delivered again after a crash or a rebalance, and its dead letter is sent again. Their topic has to take messages as
/// large as those of the topic, and their headers; a refused one is sent again each second. To send a message without a
/// header `id` again, give it its `idem-id` as that header, or it is another message, which runs.
///
/// **The id** is the header [`id`](Self::id_header), or topic, partition, offset and timestamp
/// (`bills/0/17/1732371600000`): a topic that is created anew counts from 0 again, and a leader that was elected without
/// the last messages gives their offsets to others.
///
/// **Memory.** A partition is paused while it has [`max_uncommitted`](Self::max_uncommitted) messages beyond the
/// committed offset: one message that is retried for long holds up those behind it only then.
///
/// **Lost offsets.** Offsets that the brokers do not have are an error of [`next`](Source::next) that names topic,
/// partition and group, unless [`on_lost_subscription`](Self::on_lost_subscription) says where to continue: messages
/// that retention deleted before they were read, a topic that was created anew, offsets of a running group that have
/// expired. The new offsets are committed at once, for all members of the group. A topic that is gone is an error in
/// any case.
///
/// **Stopping.** The group is left when the source and its last delivery are dropped. That waits for the last commit,
/// for at most 5 s, and blocks its thread meanwhile.
///
/// ```no_run
/// use idem_consumers::{Consumer, KafkaTopic, Raw};
/// use idem_runtime::{Context, Engine, Error, store::memory::MemoryStore};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::new(MemoryStore::new()); // of one process: take a store that all consumers share
/// let bills = KafkaTopic::connect("127.0.0.1:9092", "bills", "collectors").await?;
/// let consumer = Consumer::new(engine, "bills.collect").concurrency(32).dead_letter_after(5);
/// consumer.run(bills, async |bill: Raw, _: Context| Ok::<usize, Error>(bill.0.len())).await?;
/// # Ok(()) }
/// ```
pub struct KafkaTopic {
    group: Arc<KafkaGroup>,
    /// Until the first message is asked for.
    unsubscribed: Option<BaseConsumer<Callbacks>>,
    received: UnboundedReceiver<Result<Arc<KafkaMessage>, BrokerError>>,
}

struct KafkaGroup {
    context: Arc<Callbacks>,
    dead_letters: String,
    id_header: Cow<'static, str>,
    max_uncommitted: usize,
    on_lost: OnLostSubscription,
    producer: FutureProducer,
    polled: Polled,
    poller: OnceLock<Poller>,
}

impl KafkaTopic {
    /// Connects to the cluster of these brokers (`host:port`, separated by commas).
    ///
    /// # Errors
    ///
    /// No broker can be reached within 5 s, or it refuses.
    pub async fn connect(
        brokers: &str,
        topic: impl Into<String>,
        group: impl Into<String>,
    ) -> Result<Self, BrokerError> {
        let none: [(&str, &str); 0] = [];
        Self::connect_with(brokers, topic, group, none).await
    }

    /// Connects with properties of librdkafka, such as `sasl.username`. No value is ever printed.
    ///
    /// Their names are in librdkafka's `CONFIGURATION.md`.
    ///
    /// A group without an offset in a partition begins with its first message, or where `auto.offset.reset` says; the
    /// end (`latest`) is committed at once, so that messages sent from then on are delivered. That property has no effect
    /// on lost offsets. Members of a group keep their partitions when others join
    /// (`partition.assignment.strategy=cooperative-sticky`); a group with other consumers takes their strategy. A dead
    /// letter that no broker takes within 20 s (`message.timeout.ms`) is an error of its verdict. `group.id`,
    /// `enable.auto.commit`, `enable.auto.offset.store` and `acks` are not to be set.
    ///
    /// A silent connection, as after a firewall has forgotten it, is made anew after `socket.timeout.ms`, by default
    /// 10 s: the 60 s of librdkafka are longer than a session (`session.timeout.ms`), so that the group would give the
    /// member's partitions away.
    ///
    /// TLS and SASL/SCRAM need OpenSSL: add the crate `rdkafka`, in the version of this crate, with its feature `ssl`.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), and a property that the client does not take.
    pub async fn connect_with<N: Into<String>, V: Into<String>>(
        brokers: &str,
        topic: impl Into<String>,
        group: impl Into<String>,
        properties: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, BrokerError> {
        let (topic, name) = (topic.into(), group.into());
        if topic.starts_with('^') {
            let text = "a topic that begins with `^` is a pattern of topics: use a source for each of them";
            return Err(BrokerError::new(text));
        }
        let mut common = ClientConfig::new();
        common.extend(
            properties
                .into_iter()
                .map(|(name, value)| (name.into(), value.into())),
        );
        common.set("bootstrap.servers", brokers);
        default_to(&mut common, "socket.timeout.ms", "10000");
        let mut config = common.clone();
        let first = first_offset(config.get("auto.offset.reset"))?;
        config.set("auto.offset.reset", "error");
        // The newer protocol, whose brokers assign, refuses it.
        if config.get("group.protocol") != Some("consumer") {
            default_to(
                &mut config,
                "partition.assignment.strategy",
                "cooperative-sticky",
            );
        }
        config
            .set("group.id", &name)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false");
        default_to(&mut common, "message.timeout.ms", "20000");
        // The topic has the limit: a message that was read has a dead letter, whatever its size.
        default_to(&mut common, "message.max.bytes", "1000000000");
        let producer = common.set("acks", "all").create().map_err(refused)?;
        let dead_letters = format!("{topic}.dead");
        let callbacks = Callbacks {
            topic,
            group: name,
            offsets: Lock::default(),
            commits: Lock::default(),
            first,
            events: OnceLock::new(),
            unreachable: Lock::default(),
        };
        let consumer = config
            .create_with_context::<_, BaseConsumer<_>>(callbacks)
            .map_err(refused)?;
        let reach = move || -> Result<_, KafkaError> {
            consumer.fetch_metadata(Some(&consumer.context().topic), PATIENCE)?;
            Ok(consumer)
        };
        let reached = tokio::task::spawn_blocking(reach).await;
        let consumer = reached.map_err(BrokerError::new)?.map_err(refused)?;
        let (polled, received) = unbounded_channel();
        let group = KafkaGroup {
            context: Arc::clone(consumer.context()),
            dead_letters,
            id_header: "id".into(),
            max_uncommitted: 1_000,
            on_lost: OnLostSubscription::default(),
            producer,
            polled,
            poller: OnceLock::new(),
        };
        Ok(Self {
            group: Arc::new(group),
            unsubscribed: Some(consumer),
            received,
        })
    }

    fn group(&mut self) -> &mut KafkaGroup {
        Arc::get_mut(&mut self.group).expect("no delivery exists before the source is run")
    }

    /// The topic of the dead letters. Default that of the messages with `.dead` behind it.
    #[must_use]
    pub fn dead_letters(mut self, topic: impl Into<String>) -> Self {
        self.group().dead_letters = topic.into();
        self
    }

    /// The header with the id of the message. Default `id`; a message without it has that of its place and time.
    #[must_use]
    pub fn id_header(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.group().id_header = name.into();
        self
    }

    /// The uncommitted messages of a partition that pause it; at least 1. Default 1,000.
    ///
    /// # Panics
    ///
    /// If it is 0.
    #[must_use]
    pub fn max_uncommitted(mut self, messages: usize) -> Self {
        assert!(messages > 0, "a partition has at least one message");
        self.group().max_uncommitted = messages;
        self
    }

    /// Where to continue when the brokers lack the offset of a partition. Default [`Fail`](OnLostSubscription::Fail).
    ///
    /// [`Resume`](OnLostSubscription::Resume) continues with the last offset that this process has committed, or with
    /// the first message where that is gone.
    #[must_use]
    pub fn on_lost_subscription(mut self, on_lost: OnLostSubscription) -> Self {
        self.group().on_lost = on_lost;
        self
    }

    fn subscribe(&mut self) -> Result<(), BrokerError> {
        if let Some(consumer) = self.unsubscribed.take() {
            let poller = Poller::spawn(PollThread {
                consumer,
                max_uncommitted: self.group.max_uncommitted,
                on_lost: self.group.on_lost,
                polled: self.group.polled.clone(),
            });
            let _ = self.group.poller.set(poller.map_err(BrokerError::new)?);
        }
        Ok(())
    }
}

impl Source for KafkaTopic {
    type Delivery = KafkaDelivery;

    /// `kafka:` with topic and group, such as `kafka:bills/collectors`.
    fn subscription(&self) -> Option<String> {
        Some(name(
            "kafka",
            [&self.group.context.topic, &self.group.context.group],
        ))
    }

    fn report_to(&mut self, events: SourceEvents) {
        if let Some(consumer) = &self.unsubscribed {
            let _ = consumer.context().events.set(events);
        }
    }

    async fn next(&mut self) -> Result<Option<KafkaDelivery>, BrokerError> {
        self.subscribe()?;
        loop {
            let Some(received) = self.received.recv().await.transpose()? else {
                return Ok(None);
            };
            // The messages of a revoked partition are another consumer's.
            if self.group.context.offsets.lock().is_open(received.ticket) {
                return Ok(Some(KafkaDelivery {
                    group: Arc::clone(&self.group),
                    received,
                    again: Some(UNSETTLED_PAUSE),
                    runtime: Handle::current(),
                }));
            }
        }
    }
}

fn default_to(config: &mut ClientConfig, property: &str, value: &str) {
    if config.get(property).is_none() {
        config.set(property, value);
    }
}

fn revoked() -> BrokerError {
    BrokerError::new("the partition was revoked; another consumer gets the message")
}

/// A message of a Kafka topic.
pub struct KafkaDelivery {
    group: Arc<KafkaGroup>,
    received: Arc<KafkaMessage>,
    /// The pause before its redelivery once it is dropped unsettled.
    again: Option<Duration>,
    /// Of the consumer: the runtime that connected may be gone.
    runtime: Handle,
}

impl KafkaDelivery {
    /// The partition that the message is in.
    #[must_use]
    pub fn partition(&self) -> i32 {
        self.received.message.partition()
    }

    /// The offset of the message in its partition.
    #[must_use]
    pub fn offset(&self) -> i64 {
        self.received.message.offset()
    }

    /// The key by which the producer chose the partition.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.received.message.key()
    }

    /// The last header of this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let mut headers = self.received.message.headers()?.iter();
        let mut value = None;
        for header in headers.by_ref().filter(|it| it.key == name) {
            value = header.value;
        }
        value
    }

    /// The id of a message that has none of its producer.
    fn own_id(&self) -> String {
        let (topic, message) = (&self.group.context.topic, &self.received.message);
        let (partition, offset) = (message.partition(), message.offset());
        match message.timestamp().to_millis() {
            Some(stored) => format!("{topic}/{partition}/{offset}/{stored}"),
            None => format!("{topic}/{partition}/{offset}"),
        }
    }

    fn assigned(&self) -> Result<(), BrokerError> {
        let is_open = self
            .group
            .context
            .offsets
            .lock()
            .is_open(self.received.ticket);
        if is_open { Ok(()) } else { Err(revoked()) }
    }

    fn done(&mut self) -> Result<(), BrokerError> {
        self.again = None;
        let settled = self
            .group
            .context
            .offsets
            .lock()
            .settle(self.received.ticket);
        if settled { Ok(()) } else { Err(revoked()) }
    }

    async fn send_dead_letter(&self, reason: DeadLetterReason) -> Result<(), BrokerError> {
        let message = &self.received.message;
        let mut headers = OwnedHeaders::new();
        for header in message.headers().into_iter().flat_map(Headers::iter) {
            if header.key != ID && header.key != REASON {
                headers = headers.insert(header);
            }
        }
        let id = self.id();
        let headers = headers
            .insert(Header {
                key: ID,
                value: id.as_deref(),
            })
            .insert(Header {
                key: REASON,
                value: Some(reason.as_str()),
            });
        let mut record = FutureRecord::<[u8], [u8]>::to(&self.group.dead_letters).headers(headers);
        record.key = message.key();
        record.payload = message.payload();
        match self.group.producer.send(record, QUEUE_PATIENCE).await {
            Ok(_) => Ok(()),
            Err((error, _)) => Err(BrokerError::new(error)),
        }
    }
}

impl Delivery for KafkaDelivery {
    fn id(&self) -> Option<Cow<'_, str>> {
        match self.header(&self.group.id_header) {
            Some(id) => std::str::from_utf8(id).ok().map(Cow::Borrowed),
            None => Some(Cow::Owned(self.own_id())),
        }
    }

    /// Kafka does not count.
    fn attempt(&self) -> Option<u32> {
        None
    }

    fn payload(&self) -> &[u8] {
        self.received.message.payload().unwrap_or_default()
    }

    /// Kafka has no deadline: an error once the partition is revoked.
    async fn extend(&self, _: Duration) -> Result<(), BrokerError> {
        self.assigned()
    }

    async fn settle(mut self, verdict: Verdict) -> Result<(), BrokerError> {
        match verdict {
            Verdict::Acknowledge => self.done(),
            Verdict::Retry(after) => {
                self.again = Some(after.unwrap_or_default());
                self.assigned()
            }
            Verdict::DeadLetter(reason) => {
                self.assigned()?;
                self.send_dead_letter(reason).await?;
                self.done()
            }
            Verdict::Stop => {
                self.again = Some(Duration::ZERO);
                Ok(())
            }
        }
    }
}

impl Drop for KafkaDelivery {
    fn drop(&mut self) {
        if let Some(pause) = self.again {
            let polled = self.group.polled.clone();
            let received = Arc::clone(&self.received);
            self.runtime.spawn(async move {
                sleep(pause).await;
                // Fails once the source is dropped: the next consumer gets the message.
                let _ = polled.send(Ok(received));
            });
        }
    }
}

debug_fields!(KafkaTopic it { topic: it.group.context.topic, group: it.group.context.group });

debug_fields!(KafkaDelivery it {
    topic: it.group.context.topic,
    partition: it.partition(),
    offset: it.offset()
});
