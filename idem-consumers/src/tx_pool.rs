//! The pools whose transactions a consumer's handler writes in.

use idem_runtime::store::sql::{SqlError, SqlTransaction};

/// A pool of connections of a SQL client, for [`Consumer::in_tx`](crate::Consumer::in_tx).
///
/// | pool | a handler gets |
/// |---|---|
/// | `sqlx::Pool` | the connection: `&mut sqlx::PgConnection` |
/// | `sea_orm::DatabaseConnection` | the transaction: `&mut sea_orm::DatabaseTransaction` |
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no pool whose transactions a consumer can use",
    note = "enable the feature of its client: `postgres`, `mysql` or `sqlite` of idem-consumers for a pool of sqlx 0.9, \
            `sea-orm` for a `DatabaseConnection` of sea-orm 2"
)]
pub trait TxPool: Send + Sync + 'static {
    /// A connection for one message. idem begins and ends a transaction on it.
    type Tx: SqlTransaction + Send;
    /// The part of it that a handler writes through.
    type Handle: ?Sized + Send;

    /// Takes a connection of the pool, which has it back when it is dropped.
    fn acquire(&self) -> impl Future<Output = Result<Self::Tx, TxPoolError>> + Send;

    /// The part of the connection that a handler writes through, after its transaction was begun.
    fn handle(tx: &mut Self::Tx) -> &mut Self::Handle;
}

/// Why a pool gives no connection.
#[derive(Debug)]
#[non_exhaustive]
pub enum TxPoolError {
    /// None for now: the message is delivered again.
    Busy,
    /// None for good: the consumer stops.
    Closed(SqlError),
}

#[cfg(feature = "_sqlx")]
mod sqlx_pool {
    use idem_runtime::store::sql::{SqlError, SqlTransaction};
    use sqlx::pool::PoolConnection;
    use sqlx::{Database, Error, Pool};

    use super::{TxPool, TxPoolError};

    #[diagnostic::do_not_recommend]
    impl<DB: Database> TxPool for Pool<DB>
    where
        PoolConnection<DB>: SqlTransaction,
    {
        type Tx = PoolConnection<DB>;
        type Handle = DB::Connection;

        async fn acquire(&self) -> Result<Self::Tx, TxPoolError> {
            Self::acquire(self).await.map_err(|error| match error {
                Error::PoolClosed | Error::Configuration(_) => {
                    TxPoolError::Closed(SqlError::configuration(error))
                }
                _ => TxPoolError::Busy,
            })
        }

        fn handle(tx: &mut Self::Tx) -> &mut Self::Handle {
            tx
        }
    }
}
