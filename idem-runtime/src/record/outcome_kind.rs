//! Kinds of outcomes.

/// The kind of outcome that a done record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutcomeKind {
    /// The value of a success.
    Value,
    /// A business error.
    Error,
    /// The effect may or may not have happened. No body.
    Unknown,
    /// It happened, but the answer could not be kept. No body.
    Tombstone,
}

impl OutcomeKind {
    pub(super) const fn byte(self) -> u8 {
        match self {
            Self::Value => b'D',
            Self::Error => b'E',
            Self::Unknown => b'U',
            Self::Tombstone => b'T',
        }
    }
}
