//! The service's books in SQLite: movements and balances.
//!
//! On purpose they have no unique key and no check for repeats: each row that is written is money. Where idem's
//! records are in the same file, [`Ledger::book`] is idempotent itself: row, balances and the record of the call are
//! committed together or not at all, so that a booking is written once, whenever the process dies. Elsewhere the books
//! are in memory, and the attribute of the caller has to ensure that money moves once.

use std::collections::BTreeMap;
use std::time::Duration;

use idem_runtime::{Engine, FOREVER};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use sqlx::{Sqlite, SqliteConnection};

use crate::error::PayError;
use crate::provider::Movement;
use idem_examples::kept::now;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS runs (prefix text NOT NULL, begun_s integer NOT NULL);
CREATE TABLE IF NOT EXISTS journal (position integer PRIMARY KEY, movement text NOT NULL);
CREATE TABLE IF NOT EXISTS balances (
    account text NOT NULL, currency text NOT NULL, cents integer NOT NULL, PRIMARY KEY (account, currency));
CREATE TABLE IF NOT EXISTS refusals (merchant text NOT NULL, payment text NOT NULL)";

const DROP: &str =
    "DROP TABLE IF EXISTS runs; DROP TABLE IF EXISTS journal; DROP TABLE IF EXISTS balances;
DROP TABLE IF EXISTS refusals";

/// State of a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    Refused,
    Paid(String),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Books {
    pub(crate) journal: Vec<Movement>,
    /// Balance of each account, by account and currency.
    pub(crate) balances: BTreeMap<(String, String), i64>,
}

/// The books, and the pool to reach them.
#[derive(Debug)]
pub(crate) struct Ledger {
    pool: SqlitePool,
    /// The prefix of the records of the books' run. It may continue in many processes.
    pub(crate) prefix: String,
    pub(crate) age: Duration,
    /// Number of rows when it was opened.
    pub(crate) earlier: u64,
}

/// Books that end with the process. Their only connection is never closed.
pub(crate) async fn memory() -> Result<SqlitePool, sqlx::Error> {
    let pool = SqlitePoolOptions::new().max_connections(1);
    let pool = pool.idle_timeout(None).max_lifetime(None);
    pool.connect("sqlite::memory:").await
}

/// Inserts a row, and updates the two accounts. Returns the number of the row.
async fn insert(tx: &mut SqliteConnection, row: &Movement) -> Result<u64, PayError> {
    let text = serde_json::to_string(row).expect("a movement has only strings and numbers");
    let insert = "INSERT INTO journal (movement) VALUES (?) RETURNING position";
    let insert = sqlx::query_scalar(insert).bind(text);
    let position: i64 = insert.fetch_one(&mut *tx).await?;
    for (account, change) in row.changes() {
        let add = "INSERT INTO balances VALUES (?, ?, ?) \
                   ON CONFLICT (account, currency) DO UPDATE SET cents = cents + excluded.cents";
        let add = sqlx::query(add).bind(account).bind(&row.currency);
        add.bind(change).execute(&mut *tx).await?;
    }
    Ok(position.unsigned_abs())
}

impl Ledger {
    /// Opens the existing books, or new ones of this prefix. With `fresh`, and after `lapse`, they are new:
    /// then the records of the old ones begin to expire, and their content can no longer be checked.
    pub(crate) async fn open(
        pool: SqlitePool,
        new: String,
        fresh: bool,
        lapse: Duration,
    ) -> Result<Self, sqlx::Error> {
        sqlx::raw_sql(SCHEMA).execute(&pool).await?;
        let run = sqlx::query_as("SELECT prefix, begun_s FROM runs");
        let run: Option<(String, i64)> = run.fetch_optional(&pool).await?;
        let age = |begun: i64| Duration::from_secs(now().saturating_sub(begun.unsigned_abs()));
        let run = run.map(|(prefix, begun)| (prefix, age(begun)));
        let (prefix, age) = if let Some(run) = run.filter(|(_, age)| !fresh && *age <= lapse) {
            run
        } else {
            sqlx::raw_sql(DROP).execute(&pool).await?;
            sqlx::raw_sql(SCHEMA).execute(&pool).await?;
            let insert = sqlx::query("INSERT INTO runs VALUES (?, ?)").bind(&new);
            insert.bind(now().cast_signed()).execute(&pool).await?;
            (new, Duration::ZERO)
        };
        let rows = sqlx::query_scalar("SELECT count(*) FROM journal");
        let rows: i64 = rows.fetch_one(&pool).await?;
        Ok(Self {
            pool,
            prefix,
            age,
            earlier: rows.unsigned_abs(),
        })
    }

