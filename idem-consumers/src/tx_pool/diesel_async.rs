//! The pools of diesel-async, for [`Consumer::in_tx`](crate::Consumer::in_tx).

use super::{TxPool, TxPoolError};

/// The parts for one pool and database. `error` says why it gives no connection.
macro_rules! pool {
    ($($pool:literal $database:literal
        $Pool:ident::$get:ident $Pooled:ident$(<$lifetime:lifetime>)? $Connection:ident $error:ident;)*) => {
        $(
            #[cfg(all(feature = $pool, feature = $database))]
            #[diagnostic::do_not_recommend]
            impl TxPool for diesel_async::pooled_connection::$Pool::Pool<diesel_async::$Connection> {
                type Tx = diesel_async::pooled_connection::$Pool::$Pooled<
                    $($lifetime,)? diesel_async::$Connection
                >;
                type Handle = diesel_async::$Connection;

                async fn acquire(&self) -> Result<Self::Tx, TxPoolError> {
                    Self::$get(self).await.map_err($error)
                }

                fn handle(tx: &mut Self::Tx) -> &mut Self::Handle {
                    tx
                }
            }
        )*
    };
}

pool! {
    "diesel-async-bb8" "diesel-async-mysql"
        bb8::get_owned PooledConnection<'static> AsyncMysqlConnection of_bb8;
    "diesel-async-bb8" "diesel-async-postgres"
        bb8::get_owned PooledConnection<'static> AsyncPgConnection of_bb8;
    "diesel-async-deadpool" "diesel-async-mysql"
        deadpool::get Object AsyncMysqlConnection of_deadpool;
    "diesel-async-deadpool" "diesel-async-postgres"
        deadpool::get Object AsyncPgConnection of_deadpool;
}

/// No pool of bb8 is closed.
#[cfg(feature = "diesel-async-bb8")]
fn of_bb8(_: diesel_async::pooled_connection::bb8::RunError) -> TxPoolError {
    TxPoolError::Busy
}

#[cfg(feature = "diesel-async-deadpool")]
fn of_deadpool(error: diesel_async::pooled_connection::deadpool::PoolError) -> TxPoolError {
    use diesel_async::pooled_connection::deadpool::PoolError;
    match error {
        PoolError::Closed | PoolError::NoRuntimeSpecified => TxPoolError::Closed(error.into()),
        _ => TxPoolError::Busy,
    }
}
