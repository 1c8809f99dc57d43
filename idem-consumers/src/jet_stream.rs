//! Durable consumers of NATS `JetStream`.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::context::ConsumerInfoErrorKind;
use async_nats::jetstream::context::{
    ContextBuilder, GetStreamByNameErrorKind, GetStreamError, GetStreamErrorKind,
};
use async_nats::jetstream::stream::{ConsumerError, ConsumerErrorKind};
use async_nats::jetstream::{self, AckKind, Context, ErrorCode, Message};
use async_nats::rustls::crypto::{CryptoProvider, ring};
use async_nats::{
    Auth, AuthError, Client, ConnectErrorKind, ConnectOptions, Event, HeaderMap, HeaderName,
    ServerAddr,
};
use futures_core::Stream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::builder::{Connect, SourceBuilder};
use crate::delivery::{BrokerError, Delivery, Source};
use crate::progress::{Begin, ReadProgress};
use crate::reconnect::{ReceiveError, Reconnect, next};
use crate::source_events::SourceEvents;
use crate::subscription::{OnLostSubscription, name};
use crate::verdict::{DeadLetterReason, Verdict};
use idem_runtime::__private::Lock;
use idem_runtime::credentials::CredentialsProvider;

/// The time that a request may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time between two pings. With the third that has no reply, the client drops the connection.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// The longest wait of one request for a new message.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The time between two questions for the durable's first unsettled message.
const BETWEEN_FLOORS: Duration = Duration::from_secs(60);

/// The shortest time between two questions for the creation of the stream.
const BETWEEN_CREATIONS: Duration = Duration::from_secs(1);

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

struct Broker {
    client: Client,
    context: Context,
    link: watch::Receiver<LinkState>,
    stream: String,
    durable: String,
    ack_wait: Duration,
    filter_subject: String,
    dead_letters: String,
    on_lost: OnLostSubscription,
    events: SourceEvents,
    /// By sequence. `None`: this process has found no durable yet.
    progress: OnceLock<ReadProgress<u64>>,
    /// Creation of the stream of `progress`. A later stream counts from 1 again.
    created: Lock<StreamCreation>,
    /// Creation of the server's present stream, and the time of the question.
    present: tokio::sync::Mutex<(StreamCreation, Option<Instant>)>,
}

/// The state of the connection, which the client makes anew by itself.
#[derive(Clone, Copy, PartialEq)]
enum LinkState {
    Up,
    Down,
    /// The server refused the login.
    Refused,
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
                    progress.received(delivery.sequence);
                    progress.delivered(delivery.sequence);
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

impl Broker {
    async fn find_stream(&self) -> Result<jetstream::stream::Stream, ReceiveError> {
        let found = self.context.get_stream(&self.stream).await;
        if found.as_ref().is_err_and(is_missing) {
            let fail = OnLostSubscription::Fail;
            self.events.subscription_lost("the stream is gone", fail);
            return Err(ReceiveError::lasting(format!(
                "the stream `{}`, which the durable `{}` reads, is gone; create it, and start the consumer again",
                self.stream, self.durable
            )));
        }
        Ok(found?)
    }

