//! The stream and the durable: found, created, or lost.

use std::sync::OnceLock;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{
    ConsumerInfoErrorKind, GetStreamByNameErrorKind, GetStreamError, GetStreamErrorKind,
};
use async_nats::jetstream::stream::{ConsumerError, ConsumerErrorKind};
use async_nats::jetstream::{self, Context, ErrorCode};
use idem_runtime::__private::Lock;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::delivery::BrokerError;
use crate::progress::{Begin, ReadProgress};
use crate::reconnect::ReceiveError;
use crate::source_events::SourceEvents;
use crate::subscription::OnLostSubscription;

/// The shortest time between two questions for the creation of the stream.
const BETWEEN_CREATIONS: Duration = Duration::from_secs(1);

/// The connection, the stream and the durable.
pub(super) struct Broker {
    pub(super) client: Client,
    pub(super) context: Context,
    pub(super) link: watch::Receiver<LinkState>,
    pub(super) stream: String,
    pub(super) durable: String,
    pub(super) ack_wait: Duration,
    pub(super) filter_subject: String,
    pub(super) dead_letters: String,
    pub(super) on_lost: OnLostSubscription,
    pub(super) events: SourceEvents,
    /// By sequence. `None`: this process has found no durable yet.
    pub(super) progress: OnceLock<ReadProgress<u64>>,
    /// Creation of the stream of `progress`. A later stream counts from 1 again.
    pub(super) created: Lock<StreamCreation>,
    /// Creation of the server's present stream, and the time of the question.
    pub(super) present: tokio::sync::Mutex<(StreamCreation, Option<Instant>)>,
}

/// The state of the connection, which the client makes anew by itself.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum LinkState {
    Up,
    Down,
    /// The server refused the login.
    Refused,
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
    pub(super) async fn open(&self) -> Result<PullConsumer, ReceiveError> {
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
            progress.void(0);
            *self.created.lock() = created;
        }
        *self.present.lock().await = (created, None);
        progress.delivered(consumer.cached_info().delivered.stream_sequence);
        Ok(consumer)
    }

    /// Whether a verdict has found another stream than that of `progress`.
    pub(super) fn is_stream_replaced(&self) -> bool {
        let present = self.present.try_lock();
        present.is_ok_and(|present| present.0 != *self.created.lock())
    }

    /// An error if the stream was created anew since the delivery: the server would take its verdict for one of the
    /// message that has the same sequence in the new stream.
    pub(super) async fn expect_stream(
        &self,
        of_delivery: StreamCreation,
    ) -> Result<(), BrokerError> {
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
pub(super) type StreamCreation = i128;

pub(super) fn created(stream: &jetstream::stream::Stream) -> StreamCreation {
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
