//! The promises that hold whatever happens to the copies.

/// A promise of two layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Promise {
    /// All callers that receive an answer receive the same, until a reset.
    EqualAnswers,
    /// No body starts after a caller received an answer without a reset.
    AnswersEndIt,
    /// An answer from a copy is the answer of the durable store.
    CopiesAreTrue,
    /// No caller waits for ever.
    NobodyIsKeptOut,
}
