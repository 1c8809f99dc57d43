//! sea-orm: a pool of one connection, and its transactions.

use idem_runtime::store::sql::{MySql, Postgres, Sqlite};
use sea_orm::{
    ConnectOptions, ConnectionTrait, Database, DatabaseConnection, DatabaseTransaction, Statement,
    TransactionTrait as _,
};

use super::{Client, Ended};
use crate::database::Sql;

async fn run(on: &impl ConnectionTrait, sql: &str) -> Result<(), String> {
    let done = on.execute_unprepared(sql).await;
    done.map(drop).map_err(|error| error.to_string())
}

async fn count(on: &impl ConnectionTrait, sql: &str) -> i64 {
    let query = Statement::from_string(on.get_database_backend(), sql);
    let row = on.query_one_raw(query).await.expect("the server is up");
    let number = row.expect("a row").try_get_by_index(0);
    number.expect("a number")
}

macro_rules! sql {
    ($($kind:ty)*) => {
        $(
            impl Sql for $kind {
                async fn run(&mut self, sql: &str) -> Result<(), String> {
                    run(self, sql).await
                }

                async fn count(&mut self, sql: &str) -> i64 {
                    count(self, sql).await
                }
            }
        )*
    };
}

sql!(DatabaseConnection DatabaseTransaction);

/// Connects a pool of one connection: each transaction after a failure gets the connection of that failure.
pub(crate) async fn connect(url: &str) -> DatabaseConnection {
    let mut options = ConnectOptions::new(url);
    options.max_connections(1).sqlx_logging(false);
    let connected = Database::connect(options).await;
    connected.expect("the server is up")
}

macro_rules! client {
    ($name:ident $database:ident) => {
        pub(crate) struct $name;

        impl Client for $name {
            type Database = $database;
            type Conn = DatabaseConnection;
            type Tx<'t> = DatabaseTransaction;

            async fn connect(url: &str) -> DatabaseConnection {
                connect(url).await
            }

            async fn in_transaction<T>(
                conn: &mut DatabaseConnection,
                work: impl AsyncFnOnce(&mut DatabaseTransaction) -> (T, Ended),
            ) -> (T, Result<(), String>) {
                let mut tx = conn.begin().await.expect("the server is up");
                let (value, end) = work(&mut tx).await;
                let ended = match end {
                    Ended::Commit => tx.commit().await,
                    Ended::Rollback => tx.rollback().await,
                    Ended::Drop => Ok(()),
                };
                (value, ended.map_err(|error| error.to_string()))
            }
        }
    };
}

client!(SeaPostgres Postgres);
client!(SeaMySql MySql);
client!(SeaSqlite Sqlite);
