//! A message and its verdict.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::{AckKind, Message};
use async_nats::{HeaderMap, HeaderName};
use tokio::time::Instant;

use super::broker::{Broker, StreamCreation};
use crate::delivery::{BrokerError, Delivery};
use crate::verdict::{DeadLetterReason, Verdict};

/// A delivery of a [`JetStream`](super::JetStream).
pub struct JetStreamDelivery {
    broker: Arc<Broker>,
    message: Message,
    pub(super) received: Instant,
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
    pub(super) fn new(
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
