//! Queues of `RabbitMQ`.

pub(super) mod builder;
mod login;
#[cfg(feature = "rabbitmq-tls")]
mod tls;

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions,
    BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions, ExchangeDeclareOptions,
    QueueDeclareOptions,
};
use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use lapin::uri::AMQPUri;
use lapin::{Acker, BasicProperties, Channel, Connection, ErrorKind, ExchangeKind};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::delivery::{BrokerError, Delivery, Source};
use crate::reconnect::{ReceiveError, Reconnect, next};
use crate::run::pause;
use crate::source_events::SourceEvents;
use crate::subscription::{OnLostSubscription, name};
use crate::verdict::{DeadLetterReason, Verdict};
use idem_runtime::credentials::CredentialsProvider;

/// The broker's time for a connection, or to confirm a dead letter.
const PATIENCE: Duration = Duration::from_secs(10);

/// Seconds between two heartbeats, unless the URL says otherwise; the broker's own default is a minute.
const HEARTBEAT: u16 = 10;

/// The pause after a dead letter that the broker has not stored.
const UNSTORED_PAUSE: Duration = Duration::from_secs(2);

/// The default of the broker.
const CONSUMER_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Twice the default concurrency of a consumer.
const PREFETCH: u16 = 32;

/// Headers that a dead letter does not keep: copies that the exchange would send, and the queue's counts.
const DROPPED_HEADERS: [&str; 4] = ["BCC", "CC", "x-acquired-count", "x-delivery-count"];

/// A queue of `RabbitMQ`, as the [`Source`] of a [`Consumer`](crate::Consumer).
///
/// For quorum queues and classic queues of `RabbitMQ` 3.8 or newer. The queue and that of the dead letters must exist,
/// durable both: nothing is declared here. `amqps://` needs the feature `rabbitmq-tls`, and trusts the authorities of
/// the system, or that of [`RabbitQueueBuilder::root_certificate`](crate::RabbitQueueBuilder::root_certificate).
///
/// | verdict | commands |
/// | --- | --- |
/// | acknowledge | `basic.ack` |
/// | retry | `basic.nack` with `requeue`, after the pause |
/// | dead letter | `basic.publish`, persistent, with the headers `idem-reason` and `idem-id`; once it is confirmed, `basic.ack` |
///
/// - **The id** is the property `message_id`, which the producer sets. A message without it becomes a dead letter
///   ([`InvalidId`](DeadLetterReason::InvalidId)), unless [`Consumer::id`](crate::Consumer::id) takes another one:
///   [`RabbitDelivery::header`].
/// - **Pauses**: `RabbitMQ` delays no message, so that this process holds the message for the pause. It counts towards
///   the [`prefetch`](Self::prefetch), and not towards the consumer's concurrency. When the consumer stops, held
///   messages are given back at once.
/// - **The delivery limit** of a quorum queue (`x-delivery-limit`) counts each retry up to `RabbitMQ` 4.2, and since 4.3
///   only deliveries whose channel broke. Beyond the limit the broker drops the message, or dead-letters it by its own
///   rules. Since 4.0 the default is 20. Set it far above [`dead_letter_after`](crate::Consumer::dead_letter_after),
///   or off (-1): a message also uses it up while the record store or the queue of dead letters is away. Its pause
///   doubles up to a minute, so that 20 retries last a quarter of an hour.
/// - **The deadline** of a delivery is the broker's `consumer_timeout`, by default 30 min from the delivery, the wait for a
///   free handler included. It cannot be extended, and a broker that finds it passed closes the channel. So a delivery is
///   given back after nine tenths of [`consumer_timeout`](Self::consumer_timeout), also while it waits for a free
///   handler, for the lease of another process, or for its retry. A handler that takes longer runs to its end: its
///   verdict is an error that names the setting, and the next delivery of the message is answered by its record. On a
///   quorum queue each such redelivery counts towards the delivery limit (up to `RabbitMQ` 4.2), and while the handler
///   runs there may be many: at the limit the broker drops the message. Raise the time for such handlers, at the broker
///   and here.
/// - **A lost connection or channel** is opened again, after a pause that grows from 50 ms to 2 s. All its unsettled
///   messages are delivered again, and their verdicts get an error. [`Source::next`] fails if the broker refuses the
///   user, the virtual host, or a queue or exchange that is not there.
/// - **A queue that is deleted** is an error, and a lost subscription
///   ([`SubscriptionLost`](idem_runtime::observe::EventKind::SubscriptionLost)). A queue that is declared
///   anew before it is missed is consumed from its first message, after the same event.
/// - **A silent connection**, as after a firewall has forgotten it, is lost after two heartbeats, here and for the
///   broker, which then delivers its unsettled messages again. A heartbeat is 10 s, or that of the URL:
///   `amqp://broker/%2f?heartbeat=30`.
/// - **A dead letter** is published on a connection of its own, because an alarm for memory or disk blocks a connection
///   that publishes, and the others are to be acknowledged meanwhile. It is there twice if the reply to its publication, or its acknowledgement, was lost. If it cannot
///   be routed or stored, its message stays in the queue and is delivered again.
///
/// ```no_run
/// use idem_consumers::{Consumer, RabbitQueue, Raw};
/// use idem_runtime::{Context, Engine, Error, store::memory::MemoryStore};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::new(MemoryStore::new()); // in production, a store that all consumers share
/// let bills = RabbitQueue::connect("amqp://collector:secret@127.0.0.1/%2f", "bills").await?;
/// let bills = bills.prefetch(64).dead_letter_queue("bills.dead");
/// let consumer = Consumer::new(engine, "bills.collect").concurrency(32).dead_letter_after(5);
/// consumer.run(bills, async |bill: Raw, _: Context| Ok::<usize, Error>(bill.0.len())).await?;
/// # Ok(()) }
/// ```
pub struct RabbitQueue {
    settings: Arc<RabbitSettings>,
    open: Option<OpenQueue>,
    next: Option<RabbitDelivery>,
    /// The broker has cancelled the consumer.
    is_cancelled: bool,
    events: SourceEvents,
}

