//! Durable consumers of NATS `JetStream`.

mod broker;
mod delivery;
mod options;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::context::ContextBuilder;
use async_nats::rustls::crypto::{CryptoProvider, ring};
use async_nats::{ConnectErrorKind, Event};
use futures_core::Stream;
use idem_runtime::__private::Lock;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use self::broker::{Broker, LinkState, created};
pub use self::delivery::JetStreamDelivery;
use self::options::{PATIENCE, options};
use crate::builder::{Connect, SourceBuilder};
use crate::delivery::{BrokerError, Delivery, Source};
use crate::reconnect::{ReceiveError, Reconnect, next};
use crate::source_events::SourceEvents;
use crate::subscription::{OnLostSubscription, name};
use crate::verdict::Verdict;

/// The longest wait of one request for a new message.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The time between two questions for the durable's first unsettled message.
const BETWEEN_FLOORS: Duration = Duration::from_secs(60);

/// The number of messages of one request.
const BATCH: usize = 16;

/// A durable pull consumer of a `JetStream` stream, as a [`Source`].
///
/// Needs NATS 2.9 or newer. The durable is created if it does not exist: explicit acknowledgements, every message of
/// the stream, no limit of deliveries ([`Consumer::dead_letter_after`](crate::Consumer::dead_letter_after) counts
/// attempts). The settings of an existing durable are kept: set its `max_deliver` to -1, because `JetStream` delivers a
/// message no more beyond that limit, and stores no dead letter. A retry of its last delivery is reported as
/// [`MessageSkipped`](idem_runtime::observe::EventKind::MessageSkipped); a crash during it is not.
///
/// | verdict | commands, each confirmed by the server |
/// | --- | --- |
/// | acknowledge | `+ACK` |
/// | retry | `-NAK` with the pause as its delay |
/// | dead letter | a message to [`dead_letters`](Self::dead_letters), stored by its stream, then `+TERM` |
/// | stop | `-NAK` |
///
/// A message that is neither settled nor extended (`+WPI`) for [`ack_wait`](Self::ack_wait) is delivered again.
/// `JetStream` takes a late acknowledgement of an earlier delivery for one of the later delivery
/// ([nats-server#4786](https://github.com/nats-io/nats-server/issues/4786)). Here this is harmless: an acknowledgement
/// is sent only after the answer is stored, and the server confirms it.
///
/// # The id of a message
///
/// Its header `Nats-Msg-Id`; without one, stream, sequence and time of storage (`bills:17:1732371600000000000`; the
/// time because a stream that is created anew counts from 1 again). `JetStream` itself uses that header against
/// duplicates of publishing only, and only within the stream's window of 2 min by default: a producer that publishes
/// again after that, or without the header, stores a second message, and no redelivery is prevented by it.
///
/// # Dead letters
///
/// They have the payload and the headers of the message, `idem-id`, `idem-reason` and `idem-subject`, and a
/// `Nats-Msg-Id` of their own, so that a dead letter that is published again after a lost reply is stored once. Other
/// `Nats-` headers are dropped, because they instruct the server. To send the message again, publish it to
/// `idem-subject` with `idem-id` as its `Nats-Msg-Id`, after the `duplicate_window` of the stream: within it the server
/// stores nothing, and replies with `duplicate`. A message whose headers leave no room below the server's
/// `max_payload` has no dead letter and is delivered again and again.
///
/// # Errors
///
/// [`next`](Source::next) reconnects, and returns these errors: a refused password, a missing stream, a durable that
/// is no pull consumer with explicit acknowledgements or has another filter, and no stream, or the same one, for dead
/// letters.
///
/// ```no_run
/// use idem_consumers::{Consumer, JetStream, Raw};
/// use idem_runtime::{Context, Engine, Error, store::memory::MemoryStore};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let bills = JetStream::connect("nats://user:password@127.0.0.1", "bills", "collectors").await?;
/// let bills = bills.filter_subject("bills.eu.>").dead_letters("dead.bills.eu");
/// let consumer = Consumer::new(Engine::new(MemoryStore::new()), "bills.collect").dead_letter_after(5);
/// consumer.run(bills, async |bill: Raw, _: Context| Ok::<usize, Error>(bill.0.len())).await?;
/// # Ok(()) }
/// ```
pub struct JetStream {
    broker: Arc<Broker>,
    consumer: Option<PullConsumer>,
    received: VecDeque<JetStreamDelivery>,
    floor_asked: Instant,
    /// The last request had no answer.
    has_failed: bool,
}

/// Connects a [`JetStream`] with credentials that change.
pub type JetStreamBuilder = SourceBuilder<JetStream>;

