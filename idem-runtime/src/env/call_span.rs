//! The `tracing` span of a call; nothing without the feature `tracing`.

use std::future::Future;
#[cfg(feature = "tracing")]
use std::time::Duration;

#[cfg(feature = "tracing")]
use tracing::{Instrument as _, Span};

use crate::env::call_end::CallEnd;
#[cfg(feature = "tracing")]
use crate::env::call_end::CallOutcome;
use crate::identity::key::KeyDigest;

/// The span of a call, or of its background work.
#[derive(Clone, Debug)]
pub(crate) struct CallSpan {
    #[cfg(feature = "tracing")]
    span: Span,
}

#[cfg(feature = "tracing")]
impl CallSpan {
    pub(crate) const fn none() -> Self {
        Self { span: Span::none() }
    }

    /// Whether a subscriber has an interest in the spans of calls.
    pub(crate) fn is_wanted() -> bool {
        tracing::span_enabled!(target: "idem", tracing::Level::DEBUG)
    }

    /// A new span, within the current one. No span where no subscriber has an interest in it.
    pub(crate) fn new(operation: &str, key: &KeyDigest) -> Self {
        let span = tracing::debug_span!(
            target: "idem",
            "idem.call",
            idem.operation = operation,
            idem.key = %key,
            idem.outcome = tracing::field::Empty,
            idem.result = tracing::field::Empty,
            idem.attempt = tracing::field::Empty,
            idem.local = tracing::field::Empty,
            idem.body_ms = tracing::field::Empty,
            idem.store_ms = tracing::field::Empty,
            idem.waited_ms = tracing::field::Empty,
            otel.status_code = tracing::field::Empty,
        );
        Self { span }
    }

    /// The span of the caller.
    pub(crate) fn current() -> Self {
        Self {
            span: Span::current(),
        }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.span.is_disabled()
    }

    pub(crate) fn in_scope<T>(&self, work: impl FnOnce() -> T) -> T {
        // Not by `Span::in_scope` where there is none: its guard costs more than the check.
        if self.is_none() {
            return work();
        }
        self.span.in_scope(work)
    }

    pub(crate) fn instrument<F: Future>(self, work: F) -> impl Future<Output = F::Output> + use<F> {
        work.instrument(self.span)
    }

    /// Writes the end of the call into its span.
    pub(crate) fn record(&self, end: &CallEnd) {
        if self.is_none() {
            return;
        }
        let span = &self.span;
        span.record("idem.outcome", end.outcome.as_str());
        span.record("idem.result", end.outcome.result());
        if end.attempt > 0 {
            span.record("idem.attempt", end.attempt);
        }
        if let CallOutcome::Replayed(_) = end.outcome {
            span.record("idem.local", end.local);
        }
        for (field, time) in [
            ("idem.body_ms", end.body),
            ("idem.store_ms", end.store),
            ("idem.waited_ms", end.waited),
        ] {
            if let Some(time) = time {
                span.record(field, millis(time));
            }
        }
        if is_failure(end.outcome) {
            span.record("otel.status_code", "ERROR");
        }
    }
}

/// Milliseconds with three decimals: more are noise in a log.
#[cfg(feature = "tracing")]
pub(super) fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Whether a trace with the span is marked as failed.
#[cfg(feature = "tracing")]
fn is_failure(outcome: CallOutcome) -> bool {
    match outcome {
        CallOutcome::Panicked => true,
        CallOutcome::Refused(kind) => {
            // Refusals of duplicates, clients and limits are no failure of the service.
            !matches!(
                kind,
                "running"
                    | "duplicate"
                    | "mismatch"
                    | "invalid-key"
                    | "token-invalid"
                    | "token-expired"
                    | "too-many-running"
                    | "quota-exceeded"
                    | "shutting-down"
            )
        }
        outcome => matches!(outcome.result(), "unknown" | "not-stored"),
    }
}

#[cfg(not(feature = "tracing"))]
impl CallSpan {
    pub(crate) const fn none() -> Self {
        Self {}
    }

    pub(crate) const fn is_wanted() -> bool {
        false
    }

    pub(crate) const fn new(_: &str, _: &KeyDigest) -> Self {
        Self {}
    }

    pub(crate) const fn current() -> Self {
        Self {}
    }

    #[allow(clippy::unused_self, reason = "as with the feature")]
    pub(crate) const fn is_none(&self) -> bool {
        true
    }

    #[allow(clippy::unused_self, reason = "as with the feature")]
    pub(crate) fn in_scope<T>(&self, work: impl FnOnce() -> T) -> T {
        work()
    }

    #[allow(clippy::unused_self, reason = "as with the feature")]
    pub(crate) fn instrument<F: Future>(self, work: F) -> F {
        work
    }

    #[allow(clippy::unused_self, reason = "as with the feature")]
    pub(crate) const fn record(&self, _: &CallEnd) {}
}

/// The span of a lease's renewals.
///
/// Emptied with the last renewal, because a context that outlives its call would otherwise keep the span open.
#[derive(Debug, Default)]
pub(crate) struct HeldSpan {
    #[cfg(feature = "tracing")]
    span: super::lock::Lock<Option<CallSpan>>,
}

impl HeldSpan {
    /// Holds the span of the caller.
    #[cfg(feature = "tracing")]
    pub(crate) fn hold_current(&self) {
        let span = CallSpan::current();
        if !span.is_none() {
            *self.span.lock() = Some(span);
        }
    }

    #[cfg(feature = "tracing")]
    pub(crate) fn get(&self) -> CallSpan {
        self.span.lock().clone().unwrap_or(CallSpan::none())
    }

    /// Holds it no longer.
    #[cfg(feature = "tracing")]
    pub(crate) fn release(&self) {
        // Not under the lock: a subscriber may act on the end of the span.
        let span = self.span.lock().take();
        drop(span);
    }
}

#[cfg(not(feature = "tracing"))]
#[allow(clippy::unused_self, reason = "as with the feature")]
impl HeldSpan {
    pub(crate) const fn hold_current(&self) {}

    pub(crate) const fn get(&self) -> CallSpan {
        CallSpan::none()
    }

    pub(crate) const fn release(&self) {}
}
