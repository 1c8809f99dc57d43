//! The errors of a server, by their meaning for a statement.

/// The kind of an error of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "a database has some of them")]
pub(crate) enum SqlErrorKind {
    /// It collided with another transaction: a serialization failure, a deadlock, a busy file.
    Collision {
        /// Its own transaction can go on.
        goes_on: bool,
    },
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
    Setting(&'static str),
    /// It starts, stops, or fails over.
    Unavailable,
    /// It has no free connection, or ended the statement for a limit.
    Busy,
    /// Its session has no prepared statement of this name.
    NoStatement,
    /// It only reads.
    ReadOnly,
    /// Its transaction is over or failed, or a savepoint is gone.
    Ended,
    /// Anything else.
    Other,
}

impl SqlErrorKind {
    /// Whether the outcome of the statement is unknown, and its connection unusable.
    pub(crate) fn is_silence(self) -> bool {
        matches!(self, Self::Unavailable | Self::Busy | Self::NoStatement)
    }
}
