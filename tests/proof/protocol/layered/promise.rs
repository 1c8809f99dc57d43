//! What holds whatever happens to the copies.

/// What two layers promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Promise {
    /// All who are told an answer are told the same, until it is reset.
    EqualAnswers,
    /// No body starts after somebody was told an answer that was not reset.
    AnswersEndIt,
    /// What is told from a copy is what the durable store has.
    CopiesAreTrue,
    /// Nobody waits for ever.
    NobodyIsKeptOut,
}
