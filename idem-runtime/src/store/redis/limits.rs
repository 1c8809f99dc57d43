//! Limits of a connection.

use std::time::Duration;

/// Limits of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) connect: Duration,
    pub(super) response: Duration,
    /// Longest text that a reply consists of: see [`Wire`](super::wire).
    pub(super) text_bytes: usize,
}

impl Limits {
    /// The limit of a text that may be a record of at most `max_record_bytes`.
    ///
    /// One byte more, by which a read detects a larger record, and no less than any reply that is no record.
    pub(super) fn text_of_record(max_record_bytes: usize) -> usize {
        max_record_bytes.max(1 << 20).saturating_add(1)
    }
}