struct RabbitSettings {
    uri: AMQPUri,
    /// In place of the user and the password of the URL.
    credentials: Option<CredentialsProvider>,
    /// For `amqps://`.
    #[cfg(feature = "rabbitmq-tls")]
    tls: Option<tls::RabbitTls>,
    queue: ShortString,
    prefetch: u16,
    consumer_timeout: Duration,
    /// Empty: the exchange that routes to the queue whose name is the routing key.
    dead_exchange: ShortString,
    dead_routing_key: ShortString,
}

impl RabbitQueue {
    fn settings(&mut self) -> &mut RabbitSettings {
        Arc::get_mut(&mut self.settings).expect("no delivery exists before the source is run")
    }

    /// How many unsettled messages the broker gives to this consumer; at least its concurrency. Default 32.
    ///
    /// The default is twice the default concurrency of a [`Consumer`](crate::Consumer): a handler that ends finds the
    /// next message here, and as many messages can be held until their next attempt. A consumer of concurrency `n`
    /// needs `2 * n`. Too few leave handlers idle; too many wait here while other consumers are idle.
    ///
    /// # Panics
    ///
    /// If it is 0.
    #[must_use]
    pub fn prefetch(mut self, messages: u16) -> Self {
        assert!(messages > 0, "a consumer takes at least one message");
        self.settings().prefetch = messages;
        self
    }

    /// The broker's time limit of an unsettled delivery: its setting `consumer_timeout`, or the queue's. Default 30
    /// min, as the broker's.
    ///
    /// A delivery is given back after nine tenths of it. [`Duration::MAX`] where the broker has no such limit.
    ///
    /// # Panics
    ///
    /// If it is shorter than 1 s: each delivery would be given back at once, until a quorum queue drops the message.
    #[must_use]
    pub fn consumer_timeout(mut self, time: Duration) -> Self {
        assert!(
            time >= Duration::from_secs(1),
            "a handler takes at least a second"
        );
        self.settings().consumer_timeout = time;
        self
    }

    /// The queue of the dead letters. Default that of the messages with `.dead` behind it.
    ///
    /// # Panics
    ///
    /// If the name is longer than 255 bytes.
    #[must_use]
    pub fn dead_letter_queue(self, queue: impl Into<String>) -> Self {
        self.dead_letter_exchange("", queue)
    }

    /// Exchange and routing key of dead letters, in place of a queue.
    ///
    /// A queue must be bound to it. lapin logs a message that no queue takes, with its content, at the level `WARN` of
    /// `lapin::returned_messages`.
    ///
    /// # Panics
    ///
    /// If one of the two is longer than 255 bytes.
    #[must_use]
    pub fn dead_letter_exchange(
        mut self,
        exchange: impl Into<String>,
        routing_key: impl Into<String>,
    ) -> Self {
        let settings = self.settings();
        settings.dead_exchange = exchange.into().into();
        settings.dead_routing_key = routing_key.into().into();
        self
    }
}

