//! The consumer: takes deliveries, runs the handler once per message, and settles.

use std::borrow::Cow;
use std::num::{NonZeroU16, NonZeroUsize};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use idem_runtime::__private::unwind;
use idem_runtime::codec::Replay;
use idem_runtime::{
    CallBuilder, CallError, Class, Context, Engine, Error, ErrorKind, OnDuplicate, OnLeaseLost,
    OnRunning, Policy,
};
use serde::{Serialize, Serializer};
use tokio::time::{Instant, timeout};

use crate::consume::{ConsumerError, Decided, Summary, consume};
use crate::delivery::{Delivery, Message, Source};
use crate::handler_error::HandlerError;
use crate::source_events::SourceEvents;
use crate::subscription::Subscription;
use crate::verdict::{DeadLetterReason, Verdict};

/// The longest pause before a failed message is delivered again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Runs a handler once for each message of a [`Source`].
///
/// See [the module](super) for an example and for the verdicts.
#[derive(Clone, Debug)]
#[must_use = "a consumer does nothing until it is run"]
pub struct Consumer<I = DeliveryId> {
    pub(super) engine: Engine,
    pub(super) operation: Cow<'static, str>,
    id: I,
    pub(super) policy: Policy,
    pub(super) concurrency: NonZeroUsize,
    on_business_error: OnBusinessError,
    retry_after: Duration,
    pub(super) drain: Duration,
    compares_payload: bool,
    label: Option<LabelOfId>,
    subscription: Subscription,
    /// The subscription, once the consumer runs.
    scope: Option<String>,
}

/// The label of a message, for operators.
#[derive(Clone)]
struct LabelOfId(Arc<OfId>);

type OfId = dyn Fn(&str) -> Option<String> + Send + Sync;

debug_fields!(LabelOfId _this {});

impl Consumer {
    /// A consumer whose calls are of this operation.
    ///
    /// Messages of one id, operation and [subscription](Source::subscription) are one message.
    pub fn new(engine: Engine, operation: impl Into<Cow<'static, str>>) -> Self {
        Self {
            engine,
            operation: operation.into(),
            id: DeliveryId(()),
            policy: Policy::new()
                .max_attempts(NonZeroU16::new(5))
                .count_errors(true)
                .on_lease_lost(OnLeaseLost::Cancel),
            concurrency: NonZeroUsize::MIN.saturating_add(15),
            on_business_error: OnBusinessError::DeadLetter,
            retry_after: Duration::from_secs(1),
            drain: Duration::from_secs(30),
            compares_payload: true,
            label: None,
            subscription: Subscription::OfSource,
            scope: None,
        }
    }
}

impl<I> Consumer<I> {
    /// Takes the id from a function, in place of [`Delivery::id`].
    pub fn id<D, F: Fn(&D) -> Option<String>>(self, id: F) -> Consumer<F> {
        Consumer {
            engine: self.engine,
            operation: self.operation,
            id,
            policy: self.policy,
            concurrency: self.concurrency,
            on_business_error: self.on_business_error,
            retry_after: self.retry_after,
            drain: self.drain,
            compares_payload: self.compares_payload,
            label: self.label,
            subscription: self.subscription,
            scope: self.scope,
        }
    }

    /// Names the subscription of records, in place of the [source's](Source::subscription).
    ///
    /// Set it to the former name where a queue, stream, topic or group is renamed or moved on purpose: messages that
    /// were handled under that name do not run again, if they have an id of their producer: one of the broker may have
    /// the name of the stream or topic in it. [Here](crate#subscriptions) are the names of each source.
    ///
    /// # Panics
    ///
    /// If the name is empty.
    ///
    /// ```
    /// use idem_consumers::Consumer;
    /// use idem_runtime::{Engine, store::memory::MemoryStore};
    ///
    /// // The stream `bills` was moved to `bills-eu`.
    /// let consumer = Consumer::new(Engine::new(MemoryStore::new()), "bills.collect")
    ///     .subscription("redis:bills/collectors");
    /// # drop(consumer);
    /// ```
    pub fn subscription(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        assert!(!name.is_empty(), "the name of a subscription is not empty");
        self.subscription = Subscription::Named(name);
        self
    }

