//! The errors of a server, by what they mean for a statement.

#![allow(unnameable_types, reason = "part of a sealed trait")]

/// The kind of an error of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum SqlErrorKind {
    /// It collided with another transaction: a serialization failure, a deadlock, a busy file.
    Collision,
    /// It waited for a lock of another transaction up to its limit.
    Locked,
    /// No room.
    Full,
    /// The table does not exist.
    NoTable,
    /// The database or the schema does not exist.
    NoDatabase,
    /// Wrong user or password.
    Login,
    /// A right is missing.
    Refused,
    /// An unusable file or a wrong setting, and the remedy.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    Setting(&'static str),
    /// It starts, stops, or fails over.
    Unavailable,
    /// It has no connection left, or has ended the statement for a limit of its own.
    Busy,
    /// It only reads.
    ReadOnly,
    /// Its transaction is over, or failed, or a savepoint in it is gone.
    Ended,
    /// Anything else.
    Other,
}

impl SqlErrorKind {
    /// Whether the outcome of the statement is unknown, and its connection unusable.
    pub(crate) fn is_silence(self) -> bool {
        matches!(self, Self::Unavailable | Self::Busy)
    }
}
