//! tokio-postgres, in the pools of deadpool-postgres and bb8-postgres.

use bb8_postgres::PostgresConnectionManager;
use bb8_postgres::bb8::Pool;
use idem_runtime::store::StoreError;
use idem_runtime::store::sql::{Postgres, PostgresStore};
use tokio_postgres::{Config, NoTls, Transaction};

use super::{CONNECTIONS, Client, ClientError};

fn config(url: &str) -> Config {
    url.parse().expect("a URL")
}

/// Begins a transaction on this connection, and ends it as `work` says.
macro_rules! in_transaction {
    ($conn:expr, $work:ident) => {{
        let mut conn = $conn;
        let mut tx = conn.transaction().await?;
        let (value, commits) = $work(&mut tx).await;
        if commits {
            tx.commit().await?;
        } else {
            tx.rollback().await?;
        }
        Ok(value)
    }};
}

pub(crate) struct DeadpoolPostgres;

impl Client for DeadpoolPostgres {
    type Backend = Postgres;
    type Pool = deadpool_postgres::Pool;
    type Tx<'t> = deadpool_postgres::Transaction<'t>;

    fn pool(url: &str) -> Self::Pool {
        let manager = deadpool_postgres::Manager::new(config(url), NoTls);
        let pool = deadpool_postgres::Pool::builder(manager).max_size(CONNECTIONS as usize);
        pool.build().expect("no setting is wrong")
    }

    async fn store(_: &str, pool: &Self::Pool) -> Result<PostgresStore, StoreError> {
        PostgresStore::connect(pool).await
    }

    async fn change(tx: &mut Self::Tx<'_>, sql: String) -> Result<u64, ClientError> {
        Ok(tx.execute(&sql, &[]).await?)
    }

    async fn in_transaction<T>(
        pool: &Self::Pool,
        work: impl AsyncFnOnce(&mut Self::Tx<'_>) -> (T, bool),
    ) -> Result<T, ClientError> {
        in_transaction!(pool.get().await?, work)
    }
}

pub(crate) struct Bb8Postgres;

impl Client for Bb8Postgres {
    type Backend = Postgres;
    type Pool = Pool<PostgresConnectionManager<NoTls>>;
    type Tx<'t> = Transaction<'t>;

    fn pool(url: &str) -> Self::Pool {
        let manager = PostgresConnectionManager::new(config(url), NoTls);
        let pool = Pool::builder().max_size(CONNECTIONS);
        pool.build_unchecked(manager)
    }

    // With named statements; that of deadpool-postgres has none.
    async fn store(_: &str, pool: &Self::Pool) -> Result<PostgresStore, StoreError> {
        let store = PostgresStore::builder(pool).named_statements(true);
        store.connect().await
    }

    async fn change(tx: &mut Self::Tx<'_>, sql: String) -> Result<u64, ClientError> {
        Ok(tx.execute(&sql, &[]).await?)
    }

    async fn in_transaction<T>(
        pool: &Self::Pool,
        work: impl AsyncFnOnce(&mut Transaction<'_>) -> (T, bool),
    ) -> Result<T, ClientError> {
        in_transaction!(pool.get().await?, work)
    }
}