// Without the URL, which has a password.
debug_fields!(RabbitQueue it {
    queue: it.settings.queue.as_str(),
    prefetch: it.settings.prefetch,
    dead_exchange: it.settings.dead_exchange.as_str(),
    dead_routing_key: it.settings.dead_routing_key.as_str()
});

impl RabbitSettings {
    /// Fails if the dead letters have no place to go. An error ends the channel.
    async fn expect_dead_letters(&self, channel: &Channel) -> lapin::Result<()> {
        if self.dead_exchange.as_str().is_empty() {
            return expect_queue(channel, &self.dead_routing_key).await;
        }
        let (exchange, kind) = (self.dead_exchange.clone(), ExchangeKind::default());
        let options = ExchangeDeclareOptions {
            passive: true,
            ..ExchangeDeclareOptions::default()
        };
        channel
            .exchange_declare(exchange, kind, options, FieldTable::default())
            .await
    }
}

async fn expect_queue(channel: &Channel, queue: &ShortString) -> lapin::Result<()> {
    let options = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::default()
    };
    channel
        .queue_declare(queue.clone(), options, FieldTable::default())
        .await
        .map(drop)
}

/// Whether the broker refuses, and would refuse again.
fn lasts(error: &lapin::Error) -> bool {
    let ErrorKind::ProtocolError(error) = error.kind() else {
        return false;
    };
    match error.kind() {
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED)
        | AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED | AMQPHardError::NOTIMPLEMENTED) => true,
        // `no queue` or `no exchange`, not a queue whose node is down.
        AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => {
            error.get_message().as_str().starts_with("NOT_FOUND - no ")
        }
        _ => false,
    }
}

/// The broker's consumer, until its channel is lost or it is dropped.
struct OpenQueue {
    session: Arc<RabbitSession>,
    received: UnboundedReceiver<Result<RabbitDelivery, BrokerError>>,
    /// Dropped to end the pauses and the reader.
    pauses: watch::Sender<()>,
    reader: JoinHandle<()>,
}

/// A connection, shared with the deliveries: it ends after the last of them.
struct RabbitSession {
    settings: Arc<RabbitSettings>,
    /// Not closed before the session ends.
    _connection: Connection,
    channel: Channel,
    /// Of the dead letters, which are sent one by one: lapin cannot tell which of several was returned.
    publisher: Mutex<Option<Publisher>>,
    pauses: watch::Receiver<()>,
    runtime: Handle,
}

/// A connection for dead letters alone.
///
/// An alarm for memory or disk blocks a connection that publishes, and acknowledgements on it would wait as well.
struct Publisher {
    connection: Connection,
    channel: Option<Channel>,
}

impl OpenQueue {
    async fn new(settings: &Arc<RabbitSettings>) -> lapin::Result<Self> {
        let connection = settings.connect().await?;
        let publisher = connection.create_channel().await?;
        settings.expect_dead_letters(&publisher).await?;
        let channel = connection.create_channel().await?;
        channel
            .basic_qos(settings.prefetch, BasicQosOptions::default())
            .await?;
        let (queue, tag) = (settings.queue.clone(), ShortString::default());
        let consumer = channel
            .basic_consume(
                queue,
                tag,
                BasicConsumeOptions::default(),
                FieldTable::default(),
            )
            .await?;
        let (sender, pauses) = watch::channel(());
        let session = RabbitSession {
            settings: Arc::clone(settings),
            _connection: connection,
            channel,
            publisher: Mutex::new(None),
            pauses,
            runtime: Handle::current(),
        };
        let session = Arc::new(session);
        let (deliveries, received) = unbounded_channel();
        let reader = tokio::spawn(read(Arc::clone(&session), consumer, deliveries));
        Ok(Self {
            session,
            received,
            pauses: sender,
            reader,
        })
    }

    /// An error once the channel is lost; `None` once the broker has cancelled the consumer.
    async fn next(&mut self) -> Result<Option<RabbitDelivery>, BrokerError> {
        while let Some(received) = self.received.recv().await {
            let delivery = received?;
            // An unusable delivery was requeued: its deadline passed, or its channel was lost.
            if delivery.message.usable() {
                return Ok(Some(delivery));
            }
        }
        Ok(None)
    }

