//! Events of an engine, for observers: logs, metrics, tests.

use std::fmt;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::env::call_end::CallEnd;
use crate::error::Error;
use crate::identity::key::KeyDigest;
use crate::outcome::reconciled::Reconciled;
use crate::record::unknown_cause::Cause;
use crate::record::{Fence, OutcomeKind};

/// One event of a call or of an engine.
#[derive(Debug)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The operation that was called; empty for an event of the whole engine.
    pub operation: &'a str,
    /// The digest of its key, once that is known. A reader can confirm a guess of the key, unless the engine has a
    /// [digest key](crate::EngineBuilder::digest_key).
    pub key: Option<&'a KeyDigest>,
    /// The [label](macro@crate::idempotent#label) of the key.
    ///
    /// For an event of a claim or a refusal whose call has one.
    pub label: Option<&'a str>,
    /// The kind of the event.
    pub kind: EventKind<'a>,
}

impl<'a> Event<'a> {
    /// An event of an operation, without key and label.
    #[must_use]
    pub const fn new(operation: &'a str, kind: EventKind<'a>) -> Self {
        Self {
            operation,
            key: None,
            label: None,
            kind,
        }
    }

    /// An event of the whole engine.
    pub(crate) const fn of_engine(kind: EventKind<'a>) -> Self {
        Self::new("", kind)
    }
}

