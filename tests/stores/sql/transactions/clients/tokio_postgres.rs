//! tokio-postgres.

use idem_runtime::store::sql::{Postgres, SqlSession as _};
use idem_tests::tokio_postgres::TokioPostgres;

use super::{Client, Ended};
use crate::database::Sql;

pub(crate) struct TokioPostgresClient;

impl Sql for TokioPostgres {
    async fn run(&mut self, sql: &str) -> Result<(), String> {
        let done = self.client().batch_execute(sql).await;
        done.map_err(|error| error.to_string())
    }

    async fn count(&mut self, sql: &str) -> i64 {
        let row = self.client().query_one(sql, &[]).await;
        row.expect("the server is up").get(0)
    }
}

impl Client for TokioPostgresClient {
    type Database = Postgres;
    type Conn = TokioPostgres;
    type Tx<'t> = TokioPostgres;

    async fn connect(url: &str) -> TokioPostgres {
        let config = url.parse().expect("a URL");
        TokioPostgres::connect(&config)
            .await
            .expect("the server is up")
    }

    async fn in_transaction<T>(
        conn: &mut TokioPostgres,
        work: impl AsyncFnOnce(&mut TokioPostgres) -> (T, Ended),
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