    /// Gives back messages that were not returned, while running handlers settle.
    async fn give_back(mut self) {
        drop(self.pauses);
        // It ends after the last message of the channel.
        let _ = self.reader.await;
        while let Ok(Ok(delivery)) = self.received.try_recv() {
            let _ = delivery.message.acker.nack(requeued()).await;
        }
        drop(self.session);
    }
}

/// Receives deliveries, and requeues those unsettled after nine tenths of `consumer_timeout`.
async fn read(
    session: Arc<RabbitSession>,
    mut consumer: lapin::Consumer,
    deliveries: UnboundedSender<Result<RabbitDelivery, BrokerError>>,
) {
    let settings = &session.settings;
    let time = settings
        .consumer_timeout
        .saturating_sub(settings.consumer_timeout / 10);
    // In the order of their receipt, and so of their deadlines.
    let mut unsettled: VecDeque<(Instant, Acker)> = VecDeque::new();
    let mut ended = session.pauses.clone();
    loop {
        let deadline = unsettled.front().map(|(deadline, _)| *deadline);
        let deadline = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = ended.changed() => break,
            () = deadline => if let Some((_, acker)) = unsettled.pop_front() {
                // Does nothing for a settled one.
                let _ = acker.nack(requeued()).await;
            },
            received = receive(&mut consumer) => {
                let Some(received) = received else {
                    return;
                };
                let received = received.map(|message| {
                    if unsettled.len() > 2 * usize::from(settings.prefetch) {
                        unsettled.retain(|(_, acker)| acker.usable());
                    }
                    if let Some(deadline) = Instant::now().checked_add(time) {
                        unsettled.push_back((deadline, message.acker.clone()));
                    }
                    RabbitDelivery {
                        session: Arc::clone(&session),
                        message,
                        pause: Duration::ZERO,
                    }
                });
                let is_lost = received.is_err();
                if deliveries.send(received).is_err() || is_lost {
                    return;
                }
            }
        }
    }
    let options = BasicCancelOptions::default();
    // After an error there is no channel, and the broker has everything back.
    let _ = session.channel.basic_cancel(consumer.tag(), options).await;
    while let Some(Ok(message)) = receive(&mut consumer).await {
        let _ = message.acker.nack(requeued()).await;
    }
}

async fn receive(
    consumer: &mut lapin::Consumer,
) -> Option<Result<lapin::message::Delivery, BrokerError>> {
    let received = poll_fn(|cx| Pin::new(&mut *consumer).poll_next(cx)).await;
    received.map(|message| message.map_err(channel_lost))
}

/// The error of a lost channel, with a remedy for `consumer_timeout`.
fn channel_lost(error: lapin::Error) -> BrokerError {
    let text = error.to_string();
    if text.contains("delivery acknowledgement on channel") {
        return BrokerError::new(format!(
            "{text}; a delivery was unsettled for longer than the broker's `consumer_timeout`: raise it there"
        ));
    }
    BrokerError::new(error)
}

fn requeued() -> BasicNackOptions {
    BasicNackOptions {
        requeue: true,
        ..BasicNackOptions::default()
    }
}

impl Source for RabbitQueue {
    type Delivery = RabbitDelivery;

    /// `rabbitmq:` with virtual host and queue, such as `rabbitmq:%2F/bills`.
    fn subscription(&self) -> Option<String> {
        Some(name(
            "rabbitmq",
            [&self.settings.uri.vhost, self.settings.queue.as_str()],
        ))
    }

    fn report_to(&mut self, events: SourceEvents) {
        self.events = events;
    }

    async fn next(&mut self) -> Result<Option<RabbitDelivery>, BrokerError> {
        next(self).await
    }

    async fn give_back(self) {
        if let Some(open) = self.open {
            open.give_back().await;
        }
    }
}

impl Reconnect for RabbitQueue {
    type Delivery = RabbitDelivery;

    fn events(&self) -> &SourceEvents {
        &self.events
    }

    fn received(&mut self) -> Option<RabbitDelivery> {
        self.next.take()
    }

