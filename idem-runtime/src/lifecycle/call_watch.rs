//! Observes one call from its admission to its end, where an observer of the engine wants that.
//!
//! [`Core::watches`] says whether any does; without one a call reads no clock for this and allocates nothing. An answer
//! at hand in this process is reported at once, by [`Core::answered`]; any other call has a [`CallWatch`].

use std::sync::Arc;
use std::time::Duration;

use crate::env::call_end::{CallEnd, CallOutcome, CallResult};
use crate::env::call_span::CallSpan;
use crate::env::observer::{Event, EventKind};
use crate::error::Error;
use crate::identity::key::KeyDigest;
use crate::identity::operation::Operation;
use crate::lifecycle::core::Core;
use crate::outcome::codec::Encoded;
use crate::outcome::stored::StoredAnswer;

/// The watch over a call. Dropped, it reports the end of the call.
pub(crate) struct CallWatch {
    pub(crate) span: CallSpan,
    pub(crate) times: CallTimes,
}

/// The parts of a call so far, and how it has ended.
pub(crate) struct CallTimes {
    core: Arc<Core>,
    operation: Operation,
    key: KeyDigest,
    outcome: CallOutcome,
    attempt: u16,
    /// When the current part began, by the engine's clock.
    part_began: Duration,
    part: Part,
    body: Option<Duration>,
    store: Option<Duration>,
    waited: Option<Duration>,
}

/// A part of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Claims, or waits for the answer of another call.
    Acquiring,
    /// Runs its body.
    Body,
    /// Sends the result of the body.
    Settling,
}

impl Core {
    /// The span of a call that begins here: none, unless an observer wants spans and a subscriber has an interest.
    pub(crate) fn call_span(&self, operation: &Operation, key: &KeyDigest) -> CallSpan {
        if self.wants.spans {
            CallSpan::new(operation.as_str(), key)
        } else {
            CallSpan::none()
        }
    }

    /// The watch over a call that queries the store; `None` where no observer wants to know of it.
    pub(crate) fn watch(
        self: &Arc<Self>,
        span: CallSpan,
        operation: &Operation,
        key: &KeyDigest,
    ) -> Option<Box<CallWatch>> {
        if !self.wants.calls && span.is_none() {
            return None;
        }
        let times = CallTimes {
            core: Arc::clone(self),
            operation: operation.clone(),
            key: *key,
            outcome: CallOutcome::Cancelled,
            attempt: 0,
            part_began: self.clock.now(),
            part: Part::Acquiring,
            body: None,
            store: None,
            waited: None,
        };
        Some(Box::new(CallWatch { span, times }))
    }

    /// Reports the end of a call with an answer that was at hand.
    pub(crate) fn answered(&self, span: &CallSpan, stored: &StoredAnswer, outcome: CallOutcome) {
        let end = CallEnd {
            outcome,
            attempt: stored.record.header.attempts,
            local: stored.is_local,
            body: None,
            store: None,
            waited: None,
        };
        self.ended(span, stored.operation.as_str(), Some(stored.digest()), end);
    }

    /// Reports the end of a call that was refused without the store.
    pub(crate) fn refused_at_once(&self, span: &CallSpan, key: Option<&KeyDigest>, error: &Error) {
        let end = CallEnd {
            outcome: CallOutcome::refused(error),
            attempt: 0,
            local: false,
            body: None,
            store: None,
            waited: None,
        };
        self.ended(span, error.operation(), key, end);
    }

    fn ended(&self, span: &CallSpan, operation: &str, key: Option<&KeyDigest>, end: CallEnd) {
        if !span.is_none() {
            span.record(&end);
        }
        if self.wants.calls {
            let kind = EventKind::Ended { end };
            let event = Event {
                operation,
                key,
                label: None,
                kind,
            };
            span.in_scope(|| self.observer.observe(&event));
        }
    }
}

impl CallWatch {
    /// The body starts, as this attempt; 0: without protection.
    pub(crate) fn body_started(&mut self, attempt: u16) {
        let Self { span, times } = self;
        span.in_scope(|| times.body_started(attempt));
    }
}

impl CallTimes {
    /// Sets the number of the attempt, which is another one once an earlier attempt is reconciled.
    pub(crate) fn set_attempt(&mut self, attempt: u16) {
        self.attempt = attempt;
    }

    fn end_part(&mut self, next: Part) -> Duration {
        let now = self.core.clock.now();
        let took = now.saturating_sub(self.part_began);
        (self.part_began, self.part) = (now, next);
        took
    }

    /// The store has replied, or another call has, for which this one `waited`.
    pub(crate) fn acquired(&mut self, waited: Duration) {
        let took = self.end_part(Part::Settling);
        self.store = Some(took.saturating_sub(waited));
        self.waited = Some(waited).filter(|waited| !waited.is_zero());
    }

    /// The body starts, as this attempt; 0: without protection.
    pub(crate) fn body_started(&mut self, attempt: u16) {
        self.part = Part::Body;
        self.attempt = attempt;
        // Zero until it has ended, so that each start has its end.
        self.body = Some(Duration::ZERO);
        if self.core.wants.calls {
            let event = Event {
                operation: self.operation.as_str(),
                key: Some(&self.key),
                label: None,
                kind: EventKind::BodyStarted,
            };
            self.core.observer.observe(&event);
        }
    }

    /// The body has ended, or was dropped. Its outcome counts unless another is set.
    pub(crate) fn body_ended(&mut self, outcome: CallOutcome) {
        if self.part == Part::Body {
            self.body = Some(self.end_part(Part::Settling));
        }
        self.outcome = outcome;
    }

    /// The store has replied to the result of the body.
    pub(crate) fn settled(&mut self) {
        let took = self.end_part(Part::Settling);
        *self.store.get_or_insert_default() += took;
    }

    /// Sets the outcome.
    pub(crate) fn set(&mut self, outcome: CallOutcome) {
        self.outcome = outcome;
    }

    /// Sets the outcome of a call that got this answer.
    pub(crate) fn set_answered(&mut self, stored: &StoredAnswer, outcome: CallOutcome) {
        self.attempt = stored.record.header.attempts;
        self.outcome = outcome;
    }
}

impl Drop for CallWatch {
    fn drop(&mut self) {
        let times = &mut self.times;
        match times.part {
            Part::Body => times.body = Some(times.end_part(Part::Settling)),
            Part::Acquiring => times.store = Some(times.end_part(Part::Settling)),
            Part::Settling => {}
        }
        let end = CallEnd {
            outcome: times.outcome,
            attempt: times.attempt,
            local: false,
            body: times.body,
            store: times.store,
            waited: times.waited,
        };
        let (core, key) = (&times.core, Some(&times.key));
        core.ended(&self.span, times.operation.as_str(), key, end);
    }
}

debug_fields!(CallWatch {});

/// The result of a body, by the encoding that is to be stored.
pub(crate) fn result_of(encoded: &Encoded) -> CallResult {
    match encoded {
        Encoded::Release(_) => CallResult::Released,
        Encoded::Store { outcome, .. } => (*outcome).into(),
    }
}