impl Connect for JetStream {
    async fn connect_by(builder: JetStreamBuilder) -> Result<Self, BrokerError> {
        let (url, credentials) = (builder.url, builder.credentials);
        let [stream, durable] = builder.names;
        // rustls panics without a provider in a process whose crates have several. An earlier choice stays.
        if CryptoProvider::get_default().is_none() {
            drop(ring::default_provider().install_default());
        }
        let (changed, link) = watch::channel(LinkState::Up);
        let changed = Arc::new(changed);
        let connect = async || {
            let provider = credentials.as_ref();
            let (options, servers) = options(&url, provider)
                .ok_or_else(|| BrokerError::new("the URL of the NATS server is none"))?;
            let (changed, lasts) = (Arc::clone(&changed), provider.is_none());
            let options = options.event_callback(move |event| {
                match event {
                    Event::Connected => drop(changed.send_replace(LinkState::Up)),
                    Event::Disconnected => drop(changed.send_replace(LinkState::Down)),
                    // The client calls a provider again for each attempt.
                    Event::ClientError(error)
                        if lasts && error.to_string().ends_with(&refusal()) =>
                    {
                        changed.send_replace(LinkState::Refused);
                    }
                    _ => {}
                }
                std::future::ready(())
            });
            Ok(options.connect(servers).await)
        };
        let client = match connect().await? {
            Err(error)
                if error.kind() == ConnectErrorKind::AuthorizationViolation
                    && credentials.is_some() =>
            {
                connect().await?
            }
            connected => connected,
        };
        let client = client.map_err(BrokerError::new)?;
        let context = ContextBuilder::new().timeout(PATIENCE);
        let context = context.build(client.clone());
        let found = context.get_stream(&stream).await;
        let created = created(&found.map_err(BrokerError::new)?);
        let broker = Broker {
            client,
            context,
            link,
            dead_letters: format!("dead.{stream}"),
            stream,
            durable,
            ack_wait: Duration::from_secs(60),
            filter_subject: String::new(),
            on_lost: OnLostSubscription::default(),
            events: SourceEvents::default(),
            progress: OnceLock::new(),
            created: Lock::new(created),
            present: tokio::sync::Mutex::new((created, None)),
        };
        Ok(Self {
            broker: Arc::new(broker),
            consumer: None,
            received: VecDeque::new(),
            floor_asked: Instant::now(),
            has_failed: false,
        })
    }
}

impl JetStream {
    /// Connects to the server, or to one of several, separated by commas: `nats://user:password@host:4222`,
    /// `nats://token@host`, `tls://host`.
    ///
    /// # Errors
    ///
    /// No server can be reached within 5 s, the login is refused, or there is no such stream.
    pub async fn connect(
        url: &str,
        stream: impl Into<String>,
        durable: impl Into<String>,
    ) -> Result<Self, BrokerError> {
        Self::builder(url, stream, durable).connect().await
    }

    /// Begins a connection with [credentials that change](SourceBuilder::credentials).
    pub fn builder(
        url: &str,
        stream: impl Into<String>,
        durable: impl Into<String>,
    ) -> JetStreamBuilder {
        SourceBuilder::new(url, [stream.into(), durable.into()])
    }

    fn broker(&mut self) -> &mut Broker {
        Arc::get_mut(&mut self.broker).expect("no delivery exists before the source is run")
    }

    /// The time without a verdict or an extension before a redelivery; at least the lease. Default 1 min. A durable
    /// that exists keeps its own.
    #[must_use]
    pub fn ack_wait(mut self, time: Duration) -> Self {
        self.broker().ack_wait = time;
        self
    }

    /// Where to continue when the durable is gone while the consumer runs: deleted, or lost with the data of the server.
    /// Default [`Fail`](OnLostSubscription::Fail).
    ///
    /// The process that creates the durable anew decides where it begins: another process finds the new durable there,
    /// and continues with it. A message that such a process holds for a retry is delivered again only if the new durable
    /// begins before it.
    ///
    /// A stream that is gone is an error in any case. A stream that was created anew has other messages, and is a lost
    /// subscription also where another process has created its durable: [`Resume`](OnLostSubscription::Resume) begins
    /// with its first one. The verdict of a message of the former stream is an error, at the latest 1 s after the change.
    #[must_use]
    pub fn on_lost_subscription(mut self, on_lost: OnLostSubscription) -> Self {
        self.broker().on_lost = on_lost;
        self
    }

    /// The subject of the messages, which may have wildcards. Default every message of the stream.
    #[must_use]
    pub fn filter_subject(mut self, subject: impl Into<String>) -> Self {
        self.broker().filter_subject = subject.into();
        self
    }

    /// The subject of the dead letters, which another stream stores. Default `dead.` and the name of the stream.
    #[must_use]
    pub fn dead_letters(mut self, subject: impl Into<String>) -> Self {
        self.broker().dead_letters = subject.into();
        self
    }

