//! The events of calls that the observers of an engine receive.

use crate::env::call_span::CallSpan;
use crate::env::observer::Observer;

/// The events of calls that the observers of an engine receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wants {
    /// The start of a body and the timed end of its call.
    pub(crate) calls: bool,
    /// A span for each call.
    pub(crate) spans: bool,
}

impl Wants {
    pub(crate) fn of(observer: &dyn Observer) -> Self {
        Self {
            calls: observer.wants_calls(),
            spans: observer.wants_spans(),
        }
    }

    /// Whether they receive this call: its events, or its span.
    ///
    /// A span only where a subscriber has an interest in it.
    #[inline]
    pub(crate) fn any(self) -> bool {
        self.calls || (self.spans && CallSpan::is_wanted())
    }
}
