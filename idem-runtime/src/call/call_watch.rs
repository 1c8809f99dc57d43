//! Observes one call from admission to end for an observer.
//!
//! Without one a call reads no clock for this and allocates nothing. An answer at hand in this process is reported at
//! once, by [`answered`]; any other call has a [`CallWatch`].

use std::sync::Arc;
use std::time::Duration;

use crate::call::core::Core;
use crate::env::call_end::{CallEnd, CallOutcome, CallResult};
use crate::env::call_span::CallSpan;
use crate::env::observer::{Event, EventKind};
use crate::error::Error;
use crate::identity::key::KeyDigest;
use crate::identity::operation::RecordKey;
use crate::outcome::AnyOutput;
use crate::outcome::codec::Encoded;
use crate::outcome::stored::StoredAnswer;

/// The watch over a call; empty where no observer wants to know of it. Dropped, it reports the end of the call.
#[derive(Default)]
pub(crate) struct CallWatch(Option<Box<WatchedCall>>);

struct WatchedCall {
    span: CallSpan,
    times: CallTimes,
}

/// The parts of a call so far, and how it has ended.
pub(crate) struct CallTimes {
    core: Arc<Core>,
    key: RecordKey,
    end: CallEnd,
    /// When the current part began, by the engine's clock.
    part_began: Duration,
    part: CallPart,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CallPart {
    /// Claims, or waits for the answer of another call.
    Acquiring,
    /// Runs its body.
    Body,
    /// Sends the result of the body.
    Settling,
}

/// The span of a call that begins here: none, unless an observer wants spans and a subscriber has an interest.
pub(crate) fn call_span(core: &Core, key: &RecordKey) -> CallSpan {
    if core.wants.spans {
        CallSpan::new(key.operation().as_str(), key.digest())
    } else {
        CallSpan::none()
    }
}

/// Reports a call that was answered in this process.
pub(crate) fn answered(core: &Core, span: &CallSpan, stored: &StoredAnswer, outcome: CallOutcome) {
    if is_unwatched(core, span) {
        return;
    }
    let mut end = CallEnd::new(outcome, stored.record.header.attempts);
    end.local = stored.is_local;
    let operation = stored.operation.as_str();
    ended(core, span, operation, Some(stored.digest()), end);
}

/// Reports the end of a call that was refused without the store.
pub(crate) fn refused_at_once(
    core: &Core,
    span: &CallSpan,
    key: Option<&KeyDigest>,
    error: &Error,
) {
    let end = CallEnd::new(CallOutcome::refused(error), 0);
    ended(core, span, error.operation(), key, end);
}

fn is_unwatched(core: &Core, span: &CallSpan) -> bool {
    !core.wants.calls && span.is_none()
}

fn ended(core: &Core, span: &CallSpan, operation: &str, key: Option<&KeyDigest>, end: CallEnd) {
    if !span.is_none() {
        span.record(&end);
    }
    if core.wants.calls {
        let event = Event {
            key,
            ..Event::new(operation, EventKind::Ended { end })
        };
        span.in_scope(|| core.observer.observe(&event));
    }
}

impl CallWatch {
    /// The watch over a call that queries the store.
    pub(crate) fn begin(core: &Arc<Core>, span: CallSpan, key: &RecordKey) -> Self {
        if is_unwatched(core, &span) {
            return Self::default();
        }
        let times = CallTimes {
            core: Arc::clone(core),
            key: key.clone(),
            end: CallEnd::new(CallOutcome::Cancelled, 0),
            part_began: core.clock.now(),
            part: CallPart::Acquiring,
        };
        Self(Some(Box::new(WatchedCall { span, times })))
    }

    pub(crate) fn span(&self) -> CallSpan {
        let call = self.0.as_ref();
        call.map_or(CallSpan::none(), |call| call.span.clone())
    }

