//! A queue in memory, for tests and examples.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use idem_runtime::__private::Lock;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::delivery::{BrokerError, Delivery, Source};
use crate::verdict::{DeadLetterReason, Verdict};

/// The time after which an unsettled delivery is delivered again, unless extended.
const VISIBILITY: Duration = Duration::from_secs(30);

/// A queue in memory, for tests of a handler and for examples. Clones are one queue.
///
/// It delivers as a broker does: again after [`Verdict::Retry`], and after 30 s without a verdict. The time is that of
/// tokio, which tests may pause.
#[derive(Clone, Debug, Default)]
pub struct MemoryQueue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    messages: Lock<Messages>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Messages {
    /// By the order in which they were sent.
    waiting: BTreeMap<u64, Waiting>,
    dead: Vec<(String, DeadLetterReason)>,
    sent: u64,
    closed: bool,
}

#[derive(Clone)]
struct Waiting {
    id: String,
    payload: Arc<[u8]>,
    deliveries: u32,
    /// When it is delivered next.
    visible: Option<Instant>,
}

// Without the payload and the id.
debug_fields!(Waiting it { deliveries: it.deliveries });

impl MemoryQueue {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a message.
    pub fn send(&self, id: impl Into<String>, payload: impl AsRef<[u8]>) {
        let mut messages = self.0.messages.lock();
        messages.sent += 1;
        let (number, message) = (
            messages.sent,
            Waiting {
                id: id.into(),
                payload: payload.as_ref().into(),
                deliveries: 0,
                visible: None,
            },
        );
        messages.waiting.insert(number, message);
        drop(messages);
        self.0.changed.notify_waiters();
    }

    /// Ends the queue once every message in it is settled.
    pub fn close(&self) {
        self.0.messages.lock().closed = true;
        self.0.changed.notify_waiters();
    }

    /// The ids of the dead letters in their order, and their reasons.
    #[must_use]
    pub fn dead_letters(&self) -> Vec<(String, DeadLetterReason)> {
        self.0.messages.lock().dead.clone()
    }

    /// The number of messages that are not settled.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.messages.lock().waiting.len()
    }

    /// Whether every message is settled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Source for MemoryQueue {
    type Delivery = MemoryDelivery;

    async fn next(&mut self) -> Result<Option<MemoryDelivery>, BrokerError> {
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            changed.as_mut().enable();
            let soonest = {
                let mut messages = self.0.messages.lock();
                if messages.closed && messages.waiting.is_empty() {
                    return Ok(None);
                }
                let now = Instant::now();
                let due = messages
                    .waiting
                    .iter_mut()
                    .find(|(_, it)| it.visible.is_none_or(|at| at <= now));
                if let Some((number, message)) = due {
                    message.deliveries += 1;
                    message.visible = Some(now + VISIBILITY);
                    return Ok(Some(MemoryDelivery {
                        queue: self.clone(),
                        number: *number,
                        message: message.clone(),
                    }));
                }
                messages.waiting.values().filter_map(|it| it.visible).min()
            };
            match soonest {
                Some(at) => tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => changed.await,
            }
        }
    }
}

/// A delivery of a [`MemoryQueue`].
#[derive(Debug)]
pub struct MemoryDelivery {
    queue: MemoryQueue,
    number: u64,
    message: Waiting,
}

impl MemoryDelivery {
    /// Changes the message, if this is its last delivery.
    fn change(&self, change: impl FnOnce(&mut Messages, u64)) {
        let mut messages = self.queue.0.messages.lock();
        let last = messages.waiting.get(&self.number).map(|it| it.deliveries);
        if last == Some(self.message.deliveries) {
            change(&mut messages, self.number);
        }
        drop(messages);
        self.queue.0.changed.notify_waiters();
    }

    fn postpone(&self, time: Duration) {
        self.change(|messages, number| {
            if let Some(message) = messages.waiting.get_mut(&number) {
                message.visible = Some(Instant::now() + time);
            }
        });
    }
}

impl Delivery for MemoryDelivery {
    fn id(&self) -> Option<Cow<'_, str>> {
        Some(Cow::Borrowed(&self.message.id))
    }

    fn attempt(&self) -> Option<u32> {
        Some(self.message.deliveries)
    }

    fn payload(&self) -> &[u8] {
        &self.message.payload
    }

    async fn extend(&self, time: Duration) -> Result<(), BrokerError> {
        self.postpone(time);
        Ok(())
    }

    async fn settle(self, verdict: Verdict) -> Result<(), BrokerError> {
        match verdict {
            Verdict::Acknowledge => self.change(|messages, number| {
                messages.waiting.remove(&number);
            }),
            Verdict::DeadLetter(reason) => self.change(|messages, number| {
                if let Some(message) = messages.waiting.remove(&number) {
                    messages.dead.push((message.id, reason));
                }
            }),
            Verdict::Retry(_) | Verdict::Stop => self.postpone(verdict.delay()),
        }
        Ok(())
    }
}