    /// Receives waiting messages, or else the next one.
    ///
    /// A request ends before this returns, because messages of an open one would wait, and age, unseen.
    async fn fill(&mut self) -> Result<(), ReceiveError> {
        let consumer = match &mut self.consumer {
            Some(consumer) => consumer,
            closed => closed.insert(self.broker.open().await?),
        };
        let (broker, created) = (&self.broker, *self.broker.created.lock());
        let max_deliver = consumer.cached_info().config.max_deliver;
        let delivery = |message| JetStreamDelivery::new(broker, created, max_deliver, message);
        let there = consumer.fetch().max_messages(BATCH).messages().await;
        let mut there = there.map_err(ReceiveError::passing)?;
        // An error, such as too many unsettled messages, is left to the other request.
        let answered = timeout(PATIENCE, receive(&mut there, delivery, &mut self.received)).await;
        // The server would still send messages to its inbox, and they would age unseen.
        drop(there);
        // A durable that is gone does not answer, nor does a durable at its `max_ack_pending`.
        if answered.is_err() || self.floor_asked.elapsed() >= BETWEEN_FLOORS {
            let info = consumer.info().await.map_err(ReceiveError::passing)?;
            if let Some(progress) = self.broker.progress.get() {
                progress.settled_before(info.ack_floor.stream_sequence + 1);
            }
            self.floor_asked = Instant::now();
        }
        self.broker.events.broker_regained();
        if self.received.is_empty() {
            let first = consumer.batch().max_messages(1).expires(LONGEST_WAIT);
            let mut first = first.messages().await.map_err(ReceiveError::passing)?;
            receive(&mut first, delivery, &mut self.received)
                .await
                .map_err(ReceiveError::passing)?;
        }
        Ok(())
    }
}

/// Receives until the request ends.
async fn receive(
    batch: &mut pull::Batch,
    delivery: impl Fn(Message) -> Option<JetStreamDelivery>,
    received: &mut VecDeque<JetStreamDelivery>,
) -> Result<(), async_nats::Error> {
    while let Some(message) = poll_fn(|cx| Pin::new(&mut *batch).poll_next(cx)).await {
        received.extend(delivery(message?));
    }
    Ok(())
}

impl Source for JetStream {
    type Delivery = JetStreamDelivery;

    /// `nats:` with stream and durable, such as `nats:BILLS/collectors`.
    fn subscription(&self) -> Option<String> {
        Some(name("nats", [&self.broker.stream, &self.broker.durable]))
    }

    fn report_to(&mut self, events: SourceEvents) {
        if let Some(broker) = Arc::get_mut(&mut self.broker) {
            broker.events = events;
        }
    }

    async fn next(&mut self) -> Result<Option<JetStreamDelivery>, BrokerError> {
        next(self).await
    }

    async fn give_back(self) {
        for delivery in self.received {
            // After an error they are delivered again when `ack_wait` has passed.
            if delivery.settle(Verdict::Stop).await.is_err() {
                break;
            }
        }
    }
}

impl Reconnect for JetStream {
    type Delivery = JetStreamDelivery;

    fn events(&self) -> &SourceEvents {
        &self.broker.events
    }

    fn received(&mut self) -> Option<JetStreamDelivery> {
        if self.broker.is_stream_replaced() {
            self.received.clear();
            self.consumer = None;
        }
        while let Some(delivery) = self.received.pop_front() {
            // An older one is on its way to another consumer by now.
            if delivery.received.elapsed() < self.broker.ack_wait {
                if let Some(progress) = self.broker.progress.get() {
                    progress.received(delivery.sequence());
                    progress.delivered(delivery.sequence());
                }
                return Some(delivery);
            }
        }
        None
    }

    async fn receive(&mut self) -> Result<(), ReceiveError> {
        let mut link = self.broker.link.clone();
        if *link.borrow() == LinkState::Down {
            self.broker.events.broker_lost("the connection is lost");
        }
        match link
            .wait_for(|link| *link != LinkState::Down)
            .await
            .as_deref()
        {
            Ok(LinkState::Refused) => return Err(ReceiveError::lasting(refusal())),
            Ok(_) => {}
            Err(_) => return Err(ReceiveError::lasting("the client has ended")),
        }
        let filled = tokio::select! {
            filled = self.fill() => filled,
            // A request is lost with its connection.
            Ok(_) = link.wait_for(|link| *link != LinkState::Up) => return Ok(()),
        };
        let has_failed = std::mem::replace(&mut self.has_failed, filled.is_err());
        filled.map_err(|error| {
            self.consumer = None;
            match error {
                // It may be due to a durable that is gone.
                ReceiveError::Passing(_) if !has_failed => ReceiveError::Unclear,
                error => error,
            }
        })
    }
}

/// The text of a refused login.
fn refusal() -> String {
    ConnectErrorKind::AuthorizationViolation.to_string()
}

debug_fields!(JetStream it { stream: it.broker.stream, durable: it.broker.durable });