    async fn receive(&mut self) -> Result<(), ReceiveError> {
        let open = match &mut self.open {
            Some(open) => open,
            closed => {
                let opened = timeout(PATIENCE, OpenQueue::new(&self.settings)).await;
                let is_cancelled = std::mem::take(&mut self.is_cancelled);
                let opened = opened.map_err(|_| ReceiveError::passing(builder::SILENT))?;
                let opened = opened.map_err(|error| {
                    let queue = format!("no queue '{}'", self.settings.queue);
                    if lasts(&error) && error.to_string().contains(&queue) {
                        let fail = OnLostSubscription::Fail;
                        self.events.subscription_lost("the queue is gone", fail);
                        let remedy = "declare the queue, and start the consumer again";
                        return ReceiveError::Lasting(BrokerError::new(format!(
                            "{error}; {remedy}"
                        )));
                    }
                    ReceiveError::new(lasts(&error), error)
                })?;
                if is_cancelled {
                    let start = OnLostSubscription::FromStart;
                    self.events
                        .subscription_lost("the queue was declared anew", start);
                }
                self.events.broker_regained();
                closed.insert(opened)
            }
        };
        let received = open.next().await;
        self.next = received.map_err(|error| {
            self.open = None;
            ReceiveError::Passing(error)
        })?;
        if self.next.is_none() {
            // The queue is deleted, or its node is down.
            (self.open, self.is_cancelled) = (None, true);
            return Err(ReceiveError::Unclear);
        }
        Ok(())
    }
}

impl RabbitSession {
    /// Publishes, and waits for the confirmation.
    async fn publish(&self, payload: &[u8], properties: BasicProperties) -> lapin::Result<bool> {
        let mut place = self.publisher.lock().await;
        let publisher = match &mut *place {
            Some(publisher) if publisher.connection.status().connected() => publisher,
            place => place.insert(Publisher {
                connection: self.settings.connect().await?,
                channel: None,
            }),
        };
        // Another connection would be blocked as well, and this one cannot be closed meanwhile.
        if publisher.connection.status().blocked() {
            return Err(io::Error::other(
                "the broker accepts no message: an alarm for its memory or disk",
            )
            .into());
        }
        // Taken out, so that a channel whose confirmation did not come is not used again.
        let channel = match publisher.channel.take() {
            Some(channel) if channel.status().connected() => channel,
            _ => {
                let channel = publisher.connection.create_channel().await?;
                channel
                    .confirm_select(ConfirmSelectOptions::default())
                    .await?;
                channel
            }
        };
        // lapin logs a returned message with its content: this leaves it few to log.
        self.settings.expect_dead_letters(&channel).await?;
        let (exchange, key) = (
            self.settings.dead_exchange.clone(),
            self.settings.dead_routing_key.clone(),
        );
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let sent = channel.basic_publish(exchange, key, options, payload, properties);
        let confirmation = sent.await?.await?;
        publisher.channel = Some(channel);
        Ok(confirmation.is_ack() && confirmation.take_message().is_none())
    }
}

/// A message of a `RabbitMQ` queue.
///
/// Dropped unsettled, it is given back at once.
pub struct RabbitDelivery {
    session: Arc<RabbitSession>,
    message: lapin::message::Delivery,
    /// How long it is held before it is given back.
    pause: Duration,
}

impl RabbitDelivery {
    /// A header with a text or an integer, as a text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<Cow<'_, str>> {
        match self.value(name)? {
            AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok().map(Cow::from),
            AMQPValue::ShortString(text) => Some(text.as_str().into()),
            value => integer(value).map(|number| number.to_string().into()),
        }
    }

    /// The routing key with which the message was published.
    #[must_use]
    pub fn routing_key(&self) -> &str {
        self.message.routing_key.as_str()
    }

    fn value(&self, name: &str) -> Option<&AMQPValue> {
        let headers = self.message.properties.headers().as_ref()?;
        headers.inner().get(name)
    }

    /// The properties of the dead letter. Without the expiration and the user, on which the broker would act again.
    fn dead_properties(&self, reason: DeadLetterReason) -> BasicProperties {
        let of = &self.message.properties;
        let mut headers: BTreeMap<ShortString, AMQPValue> = of
            .headers()
            .as_ref()
            .map_or_else(BTreeMap::new, |headers| headers.inner().clone());
        headers.retain(|name, _| !DROPPED_HEADERS.contains(&name.as_str()));
        let mut add = |name: &str, text: &str| {
            let text = AMQPValue::LongString(LongString::from(text));
            headers.insert(name.into(), text);
        };
        add("idem-reason", reason.as_str());
        if let Some(id) = of.message_id() {
            add("idem-id", id.as_str());
        }
        let mut copy = BasicProperties::default()
            .with_headers(headers.into())
            .with_delivery_mode(2);
        macro_rules! copy {
            ($($get:ident $with:ident),*) => {
                $(if let Some(value) = of.$get() {
                    copy = copy.$with(value.clone());
                })*
            };
        }
        copy!(
            content_type with_content_type,
            content_encoding with_content_encoding,
            priority with_priority,
            correlation_id with_correlation_id,
            reply_to with_reply_to,
            message_id with_message_id,
            timestamp with_timestamp,
            kind with_type,
            app_id with_app_id
        );
        copy
    }

    fn lost(&self) -> BrokerError {
        BrokerError::new(if self.message.acker.poisoned() {
            "the channel of the delivery was lost; the message is delivered again"
        } else {
            "the delivery was given back before the broker's `consumer_timeout`; the message is delivered again \
             if the queue's delivery limit allows, and answered by its record; for longer handlers, raise the time at the broker and of the `RabbitQueue`"
        })
    }

    async fn acknowledge(&self) -> Result<(), BrokerError> {
        match self.message.ack(BasicAckOptions::default()).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.lost()),
            Err(error) => Err(BrokerError::new(error)),
        }
    }
}