    /// Finds or creates the durable.
    async fn open(&self) -> Result<PullConsumer, ReceiveError> {
        match self.context.stream_by_subject(&self.dead_letters).await {
            Ok(stream) if stream == self.stream => {
                return Err(ReceiveError::lasting(
                    "the stream of the messages stores the dead letters too; choose a subject of another one",
                ));
            }
            Err(error) if error.kind() == GetStreamByNameErrorKind::NotFound => {
                return Err(ReceiveError::lasting(
                    "no stream stores the subject of the dead letters; create one",
                ));
            }
            _ => {}
        }
        let stream = self.find_stream().await?;
        let created = created(&stream);
        let is_new = created != *self.created.lock();
        let reason = if is_new {
            "the stream was created anew"
        } else {
            "the durable was deleted, or the server lost its data"
        };
        let mut is_lost = false;
        let deliver_policy = match self.progress.get() {
            None => DeliverPolicy::All,
            Some(progress) => {
                let is_there = match stream.consumer_info(&self.durable).await {
                    Ok(_) => true,
                    Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => false,
                    Err(error) => {
                        let lasts = match error.kind() {
                            ConsumerInfoErrorKind::StreamNotFound => true,
                            ConsumerInfoErrorKind::JetStream(error) => error.code() < 500,
                            _ => false,
                        };
                        return Err(ReceiveError::new(lasts, error));
                    }
                };
                // A durable of a new stream is another process's.
                is_lost = is_new || !is_there;
                let fails = is_lost && self.on_lost == OnLostSubscription::Fail;
                // Of a durable that is there nothing is changed. If it is deleted meanwhile, the new one neither skips
                // messages nor begins with the first.
                let on_lost = if is_there && !fails {
                    OnLostSubscription::Resume
                } else {
                    self.on_lost
                };
                // The server takes a sequence behind the last message for the next one.
                let begin = if is_new && on_lost == OnLostSubscription::Resume {
                    Some(Begin::Start)
                } else {
                    progress.begin(on_lost)
                };
                let Some(begin) = begin else {
                    self.events
                        .subscription_lost(reason, OnLostSubscription::Fail);
                    return Err(ReceiveError::lasting(format!(
                        "the durable `{}` of the stream `{}` is gone: {reason}; create it where it is to begin, or set \
                         `on_lost_subscription`, and start the consumer again, which begins a missing durable with the \
                         first message",
                        self.durable, self.stream
                    )));
                };
                match begin {
                    Begin::Start => DeliverPolicy::All,
                    Begin::Now => DeliverPolicy::New,
                    Begin::With(start_sequence) => {
                        DeliverPolicy::ByStartSequence { start_sequence }
                    }
                    Begin::After(sequence) => DeliverPolicy::ByStartSequence {
                        start_sequence: sequence + 1,
                    },
                }
            }
        };
        let config = pull::Config {
            deliver_policy,
            durable_name: Some(self.durable.clone()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.ack_wait,
            max_deliver: -1,
            filter_subject: self.filter_subject.clone(),
            ..pull::Config::default()
        };
        let consumer = stream.get_or_create_consumer(&self.durable, config).await?;
        // Otherwise it is missing still, and reported when it is created.
        if is_lost {
            self.events.subscription_lost(reason, self.on_lost);
        }
        let found = &consumer.cached_info().config;
        if found.ack_policy != AckPolicy::Explicit || found.filter_subject != self.filter_subject {
            return Err(ReceiveError::lasting(
                "the durable exists with another filter, or without explicit acknowledgements",
            ));
        }
        let progress = self.progress.get_or_init(ReadProgress::new);
        if is_new {
            progress.void();
            *self.created.lock() = created;
        }
        *self.present.lock().await = (created, None);
        progress.delivered(consumer.cached_info().delivered.stream_sequence);
        Ok(consumer)
    }

    /// Whether a verdict has found another stream than that of `progress`.
    fn is_stream_replaced(&self) -> bool {
        let present = self.present.try_lock();
        present.is_ok_and(|present| present.0 != *self.created.lock())
    }

    /// An error if the stream was created anew since the delivery: the server would take its verdict for one of the
    /// message that has the same sequence in the new stream.
    async fn expect_stream(&self, of_delivery: StreamCreation) -> Result<(), BrokerError> {
        let mut present = self.present.lock().await;
        let (_, asked) = *present;
        if asked.is_none_or(|at| at.elapsed() >= BETWEEN_CREATIONS) {
            // A server that does not answer confirms no verdict either.
            if let Ok(stream) = self.context.get_stream(&self.stream).await {
                present.0 = created(&stream);
            }
            present.1 = Some(Instant::now());
        }
        if present.0 == of_delivery {
            return Ok(());
        }
        Err(BrokerError::new(format!(
            "the stream `{}` was created anew, and does not have the message of the delivery",
            self.stream
        )))
    }
}

/// When a stream was created, in nanoseconds since 1970.
type StreamCreation = i128;

fn created(stream: &jetstream::stream::Stream) -> StreamCreation {
    stream.cached_info().created.unix_timestamp_nanos()
}

impl From<ConsumerError> for ReceiveError {
    fn from(error: ConsumerError) -> Self {
        let lasts = match error.kind() {
            ConsumerErrorKind::JetStream(error) => error.code() < 500,
            ConsumerErrorKind::InvalidConsumerType | ConsumerErrorKind::InvalidName => true,
            _ => false,
        };
        Self::new(lasts, error)
    }
}

impl From<GetStreamError> for ReceiveError {
    fn from(error: GetStreamError) -> Self {
        let lasts = match error.kind() {
            GetStreamErrorKind::JetStream(error) => error.code() < 500,
            GetStreamErrorKind::EmptyName | GetStreamErrorKind::InvalidStreamName => true,
            GetStreamErrorKind::Request => false,
        };
        Self::new(lasts, error)
    }
}

fn is_missing(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// The text of a refused login.
fn refusal() -> String {
    ConnectErrorKind::AuthorizationViolation.to_string()
}

/// Options whose connections log in by this provider.
fn options_by(provider: &CredentialsProvider) -> ConnectOptions {
    let provider = provider.clone();
    ConnectOptions::with_auth_callback(move |_| {
        let provider = provider.clone();
        // A task, because the client needs a future that is `Sync`.
        let called = tokio::spawn(async move { provider.credentials(PATIENCE).await });
        async move {
            let credentials = called.await.map_err(AuthError::new)?;
            let (user, password) = credentials.map_err(AuthError::new)?.into_parts();
            let mut auth = Auth::new();
            match user {
                Some(user) => (auth.username, auth.password) = (Some(user), Some(password)),
                None => auth.token = Some(password),
            }
            Ok(auth)
        }
    })
}

/// The login as options, and the servers without it. The client writes their URLs to its log.
///
/// A provider takes the place of the login of the URL.
fn options(
    urls: &str,
    provider: Option<&CredentialsProvider>,
) -> Option<(ConnectOptions, Vec<ServerAddr>)> {
    let options = provider.map_or_else(ConnectOptions::new, options_by);
    let mut options = options
        .request_timeout(Some(PATIENCE))
        .ping_interval(PING_INTERVAL);
    let mut servers = Vec::new();
    for url in urls.split(',') {
        let server: ServerAddr = url.trim().parse().ok()?;
        if !matches!(server.scheme(), "nats" | "tls") {
            return None;
        }
        options = match (server.username(), server.password()) {
            _ if provider.is_some() => options,
            (Some(user), Some(password)) => {
                options.user_and_password(decoded(user)?, decoded(password)?)
            }
            (Some(token), None) => options.token(decoded(token)?),
            (None, _) => options,
        };
        let mut url = server.into_inner();
        url.set_password(None).ok()?;
        url.set_username("").ok()?;
        servers.push(ServerAddr::from_url(url).ok()?);
    }
    Some((options, servers))
}

/// The text without its percent-encoding.
fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, others)) = rest.split_first() {
        rest = others;
        bytes.push(match first {
            b'%' => {
                let (digits, others) = rest.split_at_checked(2)?;
                rest = others;
                u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?
            }
            other => *other,
        });
    }
    String::from_utf8(bytes).ok()
}

