//! The SQL clients that a worker takes orders through: sqlx, and each other client of idem.

mod diesel_async;
mod mysql_async;
mod sea_orm;
mod tokio_postgres;

use std::fmt::Display;

use idem_runtime::store::StoreError;
use idem_runtime::store::sql::{Backend, SqlStore, SqlTransaction};
use idem_tests::orders::database::Database;
use sqlx::Pool;

pub(crate) use self::diesel_async::{InDieselMySql, InDieselPostgres};
pub(crate) use self::mysql_async::InMySqlAsync;
pub(crate) use self::sea_orm::{SeaMySql, SeaPostgres, SeaSqlite};
pub(crate) use self::tokio_postgres::{Bb8Postgres, DeadpoolPostgres};

/// The most connections of a pool.
const CONNECTIONS: u32 = 20;

/// A client, with the store on its own connections.
pub(crate) trait Client {
    type Backend: Backend;
    type Pool;
    /// A transaction, by the client's own type.
    type Tx<'t>: SqlTransaction;

    /// Connections that are made when they are needed.
    fn pool(url: &str) -> Self::Pool;

    async fn store(url: &str, pool: &Self::Pool) -> Result<SqlStore<Self::Backend>, StoreError>;

    /// The number of rows that a statement has changed.
    async fn change(tx: &mut Self::Tx<'_>, sql: String) -> Result<u64, ClientError>;

    /// Runs `work` in a transaction, and commits it if `work` returns true.
    async fn in_transaction<T>(
        pool: &Self::Pool,
        work: impl AsyncFnOnce(&mut Self::Tx<'_>) -> (T, bool),
    ) -> Result<T, ClientError>;
}

/// The text of a client's error.
#[derive(Debug)]
pub(crate) struct ClientError(pub(crate) String);

impl<E: Display> From<E> for ClientError {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl<D: Database> Client for D {
    type Backend = D::Backend;
    type Pool = Pool<D::Driver>;
    type Tx<'t> = D::Connection;

    fn pool(url: &str) -> Self::Pool {
        D::pool(url, CONNECTIONS)
    }

    async fn store(url: &str, _: &Self::Pool) -> Result<SqlStore<D::Backend>, StoreError> {
        SqlStore::connect(url).await
    }

    async fn change(tx: &mut Self::Tx<'_>, sql: String) -> Result<u64, ClientError> {
        Ok(<D as Database>::change(tx, sql).await?)
    }

    async fn in_transaction<T>(
        pool: &Self::Pool,
        work: impl AsyncFnOnce(&mut D::Connection) -> (T, bool),
    ) -> Result<T, ClientError> {
        let mut tx = pool.begin().await?;
        let (value, commits) = work(&mut *tx).await;
        if commits {
            tx.commit().await?;
        } else {
            tx.rollback().await?;
        }
        Ok(value)
    }
}
