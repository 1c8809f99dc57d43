//! The pools of sqlx.

use idem_runtime::store::sql::SqlTransaction;
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
            Error::PoolClosed | Error::Configuration(_) => TxPoolError::Closed(error.into()),
            _ => TxPoolError::Busy,
        })
    }

    fn handle(tx: &mut Self::Tx) -> &mut Self::Handle {
        tx
    }
}
