//! Calls in a transaction: their body writes a row into a ledger, of which each answered key has one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use idem_runtime::{CallBuilder, ErrorKind};
use idem_tests::orders::database::{Database, InMariaDb, InPostgres, InSqlite};
use sqlx::Pool;

use crate::mix::Plan;
use crate::outcome::{Failure, Receipt};
use crate::worker::Worker;

type Classified = idem_runtime::on_error::Classified;

const CONNECTIONS: u32 = 6;

/// The ledger, where there is one.
pub(crate) enum Books {
    None,
    /// With the path of the file that denies room.
    Sqlite(Pool<sqlx::Sqlite>, PathBuf),
    Postgres(Pool<sqlx::Postgres>),
    MariaDb(Pool<sqlx::MySql>),
}

/// While this file exists, that of SQLite cannot grow.
pub(crate) const FULL: &str = "full";

impl Books {
    pub(crate) fn open(store: &str, url: &str, dir: &Path) -> Self {
        match store {
            "sqlite" => Self::Sqlite(InSqlite::pool(url, CONNECTIONS), dir.join(FULL)),
            "postgres" => Self::Postgres(InPostgres::pool(url, CONNECTIONS)),
            "mariadb" => Self::MariaDb(InMariaDb::pool(url, CONNECTIONS)),
            _ => Self::None,
        }
    }

    pub(crate) fn are_kept(&self) -> bool {
        !matches!(self, Self::None)
    }

    pub(crate) async fn create(&self) -> sqlx::Result<()> {
        let create = "CREATE TABLE ledger (name VARCHAR(64), answer VARCHAR(64))";
        match self {
            Self::None => Ok(()),
            Self::Sqlite(pool, _) => change::<InSqlite>(pool, create).await,
            Self::Postgres(pool) => change::<InPostgres>(pool, create).await,
            Self::MariaDb(pool) => change::<InMariaDb>(pool, create).await,
        }
    }

    /// Makes a call in a transaction of its own, which it commits.
    pub(crate) async fn book(
        &self,
        worker: &Worker,
        call: CallBuilder<Classified>,
        id: u32,
        plan: &Plan,
    ) -> Result<Receipt, Failure> {
        match self {
            Self::None => unreachable!("without a ledger no call is of this family"),
            Self::Sqlite(pool, full) => {
                let full = full.exists();
                let most = if full { 1 } else { 1_073_741_823 };
                let mut before = vec![format!("PRAGMA max_page_count = {most}")];
                if full {
                    // More than there is room for.
                    before.push(insert(&plan.key, "no room"));
                    before.push(
                        "INSERT INTO ledger (name, answer) VALUES ('', zeroblob(1000000))"
                            .to_owned(),
                    );
                }
                book::<InSqlite>(pool, worker, call, id, plan, &before).await
            }
            Self::Postgres(pool) => book::<InPostgres>(pool, worker, call, id, plan, &[]).await,
            Self::MariaDb(pool) => book::<InMariaDb>(pool, worker, call, id, plan, &[]).await,
        }
    }

    /// The keys and the answers of all rows.
    pub(crate) async fn rows(&self) -> sqlx::Result<Vec<(String, String)>> {
        let select = "SELECT name, answer FROM ledger";
        match self {
            Self::None => Ok(Vec::new()),
            Self::Sqlite(pool, _) => sqlx::query_as(select).fetch_all(pool).await,
            Self::Postgres(pool) => sqlx::query_as(select).fetch_all(pool).await,
            Self::MariaDb(pool) => sqlx::query_as(select).fetch_all(pool).await,
        }
    }
}

fn insert(key: &str, answer: &str) -> String {
    format!("INSERT INTO ledger (name, answer) VALUES ('{key}', '{answer}')")
}

async fn change<D: Database>(pool: &Pool<D::Driver>, sql: &str) -> sqlx::Result<()> {
    let mut conn = pool.acquire().await?;
    D::change(&mut conn, sql.to_owned()).await.map(drop)
}

async fn book<D: Database>(
    pool: &Pool<D::Driver>,
    worker: &Worker,
    call: CallBuilder<Classified>,
    id: u32,
    plan: &Plan,
    before: &[String],
) -> Result<Receipt, Failure> {
    // A pool waits for long, and its callers have other keys to call.
    let begin = tokio::time::timeout(Duration::from_secs(2), pool.begin()).await;
    let mut tx = begin.map_err(|_| Failure::Down)??;
    let answer = call.in_tx(&mut *tx);
    let answer = answer.run(async |conn: &mut D::Connection, context| {
        let statements = async {
            for statement in before {
                D::change(conn, statement.clone()).await?;
            }
            let Receipt(answer) = worker.receipt(id, plan);
            D::change(conn, insert(&plan.key, &answer)).await?;
            Ok(())
        };
        worker.body(&context, id, plan, statements).await
    });
    let answer: Result<Receipt, Failure> = answer.await;
    match &answer {
        Err(Failure::Idem(error)) if *error.kind() == ErrorKind::TransactionAborted => {
            tx.rollback().await?;
        }
        // Not acknowledged before it is committed.
        _ => tx.commit().await?,
    }
    answer
}
