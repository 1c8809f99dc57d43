//! sea-orm.

use std::str::FromStr as _;

use idem_runtime::store::StoreError;
use idem_runtime::store::sql::{MySql, Postgres, SqlStore, Sqlite};
use idem_tests::orders::database::PATIENCE;
use sea_orm::sqlx::mysql::MySqlPoolOptions;
use sea_orm::sqlx::postgres::PgPoolOptions;
use sea_orm::sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sea_orm::{
    ConnectionTrait as _, DatabaseConnection, DatabaseTransaction, TransactionTrait as _,
};

use super::{CONNECTIONS, Client, ClientError};

macro_rules! client {
    ($name:ident $backend:ident, $url:ident => $pool:expr, $pool_of:ident) => {
        pub(crate) struct $name;

        impl Client for $name {
            type Backend = $backend;
            type Pool = DatabaseConnection;
            type Tx<'t> = DatabaseTransaction;

            fn pool($url: &str) -> DatabaseConnection {
                $pool.into()
            }

            async fn store(
                _: &str,
                pool: &DatabaseConnection,
            ) -> Result<SqlStore<$backend>, StoreError> {
                SqlStore::connect(pool.$pool_of()).await
            }

            async fn change(tx: &mut Self::Tx<'_>, sql: String) -> Result<u64, ClientError> {
                Ok(tx.execute_unprepared(&sql).await?.rows_affected())
            }

            async fn in_transaction<T>(
                pool: &DatabaseConnection,
                work: impl AsyncFnOnce(&mut Self::Tx<'_>) -> (T, bool),
            ) -> Result<T, ClientError> {
                let mut tx = pool.begin().await?;
                let (value, commits) = work(&mut tx).await;
                if commits {
                    tx.commit().await?;
                } else {
                    tx.rollback().await?;
                }
                Ok(value)
            }
        }
    };
}

client!(SeaPostgres Postgres, url => {
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(PATIENCE);
    pool.connect_lazy(url).expect("a URL")
}, get_postgres_connection_pool);

client!(SeaMySql MySql, url => {
    let pool = MySqlPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(PATIENCE);
    pool.connect_lazy(url).expect("a URL")
}, get_mysql_connection_pool);

client!(SeaSqlite Sqlite, url => {
    let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(PATIENCE);
    let options = SqliteConnectOptions::from_str(url).expect("a URL");
    pool.connect_lazy_with(options.busy_timeout(PATIENCE))
}, get_sqlite_connection_pool);