debug_fields!(JetStream it { stream: it.broker.stream, durable: it.broker.durable });

/// A delivery of a [`JetStream`].
pub struct JetStreamDelivery {
    broker: Arc<Broker>,
    message: Message,
    received: Instant,
    /// Of its stream.
    created: StreamCreation,
    deliveries: u32,
    /// The server delivers it no more.
    is_last: bool,
    sequence: u64,
    /// When the server stored it: nanoseconds since 1970.
    stored: i128,
}

impl JetStreamDelivery {
    /// None if the message is not of `JetStream`.
    fn new(
        broker: &Arc<Broker>,
        created: StreamCreation,
        max_deliver: i64,
        message: Message,
    ) -> Option<Self> {
        let info = message.info().ok()?;
        Some(Self {
            deliveries: info.delivered.try_into().ok()?,
            is_last: (1..=info.delivered).contains(&max_deliver),
            sequence: info.stream_sequence,
            stored: info.published.unix_timestamp_nanos(),
            broker: Arc::clone(broker),
            message,
            received: Instant::now(),
            created,
        })
    }

    /// The subject of the message.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.message.subject
    }

    /// The number of the message in its stream.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// A header of the message, by its exact name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let name: HeaderName = name.parse().ok()?;
        let value = self.message.headers.as_ref()?.get(name)?;
        Some(value.as_str())
    }

    /// The id of a message that has none of its producer.
    fn own_id(&self) -> String {
        format!("{}:{}:{}", self.broker.stream, self.sequence, self.stored)
    }

    async fn publish_dead_letter(&self, reason: DeadLetterReason) -> Result<(), BrokerError> {
        let mut headers = HeaderMap::new();
        let values = self.message.headers.iter().flat_map(HeaderMap::iter);
        for (name, value) in values.flat_map(|(name, all)| all.iter().map(move |it| (name, it))) {
            // They instruct the server, such as `Nats-Expected-Stream`.
            if !name.to_string().to_ascii_lowercase().starts_with("nats-") {
                headers.append(name.clone(), value.clone());
            }
        }
        let own_id = format!("{}:{}", self.broker.durable, self.own_id());
        headers.insert("Nats-Msg-Id", own_id);
        headers.insert("idem-id", &*self.id().unwrap_or_default());
        headers.insert("idem-reason", reason.as_str());
        headers.insert("idem-subject", self.subject());
        let (broker, payload) = (&self.broker, self.message.payload.clone());
        let subject = broker.dead_letters.clone();
        let published = broker
            .context
            .publish_with_headers(subject, headers, payload);
        let stored = published.await.map_err(BrokerError::new)?;
        stored.await.map(drop).map_err(BrokerError::new)
    }

    /// Sends it, and waits until the server has confirmed it.
    ///
    /// A request, because `Message::double_ack_with` takes "no such consumer" for a confirmation.
    async fn send(&self, kind: AckKind) -> Result<(), BrokerError> {
        let reply = self.message.reply.clone();
        let reply = reply.ok_or_else(|| BrokerError::new("the message is not of JetStream"))?;
        let confirmed = self.broker.client.request(reply, kind.into()).await;
        confirmed.map(drop).map_err(BrokerError::new)
    }
}

