//! A connection of diesel-async, its status, and its errors.

use std::future::Future;

use diesel::connection::TransactionManagerStatus;
use diesel::result::{DatabaseErrorKind, Error};
use diesel_async::{AnsiTransactionManager, AsyncConnection, TransactionManager as _};

use crate::store::sql::dialect::Dialect;
use crate::store::sql::error::SqlError;

/// A connection of diesel-async.
pub(super) trait DieselConnection:
    AsyncConnection<TransactionManager = AnsiTransactionManager>
{
    const DIALECT: &'static Dialect;
    /// Commits, and fails in a transaction that an error has aborted.
    const COMMIT: &'static str;

    /// Prepares it for the messages of a call, which may be abandoned.
    fn prepare(&mut self) -> impl Future<Output = Result<(), SqlError>> + Send;

    /// Handles a message whose future was dropped before its reply was received.
    fn abandon(&mut self);

    /// Rolls back before any later message, or closes the connection.
    fn undo(&mut self);

    /// Maps an error of a statement, whose code diesel-async drops.
    fn error(&mut self, error: Error) -> impl Future<Output = SqlError> + Send;

    /// Maps an error of the server, by its text alone.
    #[cfg_attr(
        not(any(feature = "diesel-async-bb8", feature = "diesel-async-deadpool")),
        allow(dead_code, reason = "for the connections that a pool makes")
    )]
    fn error_of_text(text: &str) -> SqlError;
}

pub(super) fn status<C: DieselConnection>(conn: &mut C) -> &mut TransactionManagerStatus {
    AnsiTransactionManager::transaction_manager_status_mut(conn)
}

pub(super) fn broken() -> SqlError {
    SqlError::lost("diesel-async counts the connection as broken")
}

/// Maps an error that is none of the database; that is returned.
pub(super) fn client_error(error: Error) -> Result<(DatabaseErrorKind, String), SqlError> {
    match error {
        Error::DatabaseError(
            DatabaseErrorKind::UnableToSendCommand | DatabaseErrorKind::ClosedConnection,
            text,
        ) => Err(SqlError::lost(text.message())),
        Error::DatabaseError(kind, text) => Ok((kind, text.message().to_owned())),
        // The texts of others may quote a value.
        Error::QueryBuilderError(_)
        | Error::SerializationError(_)
        | Error::DeserializationError(_) => {
            Err(SqlError::client("diesel-async cannot send or read a value"))
        }
        _ => Err(SqlError::lost("diesel-async has broken the connection")),
    }
}
