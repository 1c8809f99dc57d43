//! diesel-async.

use diesel::QueryResult;
use diesel::dsl::sql;
use diesel::sql_types::BigInt;
use diesel_async::{
    AnsiTransactionManager, AsyncConnection as _, AsyncMysqlConnection, AsyncPgConnection,
    RunQueryDsl as _, SimpleAsyncConnection as _, TransactionManager as _,
};
use idem_runtime::store::sql::{MySql, Postgres};

use super::{Client, Ended};
use crate::database::Sql;

macro_rules! client {
    ($name:ident $Database:ident $Connection:ident $discards_replies:literal $settings:literal) => {
        pub(crate) struct $name;

        impl Sql for $Connection {
            async fn run(&mut self, sql: &str) -> Result<(), String> {
                let done = self.batch_execute(sql).await;
                done.map_err(|error| error.to_string())
            }

            async fn count(&mut self, query: &str) -> i64 {
                let number = diesel::select(sql::<BigInt>(&format!("({query})")));
                let number: QueryResult<i64> = number.get_result(self).await;
                number.expect("the server is up")
            }
        }

        impl Client for $name {
            const DISCARDS_REPLIES: bool = $discards_replies;

            type Database = $Database;
            type Conn = $Connection;
            type Tx<'t> = $Connection;

            async fn connect(url: &str) -> $Connection {
                let url = format!("{url}{}", $settings);
                let conn = $Connection::establish(&url).await;
                conn.expect("the server is up")
            }

            // As its `transaction`, whose closure is `Send`.
            async fn in_transaction<T>(
                conn: &mut $Connection,
                work: impl AsyncFnOnce(&mut $Connection) -> (T, Ended),
            ) -> (T, Result<(), String>) {
                let begun = AnsiTransactionManager::begin_transaction(conn).await;
                begun.expect("the server is up");
                let (value, end) = work(conn).await;
                let ended = match end {
                    Ended::Commit => AnsiTransactionManager::commit_transaction(conn).await,
                    Ended::Rollback | Ended::Drop => {
                        AnsiTransactionManager::rollback_transaction(conn).await
                    }
                };
                (value, ended.map_err(|error| error.to_string()))
            }
        }
    };
}

client!(DieselPostgresClient Postgres AsyncPgConnection true "");
// Without the way around a proxy that the client would take.
client!(DieselMySqlClient MySql AsyncMysqlConnection false "?prefer_socket=false");