    /// Moves money, and returns the number of the row. With an engine, whose records are in the same file, it does so
    /// once for each movement: a repeat, in this process or after a crash, gets the number of the same row. With
    /// `fails` it fails after all is written.
    pub(crate) async fn book(
        &self,
        engine: Option<&Engine>,
        row: &Movement,
        fails: bool,
    ) -> Result<usize, PayError> {
        let number = if let Some(engine) = engine {
            let mut conn = self.pool.acquire().await?;
            // A connection without a transaction: idem begins one, and commits it.
            let call = engine.operation("payments.book").key(&row.number);
            let call = call.fingerprint(row).ttl(FOREVER).in_tx(&mut conn);
            call.run(async |tx: &mut PoolConnection<Sqlite>, _| {
                let number = insert(tx, row).await?;
                (!fails).then_some(number).ok_or(PayError::Database)
            })
            .await?
        } else {
            let mut tx = self.pool.begin().await?;
            let number = insert(&mut tx, row).await?;
            if fails {
                return Err(PayError::Database);
            }
            tx.commit().await?;
            number
        };
        Ok(usize::try_from(number).unwrap_or_default())
    }

    /// Stores that a payment was refused. Repeats change nothing.
    pub(crate) async fn refuse(&self, merchant: &str, payment: &str) -> Result<(), sqlx::Error> {
        let refuse = sqlx::query("INSERT INTO refusals VALUES (?, ?)").bind(merchant);
        refuse.bind(payment).execute(&self.pool).await?;
        Ok(())
    }

    pub(crate) async fn find(&self, merchant: &str, payment: &str) -> Result<Found, sqlx::Error> {
        let paid = "SELECT movement ->> 'number' FROM journal WHERE movement ->> 'kind' = 'Payment' \
                    AND movement ->> 'merchant' = ? AND movement ->> 'id' = ?";
        let paid = sqlx::query_scalar(paid).bind(merchant).bind(payment);
        if let Some(charge) = paid.fetch_optional(&self.pool).await? {
            return Ok(Found::Paid(charge));
        }
        let refused = "SELECT count(*) FROM refusals WHERE merchant = ? AND payment = ?";
        let refused = sqlx::query_scalar(refused).bind(merchant).bind(payment);
        let refused: i64 = refused.fetch_one(&self.pool).await?;
        Ok(match refused {
            0 => Found::Nothing,
            _ => Found::Refused,
        })
    }

    pub(crate) async fn books(&self) -> Result<Books, sqlx::Error> {
        let journal = sqlx::query_scalar("SELECT movement FROM journal ORDER BY position");
        let journal: Vec<String> = journal.fetch_all(&self.pool).await?;
        let balances = sqlx::query_as("SELECT account, currency, cents FROM balances");
        let balances: Vec<(String, String, i64)> = balances.fetch_all(&self.pool).await?;
        let journal = journal.iter().map(|row| serde_json::from_str(row));
        let balances = balances.into_iter();
        Ok(Books {
            journal: journal
                .collect::<Result<_, _>>()
                .map_err(|error| sqlx::Error::Decode(error.into()))?,
            balances: balances
                .map(|(account, currency, sum)| ((account, currency), sum))
                .collect(),
        })
    }
}
