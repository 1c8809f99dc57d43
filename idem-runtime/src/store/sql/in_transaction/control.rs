//! Commands on the transaction of a caller's connection.

use sqlx::Database;
use sqlx::error::DatabaseError;
use sqlx_core::transaction::TransactionManager as _;

use crate::store::sql::backend::SqlDriver;
#[cfg(feature = "sqlite")]
use crate::store::sql::sqlite::transaction_depth;
use crate::store::sql::transaction::SqlConnection;

/// The transaction manager of a database.
type Manager<B> = <<B as SqlDriver>::Db as Database>::TransactionManager;

/// An expression about the connection, and the backend of its database.
macro_rules! on_each {
    ($this:ident, $conn:pat, $Backend:ident => $result:expr) => {
        on_each!(@ $this, $conn, $Backend => $result, "mysql" MySql, "postgres" Postgres, "sqlite" Sqlite)
    };
    (@ $this:ident, $conn:pat, $Backend:ident => $result:expr, $($feature:literal $name:ident),*) => {
        match $this {
            $(
                #[cfg(feature = $feature)]
                SqlConnection::$name($conn) => {
                    type $Backend = crate::store::sql::$name;
                    $result
                }
            )*
        }
    };
}

/// SQLite rolls back by itself, and sqlx does not notice: see [`transaction_depth`]. Elsewhere a claim finds out that a
/// transaction does not exist, and a rollback by the caller makes the connection usable again.
impl SqlConnection<'_> {
    /// The number of transactions and savepoints that sqlx counts.
    pub(crate) fn depth(&self) -> usize {
        on_each!(self, conn, B => Manager::<B>::get_transaction_depth(conn))
    }

    pub(crate) async fn begin(self) -> Result<(), sqlx::Error> {
        on_each!(self, conn, B => Manager::<B>::begin(conn, None).await)
    }

    pub(crate) async fn commit(self) -> Result<(), sqlx::Error> {
        on_each!(self, conn, B => Manager::<B>::commit(conn).await)
    }

    /// Rolls back the transaction that idem began.
    pub(crate) async fn rollback(self) -> Result<(), sqlx::Error> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(conn) => transaction_depth::roll_back(conn).await,
            #[allow(unreachable_patterns, reason = "other databases are features")]
            other => on_each!(other, conn, B => Manager::<B>::rollback(conn).await),
        }
    }

    /// Starts a rollback, which is sent before any later command on the connection.
    pub(crate) fn start_rollback(self) {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(conn) => transaction_depth::start_rollback(conn),
            #[allow(unreachable_patterns, reason = "other databases are features")]
            other => on_each!(other, conn, B => Manager::<B>::start_rollback(conn)),
        }
    }

    /// Whether the transaction that sqlx counts exists, with at most `most` counted before the call.
    #[cfg_attr(
        not(feature = "sqlite"),
        expect(unused_variables, reason = "its count is always right elsewhere")
    )]
    pub(crate) async fn in_step(self, most: usize) -> bool {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(conn) => transaction_depth::in_step(conn, most).await,
            #[allow(unreachable_patterns, reason = "other databases are features")]
            _ => true,
        }
    }

    /// Ends a connection whose transaction does not exist.
    pub(crate) async fn close(self) {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(conn) => transaction_depth::close(conn).await,
            #[allow(unreachable_patterns, reason = "other databases are features")]
            _ => {}
        }
    }

    /// Whether this error leaves the outcome of a statement unknown.
    ///
    /// Then it is about the server, or of a proxy in front of it.
    pub(crate) fn is_silence(&self, error: &dyn DatabaseError) -> bool {
        on_each!(self, _, B => B::error_kind(error)).is_silence()
    }
}
