//! The contract between a broker's adapter and a consumer.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::error::Category;

use crate::source_events::SourceEvents;
use crate::verdict::Verdict;

/// A message as a broker delivered it, until it is settled.
///
/// The adapters of this crate implement it; so does one of your own: see [another broker](crate#another-broker).
///
/// A delivery that is dropped without [`settle`](Self::settle) must be delivered again, at the latest when the
/// broker's time for it has passed.
pub trait Delivery: Send + Sync {
    /// The id of the message, the same in each of its deliveries; `None` if the message has none.
    ///
    /// An id that the producer chose, where there is one: a producer that sends again after a lost reply gives both
    /// messages one id, and the broker does not. Never the receipt or the tag of one delivery.
    fn id(&self) -> Option<Cow<'_, str>>;

    /// The number of this delivery as the broker counts, from 1; `None` if it does not count.
    fn attempt(&self) -> Option<u32>;

    /// The content of the message.
    fn payload(&self) -> &[u8];

    /// Keeps the broker from delivering the message again for `time` from now. `Ok` where the broker has no such limit.
    ///
    /// Called every third of the lease, from the delivery on, and no more once the lease is lost.
    fn extend(&self, time: Duration) -> impl Future<Output = Result<(), BrokerError>> + Send;

    /// Tells the broker the verdict. A dead letter is acknowledged only after it is in the dead-letter queue.
    ///
    /// The call has ended, and its answer is in the store unless the store fell silent. After an error, or where this is
    /// dropped, the message is delivered again, and gets the same verdict from the stored answer. It is dropped after
    /// 30 s.
    fn settle(self, verdict: Verdict) -> impl Future<Output = Result<(), BrokerError>> + Send;
}

/// The stream of deliveries of a queue, topic or subscription.
pub trait Source: Send + 'static {
    /// One message.
    type Delivery: Delivery + 'static;

    /// The name of the subscription: broker, queue and group. Part of the name of a message's record.
    ///
    /// The same in each process that shares the deliveries, and another one for every other reader of the messages.
    /// Called once, before the first delivery. Default `None`: operation and id alone name a record, and two
    /// subscriptions with one operation share the records of their messages.
    fn subscription(&self) -> Option<String> {
        None
    }

    /// Sets the sink of the source's events: a lost broker, a lost subscription, a skipped message.
    ///
    /// Called once, before the first [`next`](Self::next). Default: nothing is reported.
    fn report_to(&mut self, events: SourceEvents) {
        drop(events);
    }

    /// The next delivery; `None` after the last one.
    ///
    /// An adapter reconnects by itself, and returns only errors that last, such as a refused password.
    ///
    /// # Cancel safety
    ///
    /// Dropped when the consumer stops, and only then. The broker delivers again received messages that were not returned.
    fn next(&mut self) -> impl Future<Output = Result<Option<Self::Delivery>, BrokerError>> + Send;

    /// Gives back received messages that were not returned, for other consumers. Default: nothing.
    ///
    /// Called when the consumer stops, also after an error of [`next`](Self::next). Deliveries that were returned are
    /// still to be settled.
    fn give_back(self) -> impl Future<Output = ()> + Send
    where
        Self: Sized,
    {
        async move { drop(self) }
    }
}

/// A message that a handler takes: every type that can be deserialized from JSON, and [`Raw`].
pub trait Message: Sized {
    /// Reads the payload of a delivery.
    ///
    /// # Errors
    ///
    /// The payload is not of this type. The message becomes a dead letter
    /// ([`InvalidPayload`](crate::DeadLetterReason::InvalidPayload)).
    fn decode(payload: &[u8]) -> Result<Self, BrokerError>;
}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned> Message for T {
    fn decode(payload: &[u8]) -> Result<Self, BrokerError> {
        serde_json::from_slice(payload).map_err(BrokerError::new)
    }
}

/// The bytes of a message, for a handler that decodes them itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw(pub Vec<u8>);

impl Message for Raw {
    fn decode(payload: &[u8]) -> Result<Self, BrokerError> {
        Ok(Self(payload.to_vec()))
    }
}

/// An error of a broker, or of its client library.
#[derive(Debug)]
pub struct BrokerError(BrokerErrorParts);

#[derive(Debug)]
struct BrokerErrorParts {
    error: Box<dyn StdError + Send + Sync>,
    /// The subscription that has ended with it, or an empty text.
    subscription: String,
}

impl BrokerError {
    /// The error of a client library, or a text.
    pub fn new(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self(BrokerErrorParts {
            error: error.into(),
            subscription: String::new(),
        })
    }

    /// The error with the name of the subscription that it ends.
    pub(super) fn of(mut self, subscription: &str) -> Self {
        subscription.clone_into(&mut self.0.subscription);
        self
    }

    /// The error of a decoder, without quotations of the message.
    ///
    /// An error of `serde_json` has its place, and the name of a missing field, which is the handler's.
    pub(super) fn without_content(&self) -> String {
        let Some(error) = self.0.error.downcast_ref::<serde_json::Error>() else {
            return "the handler's `Message::decode` returned an error".to_owned();
        };
        let text = error.to_string();
        let what = match error.classify() {
            Category::Data if text.starts_with("missing field `") => {
                return format!("the payload has another shape than the handler's message: {text}");
            }
            Category::Data => "has another shape than the handler's message",
            Category::Eof => "ends in the middle of its JSON",
            Category::Syntax | Category::Io => "is not JSON",
        };
        let (line, column) = (error.line(), error.column());
        format!("the payload {what}, at line {line} column {column}")
    }
}

impl fmt::Display for BrokerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.subscription.is_empty() {
            write!(f, "{}: ", self.0.subscription)?;
        }
        fmt::Display::fmt(&self.0.error, f)
    }
}

impl StdError for BrokerError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.error.source()
    }
}
