//! What the observers of an engine want to know of its calls.

use crate::env::call_span::CallSpan;
use crate::env::observer::Observer;

/// What the observers of an engine want to know of its calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wants {
    /// The start of its body and its end, with the times of its parts.
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

    /// Whether they want to know of a call that begins here, and, for spans, a subscriber does.
    #[inline]
    pub(crate) fn any(self) -> bool {
        self.calls || (self.spans && CallSpan::is_wanted())
    }
}
