//! The order in which statements get a connection.

use crate::store::Admission;

/// The purpose of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Priority<'a> {
    /// It ends or keeps a claim. It is served first and never refused.
    Ending,
    /// It claims. It is refused if it cannot be sent in time.
    Claim(&'a Admission),
    /// It reads, or works for an operator. It is served after endings, and bounded by the response time-out.
    Other,
}