/// The kind of an event. More kinds may come; match with a `_` arm.
#[derive(Debug)]
#[non_exhaustive]
pub enum EventKind<'a> {
    /// The claim was granted and the body starts.
    Claimed {
        /// The number of this attempt, starting at 1.
        attempt: u16,
        /// Its fencing token.
        fence: Fence,
    },
    /// A stored answer was returned.
    Replayed {
        /// The kind of the stored outcome.
        outcome: OutcomeKind,
        /// How long ago it was stored. On Redis it may count from the claim, unless the exact age was requested.
        age: Duration,
        /// Whether the caller waited for the call that produced it.
        waited: bool,
        /// Whether it came from the [local cache](crate::cache::LocalCache), and not from the store.
        local: bool,
    },
    /// The call was refused, or a step of its body.
    Refused {
        /// With this error.
        error: &'a Error,
    },
    /// The body's answer is stored.
    Completed {
        /// The kind of the stored outcome.
        outcome: OutcomeKind,
        /// The claim had lapsed or was lost, without a successor.
        late: bool,
        /// Why an unknown outcome is unknown: the predicate of "the body …".
        cause: Option<&'static str>,
    },
    /// The claim was granted to find out about an earlier attempt first.
    Reconciling {
        /// The number of earlier attempts that are not accounted for.
        attempts: u16,
    },
    /// The reconcile hook has a verdict.
    Reconciled {
        /// The verdict.
        verdict: Reconciled<()>,
        /// Why the verdict is unknown, for a person.
        why: Option<&'a str>,
    },
    /// The body runs without protection.
    ///
    /// The store could not be queried (`on_outage = run`), or the engine is disabled.
    Unprotected {
        /// Why, for a person.
        reason: &'a str,
    },
    /// The record was resolved or reset.
    Resolved {
        /// The kind of its new outcome; `None` where the key was reset.
        outcome: Option<OutcomeKind>,
    },
    /// Another attempt finished first; the caller gets its answer.
    Adopted,
    /// The caller got an answer that is not stored, or not yet.
    ///
    /// Until it is, a duplicate that arrives after the lease runs the body again.
    Unsaved {
        /// Why, for a person.
        reason: &'a str,
    },
    /// The key was released.
    Released {
        /// Whether the attempt counts as abandoned.
        counted: bool,
    },
    /// The body's future was dropped; the operation's `on_cancel` decides about its key.
    Dropped,
    /// The body panicked.
    Panicked,
    /// The body derived an idempotency key for another party: [`Context::derive_key`](crate::Context::derive_key),
    /// [`Step::key`](crate::Step::key).
    KeyDerived {
        /// Its label, and the digest that a log may show.
        derived: DerivedKey<'a>,
    },
    /// The result of a [step](crate::step()) is stored, and the lease renewed.
    StepKept {
        /// The first part of its name.
        step: &'a str,
    },
    /// A step was not run, because an earlier attempt has finished it.
    StepReplayed {
        /// The first part of its name.
        step: &'a str,
    },
    /// A call has ended without a step that an earlier attempt finished.
    ///
    /// The step was renamed, or its branch was not taken again.
    StepUnused {
        /// The first part of its name.
        step: &'a str,
    },
    /// The lease was renewed.
    Renewed,
    /// A renewal got no reply, or an error of the store; it is retried.
    RenewalFailed {
        /// Why, for a person.
        reason: &'a str,
    },
    /// Another attempt has the lease, or `max_run` is over.
    LeaseLost {
        /// Why, for a person.
        reason: &'a str,
    },
    /// The fast one of two layered stores is not used.
    ///
    /// It failed so often that the durable one does all the work.
    Degraded {
        /// Why, for a person.
        reason: &'a str,
    },
    /// The fast store is used again.
    Restored,
    /// The call continues with the record of its former name.
    ///
    /// A [former digest key](crate::EngineBuilder::former_digest_key) gives it that name.
    FormerDigestKey,
    /// The clocks of server and process have moved against each other.
    ///
    /// The server's clock was set, another server with another time has taken its place, or the machine of this process
    /// was suspended. This process cannot distinguish them, and their effect is the same: leases and answers end
    /// sooner, or later, by as much.
    ///
    /// Detected at the next reply that has the server's time, from 250 ms on; each renewal has it. After a step
    /// forward the engine renews at once those leases whose renewals would have fallen into it. Slew the server's clock
    /// instead of stepping it: see [leases](crate::store#the-clock-of-the-server).
    ClockStepped {
        /// By how much at least.
        by: Duration,
        /// Whether the server is ahead of the expected time: leases end sooner.
        forward: bool,
    },
    /// A [consumer](https://docs.rs/idem-consumers) has moved a message to the dead-letter queue.
    DeadLetter {
        /// The word for the reason, such as `exhausted`.
        reason: &'a str,
        /// The error behind it, for a person; without content of the message.
        cause: &'a str,
    },
    /// The broker did not take a consumer's verdict: the message is delivered again, and answered by its record.
    Unsettled {
        /// Why, for a person.
        reason: &'a str,
    },
    /// A [consumer](https://docs.rs/idem-consumers) begins to take deliveries.
    Consuming {
        /// The name of its subscription, such as `redis:bills/collectors`; empty if the source has no name for it.
        subscription: &'a str,
    },
    /// A consumer has lost its broker.
    ///
    /// The connection or its channel is closed, or there is no reply. The consumer retries until
    /// [`BrokerRegained`](Self::BrokerRegained), and receives no message meanwhile.
    BrokerLost {
        /// Why, for a person.
        reason: &'a str,
    },
    /// A consumer's broker answers again.
    BrokerRegained {
        /// The time since it was lost.
        after: Duration,
    },
    /// A consumer has ended while its broker was lost.
    BrokerLeft {
        /// The time since it was lost.
        after: Duration,
    },
    /// The broker has lost a consumer's subscription, or its offsets.
    SubscriptionLost {
        /// Its name, such as `redis:bills/collectors`.
        subscription: &'a str,
        /// Why, for a person.
        reason: &'a str,
        /// The reaction of the consumer: `fail`, `resume`, `from-now`, `from-start`.
        continues: &'a str,
    },
    /// The broker delivers an unsettled message no more.
    ///
    /// It has removed the message, or has reached its limit of deliveries. The message is no dead letter; its record
    /// says whether it was handled.
    MessageSkipped {
        /// The broker's name of the message, such as an entry's id.
        position: &'a str,
        /// The word for the reason: `trimmed`, `max-deliver`.
        reason: &'a str,
    },
    /// A body, or the reconcile hook before it, starts.
    ///
    /// With or without protection, once for each call, and only where an observer of the engine [wants
    /// calls](Observer::wants_calls). The call's [`Ended`](Self::Ended) follows.
    BodyStarted,
    /// The call has ended for its caller; once for each call. Only where an observer of the engine
    /// [wants calls](Observer::wants_calls).
    ///
    /// An answer that is not stored by then is stored in the background, and its [`Completed`](Self::Completed) follows.
    Ended {
        /// How, and the times of its parts.
        end: CallEnd,
    },
    /// A warning for an operator.
    Warning {
        /// A sentence.
        message: &'a str,
    },
}

