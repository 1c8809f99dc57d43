//! Calls in a transaction: their body writes a row into a ledger, of which each answered key has one.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use idem_runtime::{CallBuilder, ErrorKind};
use idem_tests::orders::database::{Database, InMariaDb, InPostgres, InSqlite};
use sqlx::Pool;

use crate::mix::Plan;
use crate::worker::{Failure, Receipt, Worker};

type Classified = idem_runtime::__private::Classified;

/// Connections of a process to its ledger.
const CONNECTIONS: u32 = 6;

/// The ledger, where there is one.
pub(crate) enum Books {
    None,
    Sqlite(Pool<sqlx::Sqlite>),
    Postgres(Pool<sqlx::Postgres>),
    MariaDb(Pool<sqlx::MySql>),
}

impl fmt::Debug for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Books")
    }
}

/// Rows of the ledger: of each key the answers.
pub(crate) type Ledger = BTreeMap<String, Vec<String>>;

impl Books {
    pub(crate) fn open(store: &str, url: &str) -> Self {
        match store {
            "sqlite" => Self::Sqlite(InSqlite::pool(url, CONNECTIONS)),
            "postgres" => Self::Postgres(InPostgres::pool(url, CONNECTIONS)),
            "mariadb" => Self::MariaDb(InMariaDb::pool(url, CONNECTIONS)),
            _ => Self::None,
        }
    }

    pub(crate) fn are_kept(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Makes the table.
    pub(crate) async fn create(&self) -> sqlx::Result<()> {
        let create = "CREATE TABLE ledger (name VARCHAR(64), answer VARCHAR(64))";
        match self {
            Self::None => Ok(()),
            Self::Sqlite(pool) => change::<InSqlite>(pool, create).await,
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
            Self::Sqlite(pool) => book::<InSqlite>(pool, worker, call, id, plan).await,
            Self::Postgres(pool) => book::<InPostgres>(pool, worker, call, id, plan).await,
            Self::MariaDb(pool) => book::<InMariaDb>(pool, worker, call, id, plan).await,
        }
    }

    /// All rows.
    pub(crate) async fn ledger(&self) -> sqlx::Result<Ledger> {
        let select = "SELECT name, answer FROM ledger";
        let rows: Vec<(String, String)> = match self {
            Self::None => Vec::new(),
            Self::Sqlite(pool) => sqlx::query_as(select).fetch_all(pool).await?,
            Self::Postgres(pool) => sqlx::query_as(select).fetch_all(pool).await?,
            Self::MariaDb(pool) => sqlx::query_as(select).fetch_all(pool).await?,
        };
        let mut ledger = Ledger::new();
        for (name, answer) in rows {
            ledger.entry(name).or_default().push(answer);
        }
        Ok(ledger)
    }
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
) -> Result<Receipt, Failure> {
    // A pool waits for long, and its callers have other keys to call.
    let begin = tokio::time::timeout(Duration::from_secs(2), pool.begin()).await;
    let mut tx = begin.map_err(|_| Failure::Down)??;
    let answer = call.in_tx(&mut *tx);
    let answer = answer.run(async |conn: &mut D::Connection, context| {
        let statements = async {
            let receipt = worker.receipt(id, plan);
            let insert = format!(
                "INSERT INTO ledger (name, answer) VALUES ('{}', '{}')",
                plan.key, receipt.0
            );
            D::change(conn, insert).await?;
            Ok(receipt)
        };
        worker.booked(&context, id, plan, statements).await
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
