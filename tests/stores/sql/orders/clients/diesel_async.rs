//! diesel-async, with pools of deadpool and bb8.

use diesel_async::pooled_connection::{AsyncDieselConnectionManager, bb8, deadpool};
use diesel_async::{
    AnsiTransactionManager, AsyncMysqlConnection, AsyncPgConnection, RunQueryDsl as _,
    TransactionManager as _,
};
use idem_runtime::store::StoreError;
use idem_runtime::store::sql::{MySql, Postgres, SqlStore};

use super::{CONNECTIONS, Client, ClientError};

pub(crate) struct InDieselPostgres;
pub(crate) struct InDieselMySql;

macro_rules! client {
    ($name:ident $Backend:ident $Connection:ident $Pool:ty, $pool:expr) => {
        impl Client for $name {
            type Backend = $Backend;
            type Pool = $Pool;
            type Tx<'t> = $Connection;

            fn pool(url: &str) -> $Pool {
                $pool(AsyncDieselConnectionManager::new(url))
            }

            async fn store(_: &str, pool: &$Pool) -> Result<SqlStore<$Backend>, StoreError> {
                SqlStore::connect(pool).await
            }

            async fn change(conn: &mut Self::Tx<'_>, sql: String) -> Result<u64, ClientError> {
                Ok(diesel::sql_query(sql).execute(conn).await? as u64)
            }

            // As `transaction` of diesel-async, whose closure is `Send`.
            async fn in_transaction<T>(
                pool: &$Pool,
                work: impl AsyncFnOnce(&mut $Connection) -> (T, bool),
            ) -> Result<T, ClientError> {
                let mut conn = pool.get().await?;
                AnsiTransactionManager::begin_transaction(&mut *conn).await?;
                let (value, commits) = work(&mut conn).await;
                if commits {
                    AnsiTransactionManager::commit_transaction(&mut *conn).await?;
                } else {
                    AnsiTransactionManager::rollback_transaction(&mut *conn).await?;
                }
                Ok(value)
            }
        }
    };
}

client!(InDieselPostgres Postgres AsyncPgConnection deadpool::Pool<AsyncPgConnection>, |manager| {
    let pool = deadpool::Pool::builder(manager).max_size(CONNECTIONS as usize);
    pool.build().expect("it has no time-outs")
});
client!(InDieselMySql MySql AsyncMysqlConnection bb8::Pool<AsyncMysqlConnection>, |manager| {
    bb8::Pool::builder().max_size(CONNECTIONS).build_unchecked(manager)
});