/// A key for another party, as an observer sees it.
#[derive(Clone, Copy)]
pub struct DerivedKey<'a> {
    label: &'a str,
    digest: &'a (dyn Fn() -> KeyDigest + 'a),
}

impl<'a> DerivedKey<'a> {
    pub(crate) fn new(label: &'a str, digest: &'a (dyn Fn() -> KeyDigest + 'a)) -> Self {
        Self { label, digest }
    }

    /// Its label, or the first part of the name of its step.
    #[must_use]
    pub fn label(&self) -> &'a str {
        self.label
    }

    /// The digest of the key: `idem show --derive` prints both. Computed by this method.
    ///
    /// The key itself would let a reader of a log confirm a guess of the call's key, also where the engine has a [digest
    /// key](crate::EngineBuilder::digest_key), which this digest depends on.
    #[must_use]
    pub fn digest(&self) -> KeyDigest {
        (self.digest)()
    }
}

debug_fields!(DerivedKey<'_> { label });

/// Observes the events of an engine.
///
/// Called on the path of every call: be quick and do not block. A panic is contained, because a lost event must not
/// cost an answer or a lease.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use idem_runtime::{Engine, Error, Observer, observe::{Event, EventKind}, store::memory::MemoryStore};
///
/// #[derive(Debug, Default)]
/// struct Replays(AtomicU64);
///
/// impl Observer for Replays {
///     fn observe(&self, event: &Event<'_>) {
///         if let EventKind::Replayed { .. } = event.kind {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// let replays = Arc::new(Replays::default());
/// let engine = Engine::builder(MemoryStore::new()).observer(Arc::clone(&replays)).build()?;
/// for _ in 0..3 {
///     engine.operation("pay").key(&7).run(|_| async { Ok::<_, Error>(1) }).await?;
/// }
/// assert_eq!(replays.0.load(Ordering::Relaxed), 2);
/// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
pub trait Observer: Send + Sync + fmt::Debug + 'static {
    /// Receives an event.
    fn observe(&self, event: &Event<'_>);

    /// Whether it receives [`EventKind::BodyStarted`] and [`EventKind::Ended`]; default not.
    ///
    /// A call whose engine has no such observer does not read the clock for them. Read once, when the engine is built.
    fn wants_calls(&self) -> bool {
        false
    }

    /// Whether each call is a `tracing` span; default not.
    ///
    /// As with [`TracingObserver`](crate::guide::observing#spans-and-events). No effect without the feature `tracing`. Read
    /// once, when the engine is built.
    fn wants_spans(&self) -> bool {
        false
    }
}

/// Lets several owners share one observer: a test that counts, say, and its engine.
impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn observe(&self, event: &Event<'_>) {
        (**self).observe(event);
    }

    fn wants_calls(&self) -> bool {
        (**self).wants_calls()
    }

    fn wants_spans(&self) -> bool {
        (**self).wants_spans()
    }
}

/// An observer whose panics are contained.
#[derive(Debug)]
pub(crate) struct Contained<O>(pub(crate) O);

impl<O: Observer> Observer for Contained<O> {
    fn observe(&self, event: &Event<'_>) {
        contained(&self.0, event);
    }

    fn wants_calls(&self) -> bool {
        self.0.wants_calls()
    }

    fn wants_spans(&self) -> bool {
        self.0.wants_spans()
    }
}

/// Gives the observer an event, and contains its panic.
pub(super) fn contained(observer: &(impl Observer + ?Sized), event: &Event<'_>) {
    // The panic hook has reported it.
    let _ = catch_unwind(AssertUnwindSafe(|| observer.observe(event)));
}

/// The default observer: reports critical events on standard error.
///
/// It writes a line for each critical event (an answer that is not stored, an unknown outcome, a lost
/// lease, a refusal that a repeat cannot mend: a record that cannot be read, attempts that are used up, an invalid
/// policy or step; a warning of the store, a step of its server's clock, one of two layers that fails, a dead letter, a
/// broker that is lost or regained, a lost subscription, a skipped message), and is silent about everything else.
#[derive(Debug)]
pub struct StderrObserver;

