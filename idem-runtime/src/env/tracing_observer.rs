//! Events of an engine as `tracing` events and spans.

use super::call_span::millis;
use super::observer::{Event, EventKind, Observer, unknown_next};
use crate::error::{Error, ErrorKind};
use crate::outcome::reconciled::Reconciled;
use crate::record::OutcomeKind;

/// The observer for `tracing`: a span for each call, and events.
///
/// Spans and events have the target `idem`. [`guide::observing`](crate::guide::observing) has the list of their fields
/// and levels. A field never holds a payload or a key: `idem.key` is the [digest](crate::key::KeyDigest) of the key.
///
/// ```
/// use idem_runtime::{Engine, observe::TracingObserver, store::memory::MemoryStore};
///
/// let engine = Engine::builder(MemoryStore::new()).observer(TracingObserver).build()?;
/// # Ok::<_, idem_runtime::Error>(())
/// ```
///
/// It takes the place of [`StderrObserver`](crate::observe::StderrObserver): the lines of that one are warnings and errors
/// here, and without a subscriber they are lost.
///
/// A call whose span no subscriber has an interest in, such as with a filter `idem=info`, costs a check of its level.
#[derive(Debug)]
pub struct TracingObserver;

/// One `tracing` event, with the operation and the key of the event.
macro_rules! emit {
    ($event:ident, $level:ident, $name:literal $(, $($field:tt)+)?) => {
        tracing::event!(
            name: $name,
            target: "idem",
            tracing::Level::$level,
            idem.operation = operation($event),
            idem.key = $event.key.map(tracing::field::display),
            idem.label = $event.label,
            $($($field)+,)?
            $name
        )
    };
}

/// `None` for an event of the whole engine.
fn operation<'a>(event: &Event<'a>) -> Option<&'a str> {
    (!event.operation.is_empty()).then_some(event.operation)
}

impl Observer for TracingObserver {
    fn observe(&self, event: &Event<'_>) {
        match &event.kind {
            EventKind::Claimed { attempt, fence } => {
                emit!(event, DEBUG, "claimed", attempt, fence = fence.get());
            }
            EventKind::Replayed {
                outcome,
                age,
                waited,
                local,
            } => emit!(
                event,
                DEBUG,
                "replayed",
                outcome = ?outcome,
                age_ms = millis(*age),
                waited,
                local
            ),
            EventKind::Refused { error } => refused(event, error),
            EventKind::Completed {
                outcome: outcome @ OutcomeKind::Unknown,
                late,
                cause,
            } => emit!(
                event,
                WARN,
                "completed",
                outcome = ?outcome,
                late,
                cause,
                next = unknown_next(*cause)
            ),
            EventKind::Completed { outcome, late, .. } => {
                emit!(event, DEBUG, "completed", outcome = ?outcome, late);
            }
            EventKind::Reconciling { attempts } => emit!(event, DEBUG, "reconciling", attempts),
            EventKind::Reconciled {
                verdict: Reconciled::Unknown,
                why,
            } => emit!(event, WARN, "reconciled", verdict = "unknown", why),
            EventKind::Reconciled { verdict, .. } => {
                emit!(event, DEBUG, "reconciled", verdict = verdict_word(*verdict));
            }
            EventKind::Unprotected { reason } => emit!(event, WARN, "unprotected", reason),
            EventKind::Resolved { outcome } => emit!(event, INFO, "resolved", outcome = ?outcome),
            EventKind::Adopted => emit!(event, WARN, "adopted"),
            EventKind::Unsaved { reason } => emit!(event, WARN, "unsaved", reason),
            EventKind::Released { counted } => emit!(event, DEBUG, "released", counted),
            EventKind::Dropped => emit!(event, DEBUG, "dropped"),
            EventKind::Panicked => emit!(event, WARN, "panicked"),
            EventKind::KeyDerived { derived } => emit!(
                event,
                DEBUG,
                "key derived",
                label = derived.label(),
                digest = %derived.digest()
            ),
            EventKind::StepKept { step } => emit!(event, DEBUG, "step kept", step),
            EventKind::StepReplayed { step } => emit!(event, DEBUG, "step replayed", step),
            EventKind::StepUnused { step } => emit!(event, WARN, "step unused", step),
            EventKind::Renewed => emit!(event, TRACE, "renewed"),
            EventKind::RenewalFailed { reason } => emit!(event, WARN, "renewal failed", reason),
            EventKind::LeaseLost { reason } => emit!(event, WARN, "lease lost", reason),
            EventKind::Degraded { reason } => emit!(event, WARN, "degraded", reason),
            EventKind::Restored => emit!(event, INFO, "restored"),
            EventKind::FormerDigestKey => emit!(event, DEBUG, "former digest key"),
            EventKind::ClockStepped { by, forward } => {
                emit!(event, WARN, "clock stepped", by_ms = millis(*by), forward);
            }
            EventKind::DeadLetter { reason, cause } => {
                emit!(event, WARN, "dead letter", reason, cause);
            }
            EventKind::Unsettled { reason } => emit!(event, WARN, "unsettled", reason),
            EventKind::Consuming { subscription } => emit!(event, INFO, "consuming", subscription),
            EventKind::BrokerLost { reason } => emit!(event, WARN, "broker lost", reason),
            EventKind::BrokerLeft { after } => {
                emit!(event, WARN, "broker left", after_ms = millis(*after));
            }
            EventKind::BrokerRegained { after } => {
                emit!(event, INFO, "broker regained", after_ms = millis(*after));
            }
            EventKind::SubscriptionLost {
                subscription,
                reason,
                continues,
            } => emit!(
                event,
                ERROR,
                "subscription lost",
                subscription,
                reason,
                continues
            ),
            EventKind::MessageSkipped { position, reason } => {
                emit!(event, ERROR, "message skipped", position, reason);
            }
            EventKind::Warning { message } => emit!(event, WARN, "warning", reason = message),
            // The span has them.
            EventKind::BodyStarted | EventKind::Ended { .. } => {}
        }
    }

    fn wants_spans(&self) -> bool {
        true
    }
}

fn refused(event: &Event<'_>, error: &Error) {
    let kind = error.kind().as_str();
    match error.kind() {
        _ if error.needs_repair() => {
            emit!(event, ERROR, "refused", kind, reason = %error, instance = error.instance());
        }
        ErrorKind::NotStored
        | ErrorKind::StoreUnavailable
        | ErrorKind::TransactionAborted
        | ErrorKind::CommitUnknown
        | ErrorKind::Unconfirmed
        | ErrorKind::Reentered => {
            emit!(event, WARN, "refused", kind, reason = %error, instance = error.instance());
        }
        _ => emit!(event, DEBUG, "refused", kind, reason = %error, instance = error.instance()),
    }
}

fn verdict_word(verdict: Reconciled<()>) -> &'static str {
    match verdict {
        Reconciled::Landed(()) => "landed",
        Reconciled::NotLanded => "not landed",
        Reconciled::Unknown => "unknown",
    }
}
