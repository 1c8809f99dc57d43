//! tokio-postgres, by itself and in the pools of deadpool-postgres and bb8-postgres.

use bb8_postgres::PostgresConnectionManager;
use bb8_postgres::bb8::{Pool, PooledConnection};
use idem_consumers::{PooledTx, TxPool as _};
use idem_runtime::store::sql::{Postgres, SqlSession as _};
use tokio_postgres::{Config, NoTls, Transaction};

use super::{Client, Ended};
use crate::database::Sql;

fn config(url: &str) -> Config {
    url.parse().expect("a URL")
}

async fn run(client: &tokio_postgres::Client, sql: &str) -> Result<(), String> {
    let done = client.batch_execute(sql).await;
    done.map_err(|error| error.to_string())
}

async fn count(client: &tokio_postgres::Client, sql: &str) -> i64 {
    let rows = client.query_typed(sql, &[]).await;
    rows.expect("the server is up")[0].get(0)
}

macro_rules! sql {
    ($($Type:ty: |$it:ident| $client:expr;)+) => {
        $(
            impl Sql for $Type {
                async fn run(&mut self, sql: &str) -> Result<(), String> {
                    let $it = self;
                    run($client, sql).await
                }

                async fn count(&mut self, sql: &str) -> i64 {
                    let $it = self;
                    count($client, sql).await
                }
            }
        )+
    };
}

sql! {
    tokio_postgres::Client: |client| client;
    Transaction<'_>: |tx| tx.client();
    deadpool_postgres::Client: |client| client;
    deadpool_postgres::Transaction<'_>: |tx| tx.client();
    PooledTx<Bb8>: |tx| tx;
    PooledTx<deadpool_postgres::Client>: |tx| tx;
}

/// Ends a transaction as `work` says.
macro_rules! in_transaction {
    ($conn:ident, $work:ident) => {{
        let mut tx = $conn.transaction().await.expect("the server is up");
        let (value, end) = $work(&mut tx).await;
        let ended = match end {
            Ended::Commit => tx.commit().await,
            Ended::Rollback => tx.rollback().await,
            Ended::Drop => Ok(drop(tx)),
        };
        (value, ended.map_err(|error| error.to_string()))
    }};
}

pub(crate) struct TokioPostgres;

impl Client for TokioPostgres {
    type Database = Postgres;
    type Conn = tokio_postgres::Client;
    type Tx<'t> = Transaction<'t>;

    async fn connect(url: &str) -> Self::Conn {
        let connected = config(url).connect(NoTls).await;
        let (client, connection) = connected.expect("the server is up");
        tokio::spawn(connection);
        client
    }

    async fn in_transaction<T>(
        conn: &mut Self::Conn,
        work: impl AsyncFnOnce(&mut Transaction<'_>) -> (T, Ended),
    ) -> (T, Result<(), String>) {
        in_transaction!(conn, work)
    }
}

pub(crate) struct DeadpoolPostgres;

impl DeadpoolPostgres {
    pub(crate) fn pool_of_one(url: &str) -> deadpool_postgres::Pool {
        let manager = deadpool_postgres::Manager::new(config(url), NoTls);
        let pool = deadpool_postgres::Pool::builder(manager).max_size(1);
        pool.build().expect("no setting is wrong")
    }
}

impl Client for DeadpoolPostgres {
    type Database = Postgres;
    type Conn = deadpool_postgres::Client;
    type Tx<'t> = deadpool_postgres::Transaction<'t>;

    async fn connect(url: &str) -> Self::Conn {
        let connected = Self::pool_of_one(url).get().await;
        connected.expect("the server is up")
    }

    async fn in_transaction<T>(
        conn: &mut Self::Conn,
        work: impl AsyncFnOnce(&mut deadpool_postgres::Transaction<'_>) -> (T, Ended),
    ) -> (T, Result<(), String>) {
        in_transaction!(conn, work)
    }
}

type Bb8 = PooledConnection<'static, PostgresConnectionManager<NoTls>>;

/// The connection of bb8-postgres that a consumer takes for a message. On it idem begins and ends a transaction.
pub(crate) struct Bb8Postgres;

impl Client for Bb8Postgres {
    type Database = Postgres;
    type Conn = PooledTx<Bb8>;
    type Tx<'t> = PooledTx<Bb8>;

    async fn connect(url: &str) -> Self::Conn {
        let manager = PostgresConnectionManager::new(config(url), NoTls);
        let pool = Pool::builder().max_size(1).build_unchecked(manager);
        pool.acquire().await.expect("the server is up")
    }

    async fn in_transaction<T>(
        conn: &mut Self::Conn,
        work: impl AsyncFnOnce(&mut Self::Conn) -> (T, Ended),
    ) -> (T, Result<(), String>) {
        conn.begin().await.expect("the server is up");
        let (value, end) = work(conn).await;
        let ended = match end {
            Ended::Commit => conn.commit().await,
            Ended::Rollback => conn.rollback().await,
            Ended::Drop => {
                conn.start_rollback();
                Ok(())
            }
        };
        (value, ended.map_err(|error| error.to_string()))
    }
}
