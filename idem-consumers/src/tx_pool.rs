//! The pools whose transactions a consumer's handler writes in.

#[cfg(all(
    any(feature = "diesel-async-bb8", feature = "diesel-async-deadpool"),
    any(feature = "diesel-async-mysql", feature = "diesel-async-postgres")
))]
mod diesel_async;
#[cfg(feature = "mysql-async")]
mod mysql_async;
#[cfg(feature = "sea-orm")]
mod sea_orm;
#[cfg(feature = "_sqlx")]
mod sqlx;
#[cfg(any(feature = "bb8-postgres", feature = "deadpool-postgres"))]
pub(crate) mod tokio_postgres;

use std::error::Error;

use idem_runtime::store::sql::SqlTransaction;

/// A pool of connections of a SQL client, for [`Consumer::in_tx`](crate::Consumer::in_tx).
///
/// | pool | a handler gets |
/// |---|---|
/// | `sqlx::Pool` | the connection: `&mut sqlx::PgConnection` |
/// | `deadpool_postgres::Pool`, `bb8::Pool` of bb8-postgres | a `PooledTx`, which derefs to `tokio_postgres::Client` |
/// | `diesel_async::pooled_connection::deadpool::Pool`, `…::bb8::Pool` | the connection: `&mut AsyncPgConnection` |
/// | `mysql_async::Pool` | the transaction: `&mut mysql_async::Transaction<'static>` |
/// | `sea_orm::DatabaseConnection` | the transaction: `&mut sea_orm::DatabaseTransaction` |
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no pool whose transactions a consumer can use",
    note = "enable the feature of its client: `postgres`, `mysql` or `sqlite` of idem-consumers for a pool of sqlx 0.9, \
            `deadpool-postgres` (0.14), `bb8-postgres` (0.9), `mysql-async` (0.37), `sea-orm` (2.0), or for \
            diesel-async 0.9 `diesel-async-deadpool` or `diesel-async-bb8` beside `diesel-async-postgres` or \
            `diesel-async-mysql`"
)]
pub trait TxPool: Send + Sync + 'static {
    /// A connection for one message. idem begins and ends a transaction on it.
    type Tx: SqlTransaction + Send;
    /// The part of it that a handler writes through.
    type Handle: ?Sized + Send;

    /// Takes a connection, which returns to the pool when dropped.
    fn acquire(&self) -> impl Future<Output = Result<Self::Tx, TxPoolError>> + Send;

    /// The connection as a handler gets it, in its transaction.
    fn handle(tx: &mut Self::Tx) -> &mut Self::Handle;
}

/// Why a pool gives no connection.
#[derive(Debug)]
#[non_exhaustive]
pub enum TxPoolError {
    /// None for now: the message is delivered again.
    Busy,
    /// None for good: the consumer stops.
    Closed(Box<dyn Error + Send + Sync>),
}