    /// Names records by operation and id alone.
    ///
    /// For two subscriptions that are to handle each message once between them, and to keep records without a
    /// subscription in their names.
    pub fn without_subscription(mut self) -> Self {
        self.subscription = Subscription::Without;
        self
    }

    /// Begins to consume a source: from here on records have its subscription in their names, and the engine's
    /// observer gets its events.
    pub(super) fn begin<S: Source>(&mut self, source: &mut S) -> SourceEvents {
        let subscription = source.subscription();
        self.scope = self.subscription.scope(subscription.clone());
        let events = SourceEvents::new(&self.engine, self.operation.clone(), subscription);
        source.report_to(events.clone());
        events
    }

    /// The number of messages that are handled at once; at least 1. Default 16.
    ///
    /// # Panics
    ///
    /// If it is 0.
    pub fn concurrency(mut self, messages: usize) -> Self {
        self.concurrency =
            NonZeroUsize::new(messages).expect("a consumer handles at least one message");
        self
    }

    /// The number of attempts after which a message is a dead letter; at least 1. Default 5.
    ///
    /// The record counts them, not the broker: system errors, panics, crashes and lost leases of every consumer. A
    /// redelivery that runs no body does not count.
    ///
    /// # Panics
    ///
    /// If it is 0.
    pub fn dead_letter_after(mut self, attempts: u16) -> Self {
        let attempts = NonZeroU16::new(attempts).expect("a message has at least one attempt");
        self.policy = self.policy.max_attempts(Some(attempts));
        self
    }

    /// What becomes of a message whose handler returned a business error. Default
    /// [`OnBusinessError::DeadLetter`].
    pub fn on_business_error(mut self, on_business_error: OnBusinessError) -> Self {
        self.on_business_error = on_business_error;
        self
    }