    /// Does this work in the span of the call.
    pub(crate) fn in_scope<T>(&mut self, work: impl FnOnce(&mut Times<'_>) -> T) -> T {
        match self.0.as_deref_mut() {
            Some(WatchedCall { span, times }) => span.in_scope(|| work(&mut Times(Some(times)))),
            None => work(&mut Times(None)),
        }
    }

    /// The body starts, as this attempt; 0: without protection.
    pub(crate) fn body_started(&mut self, attempt: u16) {
        self.in_scope(|times| times.note(|times| times.body_started(attempt)));
    }

    pub(crate) fn note(&mut self, note: impl FnOnce(&mut CallTimes)) {
        if let Some(call) = &mut self.0 {
            note(&mut call.times);
        }
    }
}

/// The parts of a call while it is in its span; empty where no observer wants to know of it.
pub(crate) struct Times<'a>(Option<&'a mut CallTimes>);

impl Times<'_> {
    pub(crate) fn note(&mut self, note: impl FnOnce(&mut CallTimes)) {
        if let Some(times) = &mut self.0 {
            note(times);
        }
    }
}

impl CallTimes {
    fn end_part(&mut self, next: CallPart) -> Duration {
        let now = self.core.clock.now();
        let took = now.saturating_sub(self.part_began);
        (self.part_began, self.part) = (now, next);
        took
    }

    /// The store or another call has replied, after `waited` for the latter.
    pub(crate) fn acquired(&mut self, waited: Duration) {
        let took = self.end_part(CallPart::Settling);
        self.end.store = Some(took.saturating_sub(waited));
        self.end.waited = Some(waited).filter(|waited| !waited.is_zero());
    }

    /// The body starts, as this attempt; 0: without protection.
    pub(crate) fn body_started(&mut self, attempt: u16) {
        self.part = CallPart::Body;
        self.end.attempt = attempt;
        // Zero until it has ended, so that each start has its end.
        self.end.body = Some(Duration::ZERO);
        if self.core.wants.calls {
            self.core.emit(&self.key, EventKind::BodyStarted);
        }
    }

    /// The body has ended, or was dropped. Its outcome counts unless another is set.
    pub(crate) fn body_ended(&mut self, outcome: CallOutcome) {
        if self.part == CallPart::Body {
            self.end.body = Some(self.end_part(CallPart::Settling));
        }
        self.end.outcome = outcome;
    }

    /// The store has replied to the result of the body.
    pub(crate) fn settled(&mut self) {
        let took = self.end_part(CallPart::Settling);
        *self.end.store.get_or_insert_default() += took;
    }

    pub(crate) fn set(&mut self, outcome: CallOutcome) {
        self.end.outcome = outcome;
    }

    pub(crate) fn set_answered(&mut self, stored: &StoredAnswer, outcome: CallOutcome) {
        self.end.attempt = stored.record.header.attempts;
        self.end.outcome = outcome;
    }

    /// Sets the attempt, which grows once an earlier one is reconciled.
    pub(crate) fn set_attempt(&mut self, attempt: u16) {
        self.end.attempt = attempt;
    }
}

impl Drop for WatchedCall {
    fn drop(&mut self) {
        let times = &mut self.times;
        match times.part {
            CallPart::Body => times.end.body = Some(times.end_part(CallPart::Settling)),
            CallPart::Acquiring => times.end.store = Some(times.end_part(CallPart::Settling)),
            CallPart::Settling => {}
        }
        let (operation, digest) = (times.key.operation().as_str(), times.key.digest());
        ended(&times.core, &self.span, operation, Some(digest), times.end);
    }
}

debug_fields!(CallWatch {});

pub(crate) fn result_of(encoded: &Encoded) -> CallResult {
    match encoded {
        Encoded::Release(_) => CallResult::Released,
        // The body has done its work.
        Encoded::Store(answer) if answer.is_later() => CallResult::Value,
        Encoded::Store(answer) => answer.outcome.into(),
    }
}

/// The outcome of a call whose body ran without protection.
pub(crate) fn unprotected(output: &dyn AnyOutput) -> CallOutcome {
    CallOutcome::Unprotected(if output.succeeded() {
        CallResult::Value
    } else {
        CallResult::Error
    })
}