fn integer(value: &AMQPValue) -> Option<i64> {
    match *value {
        AMQPValue::ShortShortInt(number) => Some(number.into()),
        AMQPValue::ShortShortUInt(number) => Some(number.into()),
        AMQPValue::ShortInt(number) => Some(number.into()),
        AMQPValue::ShortUInt(number) => Some(number.into()),
        AMQPValue::LongInt(number) => Some(number.into()),
        AMQPValue::LongUInt(number) => Some(number.into()),
        AMQPValue::LongLongInt(number) => Some(number),
        _ => None,
    }
}

// Without the content of the message.
debug_fields!(RabbitDelivery it {
    queue: it.session.settings.queue.as_str(),
    tag: it.message.delivery_tag
});

impl Delivery for RabbitDelivery {
    /// The property `message_id`.
    fn id(&self) -> Option<Cow<'_, str>> {
        let id = self.message.properties.message_id().as_ref();
        id.map(|id| id.as_str().into())
    }

    /// As a quorum queue counts; in a classic queue 1 at the first delivery, and not known after it.
    fn attempt(&self) -> Option<u32> {
        let before = self.value("x-delivery-count").and_then(integer);
        match u32::try_from(before.unwrap_or(0)).ok()? {
            0 if self.message.redelivered => None,
            before => before.checked_add(1),
        }
    }

    fn payload(&self) -> &[u8] {
        &self.message.data
    }

    /// An error once the message is another delivery's: see [`RabbitQueue`] for the broker's deadline.
    async fn extend(&self, _: Duration) -> Result<(), BrokerError> {
        if self.message.usable() {
            Ok(())
        } else {
            Err(self.lost())
        }
    }

    async fn settle(mut self, verdict: Verdict) -> Result<(), BrokerError> {
        match verdict {
            // A dead letter would be there twice.
            _ if !self.message.usable() => Err(self.lost()),
            Verdict::Acknowledge => self.acknowledge().await,
            Verdict::DeadLetter(reason) => {
                let properties = self.dead_properties(reason);
                let published = self.session.publish(&self.message.data, properties);
                let published = match timeout(PATIENCE, published).await {
                    Ok(Ok(true)) => return self.acknowledge().await,
                    Ok(Ok(false)) => {
                        BrokerError::new("the dead letter was not stored by any queue")
                    }
                    Ok(Err(error)) => BrokerError::new(error),
                    Err(_) => BrokerError::new("the dead letter was not confirmed"),
                };
                self.pause = pause(UNSTORED_PAUSE, self.attempt());
                Err(published)
            }
            Verdict::Retry(_) | Verdict::Stop => {
                self.pause = verdict.delay();
                Ok(())
            }
        }
    }
}

/// Gives an unacknowledged message back after its pause. The end of the source ends the pause.
impl Drop for RabbitDelivery {
    fn drop(&mut self) {
        if !self.message.usable() {
            return;
        }
        let (acker, pause) = (self.message.acker.clone(), self.pause);
        let session = Arc::clone(&self.session);
        self.session.runtime.spawn(async move {
            let mut pauses = session.pauses.clone();
            if !pause.is_zero() {
                tokio::select! {
                    () = sleep(pause) => {}
                    _ = pauses.changed() => {}
                }
            }
            // After an error there is no channel, and the broker has the message back.
            let _ = acker.nack(requeued()).await;
        });
    }
}