    /// The pause after a message's first system error, up to 1 min. Default 1 s; it doubles with each attempt.
    ///
    /// The pause after the first refused call is the same, and doubles with each delivery that the broker counts.
    pub fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = pause;
        self
    }

    /// How long running handlers may take to end when the consumer stops. Default 30 s.
    ///
    /// After that they are dropped: their messages are not settled and are delivered again.
    pub fn drain(mut self, time: Duration) -> Self {
        self.drain = time;
        self
    }

    /// Whether a message with a known id and another payload is refused. Default yes: such a message becomes a dead
    /// letter ([`Mismatch`](DeadLetterReason::Mismatch)), because to acknowledge it would lose it.
    ///
    /// Switch it off where a producer writes a message anew for each time that it sends it, with a time stamp or a
    /// counter.
    pub fn compare_payload(mut self, compare: bool) -> Self {
        self.compares_payload = compare;
        self
    }

    /// A label of the message's record for operators, made of its id; default none.
    ///
    /// As the attribute's [`label`](https://docs.rs/idem-runtime/latest/idem_runtime/attr.idempotent.html#label): at most 64 bytes, stored **in plain text** with the
    /// attempts of a message whose first one does not succeed. If `label` panics, there is none.
    ///
    /// ```
    /// use idem_consumers::Consumer;
    /// use idem_runtime::{Engine, key::redacted, store::memory::MemoryStore};
    ///
    /// let consumer = Consumer::new(Engine::new(MemoryStore::new()), "bills.collect")
    ///     .label(|id| Some(format!("bill {}", redacted(id, 4))));
    /// # drop(consumer);
    /// ```
    pub fn label<F>(mut self, label: F) -> Self
    where
        F: Fn(&str) -> Option<String> + Send + Sync + 'static,
    {
        self.label = Some(LabelOfId(Arc::new(label)));
        self
    }

    /// Settings of the calls: `ttl`, `lease`, `max_run` and more.
    ///
    /// `ttl` exceeds the longest time after which a message can return: the broker's retention, plus the time until an
    /// operator sends dead letters again.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy.or(self.policy);
        self
    }

    /// Consumes until the source ends.
    ///
    /// # Errors
    ///
    /// As [`run_until`](Self::run_until).
    ///
    /// # Cancel safety
    ///
    /// As [`run_until`](Self::run_until).
    pub async fn run<S, M, V, E, H, F>(
        self,
        source: S,
        handler: H,
    ) -> Result<Summary, ConsumerError>
    where
        S: Source,
        I: MessageId<S::Delivery>,
        M: Message + Send + 'static,
        V: Replay + Send + 'static,
        E: HandlerError + Send + 'static,
        H: Fn(M, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
    {
        self.run_until(source, handler, std::future::pending())
            .await
    }

    /// Consumes until the source ends or `shutdown` is ready. Then waits for running handlers.
    ///
    /// # Errors
    ///
    /// [`ConsumerError::Source`] if the source fails for good, [`ConsumerError::Refused`] if a call is refused with the
    /// verdict [`Stop`](Verdict::Stop). Running handlers are waited for as well, and deliveries that no handler has
    /// begun are given back.
    ///
    /// # Cancel safety
    ///
    /// Dropped: running handlers are dropped, and their messages are delivered again. To stop in an orderly way, use
    /// `shutdown`.
    pub async fn run_until<S, M, V, E, H, F>(
        mut self,
        mut source: S,
        handler: H,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Summary, ConsumerError>
    where
        S: Source,
        I: MessageId<S::Delivery>,
        M: Message + Send + 'static,
        V: Replay + Send + 'static,
        E: HandlerError + Send + 'static,
        H: Fn(M, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
    {
        let events = self.begin(&mut source);
        let (concurrency, drain) = (self.concurrency, self.drain);
        let this = Arc::new((self, handler));
        let handle = move |delivery| {
            let this = Arc::clone(&this);
            async move {
                let (consumer, handler) = &*this;
                let body = |message, cx| {
                    let end = handler(message, cx);
                    async { end.await.map_err(CallError::Body) }
                };
                let decided = consumer.handle(&delivery, body).await;
                let end = decided.settle(delivery).await;
                end.observed_by(&consumer.engine, &consumer.operation)
            }
        };
        consume((source, events), handle, concurrency, drain, shutdown).await
    }

    /// The verdict on a delivery. Its body is run as one idempotent call.
    pub(super) async fn handle<D, M, V, E, B, F>(&self, delivery: &D, body: B) -> Decided
    where
        D: Delivery,
        I: MessageId<D>,
        M: Message + Send,
        V: Replay + Send,
        E: HandlerError + Send,
        B: FnOnce(M, Context) -> F + Send,
        F: Future<Output = Result<V, CallError<E>>> + Send,
    {
        let Some(id) = contained(|| self.id.of(delivery)).flatten() else {
            return Decided::dead(
                DeadLetterReason::InvalidId,
                "the message has no id where its source, or `Consumer::id`, takes it from",
            );
        };
        let mut decided = match message(delivery.payload()) {
            Ok(message) => {
                let (lease, context) = (self.lease(), OnceLock::<Context>::new());
                let attempt = AtomicU16::new(1);
                let call = self
                    .call(&id, delivery.payload(), lease)
                    .run(|cx: Context| {
                        attempt.store(cx.attempt(), Ordering::Relaxed);
                        let _ = context.set(cx.clone());
                        body(message, cx)
                    });
                let mut call = pin!(call);
                let extended = extend(delivery, lease, &context);
                let result = tokio::select! {
                    biased;
                    result = unwind(call.as_mut()) => result,
                    never = extended => match never {},
                };
                let failed = |class| self.failed(class, attempt.load(Ordering::Relaxed));
                match result {
                    Ok(Ok(_)) => Decided::of(Verdict::Acknowledge),
                    Ok(Err(CallError::Refused(error))) => self.refused(error, delivery.attempt()),
                    Ok(Err(CallError::Body(error))) => failed(error.class()),
                    Err(_panic) => failed(Class::System),
                }
            }
            Err(cause) => Decided::dead(DeadLetterReason::InvalidPayload, cause),
        };
        if let Verdict::DeadLetter(_) = decided.verdict {
            decided.key = self.call_of(&id).key_digest().ok();
        }
        decided
    }

    fn call(&self, id: &str, payload: &[u8], lease: Duration) -> CallBuilder {
        let mut call = self.call_of(id).policy(self.policy_of_calls(lease));
        let label = self.label.as_ref();
        if let Some(label) = label.and_then(|label| contained(|| label.0(id)).flatten()) {
            call = call.label(&label);
        }
        if self.compares_payload {
            call = call.fingerprint(&PayloadBytes(payload));
        }
        call
    }

    /// The call whose record is that of this message.
    fn call_of(&self, id: &str) -> CallBuilder {
        let call = self.engine.operation(self.operation.clone());
        let call = match &self.scope {
            Some(subscription) => call.scope(subscription),
            None => call,
        };
        call.key(id)
    }

    /// The settings of the calls.
    pub(super) fn policy_of_calls(&self, lease: Duration) -> Policy {
        // A stored error must reach the verdict again, after a dead letter that the broker did not take.
        let fixed = Policy::new().on_duplicate(OnDuplicate::Replay);
        // A message that another consumer handles is held here for as long as that one can be dead.
        let wait = Policy::new().on_running(OnRunning::Wait(lease));
        fixed.or(self.policy).or(wait)
    }

    pub(super) fn lease(&self) -> Duration {
        // Where the settings are out of range, the call is refused.
        self.engine
            .lease(self.policy)
            .unwrap_or(Duration::from_secs(30))
    }

    /// `attempt` is the broker's count. A refusal increases it, although no body runs.
    fn refused(&self, error: Error, attempt: Option<u32>) -> Decided {
        if error.is_of_business_error() {
            return self.failed(Class::Business, 1);
        }
        let is_running = matches!(error.kind(), ErrorKind::Running { .. });
        let mut decided = Decided::refused(error);
        if let Verdict::Retry(after) = &mut decided.verdict {
            let pause = self.pause(attempt);
            *after = Some(match *after {
                // The rest of a lease.
                Some(rest) if is_running => rest,
                known => pause.max(known.unwrap_or_default()),
            });
        }
        decided
    }

    /// The pause of a delivery without a body.
    pub(super) fn pause(&self, attempt: Option<u32>) -> Duration {
        pause(self.retry_after, attempt)
    }

    fn failed(&self, class: Class, attempt: u16) -> Decided {
        match class {
            Class::Business => match self.on_business_error {
                OnBusinessError::Acknowledge => Decided::of(Verdict::Acknowledge),
                OnBusinessError::DeadLetter => Decided::dead(
                    DeadLetterReason::Business,
                    "the handler returned a business error",
                ),
            },
            Class::System => Decided::of(Verdict::Retry(Some(self.pause(Some(attempt.into()))))),
            // `Unknown`, and a class of a newer version: an operator finds out.
            _ => Decided::dead(
                DeadLetterReason::Unknown,
                "the handler returned an error of class unknown",
            ),
        }
    }
}

/// The message of a payload, or why it is none.
fn message<M: Message>(payload: &[u8]) -> Result<M, Cow<'static, str>> {
    match contained(|| M::decode(payload)) {
        Some(Ok(message)) => Ok(message),
        Some(Err(_)) if payload.is_empty() => Err(
            "the payload is empty; a source that reads it from a field has a setting for the field's name".into(),
        ),
        Some(Err(error)) => Err(error.without_content().into()),
        None => Err("the decoder of the handler's message panicked".into()),
    }
}

/// The result of code of the user's; none if it panics.
fn contained<T>(code: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(AssertUnwindSafe(code)).ok()
}

/// The pause after this attempt: it doubles, up to a minute.
pub(super) fn pause(first: Duration, attempt: Option<u32>) -> Duration {
    let doublings = attempt.unwrap_or(1).saturating_sub(1).min(16);
    first.saturating_mul(1 << doublings).min(LONGEST_PAUSE)
}

/// Extends the broker's deadline while the call waits or holds its lease.
pub(super) async fn extend<D: Delivery>(
    delivery: &D,
    lease: Duration,
    context: &OnceLock<Context>,
) -> std::convert::Infallible {
    let mut next = Instant::now();
    loop {
        // A process that was stalled makes up for no extension.
        next = Instant::now().max(next + lease / 3);
        tokio::time::sleep_until(next).await;
        // A lease that seems lost after a stall may be renewed all the same.
        let lost = |cx: &Context| cx.lease_remaining().is_zero();
        if context.get().is_some_and(lost) {
            continue;
        }
        // After an error the broker delivers the message again, and the record refuses a second body. So does a panic,
        // which is not to drop the body.
        let extended = pin!(async { delivery.extend(lease).await });
        let _ = timeout(lease / 3, unwind(extended)).await;
    }
}

/// The payload, compared byte by byte.
struct PayloadBytes<'a>(&'a [u8]);

