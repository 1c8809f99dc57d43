//! The SQL clients that calls are made through: sqlx, and each other client of idem.

mod diesel_async;
mod mysql_async;
mod sea_orm;
mod tokio_postgres;

use idem_runtime::store::sql::SqlTransaction;
use sqlx::Connection as _;

pub(crate) use self::diesel_async::{DieselMySqlClient, DieselPostgresClient};
pub(crate) use self::mysql_async::{MySqlAsyncClient, options};
pub(crate) use self::sea_orm::{SeaMySql, SeaPostgres, SeaSqlite};
pub(crate) use self::tokio_postgres::{Bb8Postgres, DeadpoolPostgres, TokioPostgres};
use super::fixture::Done as _;
use crate::database::{Database, Sql};

/// A client whose connections calls use: sqlx, or another one.
pub(crate) trait Client {
    /// Whether a connection discards the reply to an abandoned message. Otherwise it is closed.
    const DISCARDS_REPLIES: bool = true;

    type Database: Database;
    /// A connection. Where it is a [`SqlTransaction`], idem begins a transaction on it.
    type Conn: Sql;
    /// A transaction of the caller, by the client's own type.
    type Tx<'t>: Sql + SqlTransaction;

    async fn connect(url: &str) -> Self::Conn;

    /// Runs `work` in a transaction, and ends that as `work` says. The error is that of its end.
    async fn in_transaction<T>(
        conn: &mut Self::Conn,
        work: impl AsyncFnOnce(&mut Self::Tx<'_>) -> (T, Ended),
    ) -> (T, Result<(), String>);
}

/// How a caller ends its transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ended {
    Commit,
    Rollback,
    /// The client rolls it back, if it does so.
    Drop,
}

impl<D: Database> Client for D {
    type Database = D;
    type Conn = D::Conn;
    type Tx<'t> = D::Conn;

    async fn connect(url: &str) -> D::Conn {
        D::Conn::connect(url).await.done()
    }

    async fn in_transaction<T>(
        conn: &mut D::Conn,
        work: impl AsyncFnOnce(&mut D::Conn) -> (T, Ended),
    ) -> (T, Result<(), String>) {
        let mut tx = conn.begin().await.done();
        let (value, end) = work(&mut tx).await;
        let ended = match end {
            Ended::Commit => tx.commit().await,
            Ended::Rollback => tx.rollback().await,
            Ended::Drop => Ok(()),
        };
        (value, ended.map_err(|error| error.to_string()))
    }
}
