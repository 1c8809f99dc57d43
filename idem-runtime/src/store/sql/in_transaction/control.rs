//! Commands on the transaction of a caller's connection.

use sqlx::error::DatabaseError;
use sqlx_core::transaction::TransactionManager as _;

use crate::store::sql::backend::{Manager, SqlDriver as _};
use crate::store::sql::transaction::SqlConnection;

macro_rules! commands {
    ($($feature:literal $module:ident::$variant:ident;)*) => {
        impl SqlConnection<'_> {
            /// The number of transactions and savepoints that sqlx counts.
            pub(crate) fn depth(&self) -> usize {
                match self {
                    $(
                        #[cfg(feature = $feature)]
                        Self::$variant(conn) => Manager::<sqlx::$variant>::get_transaction_depth(conn),
                    )*
                }
            }

            pub(crate) async fn begin(self) -> Result<(), sqlx::Error> {
                match self {
                    $(
                        #[cfg(feature = $feature)]
                        Self::$variant(conn) => Manager::<sqlx::$variant>::begin(conn, None).await,
                    )*
                }
            }

            pub(crate) async fn commit(self) -> Result<(), sqlx::Error> {
                match self {
                    $(
                        #[cfg(feature = $feature)]
                        Self::$variant(conn) => Manager::<sqlx::$variant>::commit(conn).await,
                    )*
                }
            }

            pub(crate) async fn rollback(self) -> Result<(), sqlx::Error> {
                match self {
                    $(
                        #[cfg(feature = $feature)]
                        Self::$variant(conn) => crate::store::sql::$module::$variant::roll_back(conn).await,
                    )*
                }
            }

            /// Whether the transaction that sqlx counts exists, with at most `most` counted before the call.
            pub(crate) async fn in_step(self, most: usize) -> bool {
                match self {
                    $(
                        #[cfg(feature = $feature)]
                        Self::$variant(conn) => crate::store::sql::$module::$variant::in_step(conn, most).await,
                    )*
                }
            }

            /// Ends a connection whose transaction does not exist.
            pub(crate) async fn close(self) {
                match self {
                    $(
                        #[cfg(feature = $feature)]
                        Self::$variant(conn) => crate::store::sql::$module::$variant::close(conn).await,
                    )*
                }
            }

            /// Whether this error leaves the outcome of a statement unknown.
            ///
            /// Then it is about the server, or of a proxy in front of it.
            pub(crate) fn is_silence(&self, error: &dyn DatabaseError) -> bool {
                let kind = match self {
                    $(
                        #[cfg(feature = $feature)]
                        Self::$variant(_) => crate::store::sql::$module::$variant::error_kind(error),
                    )*
                };
                kind.is_silence()
            }

            /// Starts a rollback, which is sent before any later command on the connection.
            pub(crate) fn start_rollback(self) {
                match self {
                    $(
                        #[cfg(feature = $feature)]
                        Self::$variant(conn) => crate::store::sql::$module::$variant::start_rollback(conn),
                    )*
                }
            }
        }
    };
}

commands! {
    "mysql" mysql::MySql;
    "postgres" postgres::Postgres;
    "sqlite" sqlite::Sqlite;
}