/// An operator's way out of an unknown outcome of this cause.
pub(super) fn unknown_next(cause: Option<&str>) -> &'static str {
    if cause == Some(Cause::Step.as_str()) {
        "find out at the other party whether the step happened, which `idem show` names; then `idem reset --done STEP=JSON` \
         with its value if it did, `--not-done STEP` if it did not; until then calls are refused, or run the function's reconcile hook"
    } else {
        "find out at the other party whether the effect happened, and settle the record: `idem show`, then `idem resolve` \
         or `idem reset`; until then calls are refused, or run the reconcile hook"
    }
}

impl Observer for StderrObserver {
    fn observe(&self, event: &Event<'_>) {
        let Some(line) = line(event) else {
            return;
        };
        let mut out = std::io::stderr().lock();
        // A closed standard error cannot be reported anywhere.
        let _ = match (event.key, event.label) {
            (Some(key), Some(label)) => writeln!(out, "{line} [{key}, {label}]"),
            (Some(key), None) => writeln!(out, "{line} [{key}]"),
            (None, _) => writeln!(out, "{line}"),
        };
    }
}

/// The line of a critical event, without its key.
fn line(event: &Event<'_>) -> Option<String> {
    let said = match &event.kind {
        EventKind::Completed {
            outcome: OutcomeKind::Unknown,
            cause,
            ..
        } => {
            let next = unknown_next(*cause);
            let cause = cause.unwrap_or("did not end with an answer");
            format!("the outcome is unknown, because the body {cause}: {next}")
        }
        EventKind::Unsaved { reason } => format!("an answer was returned but not stored: {reason}"),
        EventKind::LeaseLost { reason } => format!("a running call lost its lease: {reason}"),
        EventKind::Unprotected { reason } => format!("the body runs WITHOUT PROTECTION: {reason}"),
        EventKind::Warning { message } if !event.operation.is_empty() => (*message).to_owned(),
        EventKind::DeadLetter { reason, cause } => {
            format!("a message has become a dead letter: {reason}: {cause}")
        }
        EventKind::Unsettled { reason } => {
            format!("the broker did not take a verdict, and delivers the message again: {reason}")
        }
        EventKind::BrokerLost { reason } => {
            format!("the broker is lost, and the consumer retries: {reason}")
        }
        EventKind::BrokerRegained { after } => {
            format!("the broker answers again, after {after:.1?}")
        }
        EventKind::BrokerLeft { after } => {
            format!("the consumer has ended; its broker was lost for {after:.1?}")
        }
        EventKind::SubscriptionLost {
            subscription,
            reason,
            continues,
        } => format!(
            "the broker has lost the subscription {subscription}: {reason}; on_lost_subscription = {continues}"
        ),
        EventKind::MessageSkipped { position, reason } => format!(
            "the broker has removed the unsettled message {position}, which is not handled: {reason}"
        ),
        of_engine => return line_of_engine(of_engine).map(|said| format!("idem: {said}")),
    };
    Some(format!("idem: `{}`: {said}", event.operation))
}

/// The line of an engine's event, or of a refusal.
///
/// The text of a refusal has its operation.
fn line_of_engine(kind: &EventKind<'_>) -> Option<String> {
    Some(match kind {
        EventKind::Refused { error } if error.needs_repair() => error.to_string(),
        EventKind::Degraded { reason } => {
            format!("DEGRADED, the durable store does all the work: the fast one: {reason}")
        }
        EventKind::ClockStepped { by, forward } => {
            let (way, when) = if *forward {
                ("forward", "sooner")
            } else {
                ("back", "later")
            };
            format!(
                "the clock of the store's server has moved {way} by {by:.1?}, against the one here: leases and answers end \
                 that much {when}; it was set, or the server was replaced, or this machine was suspended"
            )
        }
        EventKind::Restored => "restored: the fast store answers again".to_owned(),
        EventKind::Warning { message } => (*message).to_owned(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    /// An operator or a deployment has to mend its cause.
    #[test]
    fn a_refusal_that_a_repeat_cannot_mend_has_a_line() {
        let line_of = |kind| {
            let error = Error::new(kind, "pay");
            let kind = EventKind::Refused { error: &error };
            line(&Event::of_engine(kind)).map(|line| line == format!("idem: {error}"))
        };
        let retry_after = Duration::from_secs(1);
        assert_eq!(line_of(ErrorKind::InvalidStep), Some(true));
        assert_eq!(line_of(ErrorKind::Undecodable), Some(true));
        assert_eq!(line_of(ErrorKind::Running { retry_after }), None);
    }
}