impl Serialize for PayloadBytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// What becomes of a message whose handler returned a business error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnBusinessError {
    /// It goes to the dead-letter queue.
    #[default]
    DeadLetter,
    /// It is acknowledged: the error is an answer like any other, and the record keeps it.
    Acknowledge,
}

/// The id of a message: [`Delivery::id`], or a function of the delivery.
pub trait MessageId<D>: Send + Sync + 'static {
    #[doc(hidden)]
    fn of(&self, delivery: &D) -> Option<String>;
}

/// The id is [`Delivery::id`].
#[derive(Clone, Copy, Debug)]
pub struct DeliveryId(());

impl<D: Delivery> MessageId<D> for DeliveryId {
    fn of(&self, delivery: &D) -> Option<String> {
        delivery.id().map(Cow::into_owned)
    }
}

impl<D, F: Fn(&D) -> Option<String> + Send + Sync + 'static> MessageId<D> for F {
    fn of(&self, delivery: &D) -> Option<String> {
        self(delivery)
    }
}

#[cfg(test)]
mod tests {
    use idem_runtime::store::memory::MemoryStore;
    use serde_json::json;

    use super::*;

    /// Finds an outage of the store that uses up a delivery limit. That of a quorum queue is 20: half a minute.
    #[test]
    fn a_delivery_without_a_body_waits_longer_each_time() {
        let consumer = Consumer::new(Engine::new(MemoryStore::new()), "bills.collect");
        let seconds = |kind: &ErrorKind, attempt| {
            let error = json!({ "kind": kind, "operation": "bills.collect", "permanent": false });
            let error = serde_json::from_value(error).expect("an error is read from its own form");
            match consumer.refused(error, attempt).verdict {
                Verdict::Retry(Some(after)) => after.as_secs(),
                verdict => panic!("{verdict:?}"),
            }
        };
        let attempts = [None, Some(1), Some(3), Some(20), Some(u32::MAX)];
        for kind in [ErrorKind::StoreUnavailable, ErrorKind::TooManyRunning] {
            let waits = attempts.map(|attempt| seconds(&kind, attempt));
            assert_eq!(waits, [1, 1, 4, 60, 60], "{kind:?}");
        }
        let retry_after = Duration::from_secs(7);
        let running = ErrorKind::Running { retry_after };
        assert_eq!(attempts.map(|attempt| seconds(&running, attempt)), [7; 5]);
    }
}