impl Delivery for JetStreamDelivery {
    fn id(&self) -> Option<Cow<'_, str>> {
        Some(match self.header("Nats-Msg-Id") {
            Some(id) => Cow::Borrowed(id),
            None => Cow::Owned(self.own_id()),
        })
    }

    fn attempt(&self) -> Option<u32> {
        Some(self.deliveries)
    }

    fn payload(&self) -> &[u8] {
        &self.message.payload
    }

    /// Postpones the redelivery by the durable's `ack_wait`, whatever `time` is.
    async fn extend(&self, _: Duration) -> Result<(), BrokerError> {
        self.broker.expect_stream(self.created).await?;
        self.send(AckKind::Progress).await
    }

    async fn settle(self, verdict: Verdict) -> Result<(), BrokerError> {
        self.broker.expect_stream(self.created).await?;
        match verdict {
            Verdict::Acknowledge => self.send(AckKind::Ack).await?,
            Verdict::Retry(_) | Verdict::Stop => {
                let delay = Some(verdict.delay()).filter(|delay| !delay.is_zero());
                self.send(AckKind::Nak(delay)).await?;
                if self.is_last {
                    let sequence = self.sequence.to_string();
                    self.broker.events.message_skipped(&sequence, "max-deliver");
                }
                return Ok(());
            }
            Verdict::DeadLetter(reason) => {
                self.publish_dead_letter(reason).await?;
                self.send(AckKind::Term).await?;
            }
        }
        if let Some(progress) = self.broker.progress.get() {
            progress.settled(self.sequence);
        }
        Ok(())
    }
}

debug_fields!(JetStreamDelivery it { sequence: it.sequence, deliveries: it.deliveries });
