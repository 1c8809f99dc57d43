//! The books in a database: the same one that idem's records are in.
//!
//! [`Database::book`] uses a transaction: row, balances and the record of the call are
//! committed together or not at all, so that a booking is written once, whenever the process dies.

use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use idem_runtime::{Engine, FOREVER};
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};

use super::error::PayError;
use super::ledger::{Books, Found, Kind, Row};
use super::sql::{self, Dialect};

/// Number of concurrent bookings. The records have connections of their own.
const CONNECTIONS: u32 = 8;

/// The books, their run, and the pool to reach them.
#[derive(Debug)]
pub struct Database {
    pool: AnyPool,
    run: BegunRun,
    rows: usize,
}

/// A pool of one of the databases.
#[derive(Clone, Debug)]
pub enum AnyPool {
    /// A file.
    Sqlite(SqlitePool),
    /// PostgreSQL.
    Postgres(PgPool),
    /// MySQL or MariaDB.
    MySql(MySqlPool),
}

/// The run that the books belong to; it may continue in many processes, one after another.
#[derive(Clone, Debug)]
pub struct BegunRun {
    /// The prefix of its records.
    pub prefix: String,
    /// Time since its beginning.
    pub age: Duration,
}

/// A future that is declared `Send`: the compiler cannot prove that of the code shared by
/// three databases (<https://github.com/rust-lang/rust/issues/100013>).
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Result of a booking.
#[derive(Clone, Copy, Debug)]
pub struct Booked {
    /// Number of the row.
    pub number: usize,
    /// Whether it was written now, and not by an earlier attempt.
    pub now: bool,
}

/// Runs the same work on the pool of each database, because each has types of its own.
macro_rules! each {
    ($any:expr, $pool:ident => $work:expr) => {
        match $any {
            AnyPool::Sqlite($pool) => $work,
            AnyPool::Postgres($pool) => $work,
            AnyPool::MySql($pool) => $work,
        }
    };
}

/// Inserts a row, and updates the two accounts. Returns the number of the row.
macro_rules! insert {
    ($tx:ident, $dialect:ident, $row:ident) => {{
        let kind = match $row.kind {
            Kind::Payment => "payment",
            Kind::Refund => "refund",
        };
        sqlx::query($dialect.sql(sql::ROW))
            .bind(kind)
            .bind(&$row.merchant)
            .bind(&$row.id)
            .bind(&$row.payment)
            .bind(&$row.from)
            .bind(&$row.to)
            .bind($row.amount.cast_signed())
            .bind(&$row.currency)
            .bind(&$row.movement)
            .execute(&mut **$tx)
            .await?;
        for (account, change) in changes($row) {
            sqlx::query($dialect.sql(sql::ADD))
                .bind(account)
                .bind(&$row.currency)
                .bind(change)
                .execute(&mut **$tx)
                .await?;
        }
        let number = sqlx::query_scalar($dialect.sql(sql::NUMBER)).bind(&$row.movement);
        let number: i64 = number.fetch_one(&mut **$tx).await?;
        number.unsigned_abs()
    }};
}

impl AnyPool {
    /// Opens or creates a file.
    ///
    /// # Errors
    ///
    /// sqlx's.
    pub async fn sqlite(file: &std::path::Path) -> Result<Self, sqlx::Error> {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            // Same mode as the store: readers do not wait for the writer.
            .journal_mode(SqliteJournalMode::Wal);
        // A file has one writer at a time anyway.
        let pool = SqlitePoolOptions::new().max_connections(2);
        Ok(Self::Sqlite(pool.connect_with(options).await?))
    }

    /// Connects to PostgreSQL.
    ///
    /// # Errors
    ///
    /// sqlx's.
    pub async fn postgres(url: &str) -> Result<Self, sqlx::Error> {
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS);
        Ok(Self::Postgres(pool.connect(url).await?))
    }

    /// Connects to MySQL or MariaDB.
    ///
    /// # Errors
    ///
    /// sqlx's.
    pub async fn mysql(url: &str) -> Result<Self, sqlx::Error> {
        let pool = MySqlPoolOptions::new().max_connections(CONNECTIONS);
        Ok(Self::MySql(pool.connect(url).await?))
    }

    fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(_) => sql::SQLITE,
            Self::Postgres(_) => sql::POSTGRES,
            Self::MySql(_) => sql::MYSQL,
        }
    }

    async fn tables(
        &self,
        statements: impl Iterator<Item = sqlx::AssertSqlSafe<String>>,
    ) -> Result<(), sqlx::Error> {
        for statement in statements {
            each!(self, pool => sqlx::query(statement).execute(pool).await.map(drop))?;
        }
        Ok(())
    }
}

impl Database {
    /// Opens the existing books, or new ones. With `fresh`, and after `lapse`, they are new:
    /// then the records of the old ones begin to expire, and their content can no longer be checked.
    ///
    /// # Errors
    ///
    /// sqlx's.
    pub async fn open(pool: AnyPool, fresh: bool, lapse: Duration) -> Result<Self, sqlx::Error> {
        let dialect = pool.dialect();
        if fresh {
            pool.tables(Dialect::drop()).await?;
        }
        pool.tables(dialect.create()).await?;
        let mut run = Self::begun(&pool).await?;
        if run.as_ref().is_some_and(|run| run.age > lapse) {
            pool.tables(Dialect::drop().chain(dialect.create())).await?;
            run = None;
        }
        let run = match run {
            Some(run) => run,
            None => Self::begin(&pool).await?,
        };
        let rows: i64 = each!(&pool, pool => {
            sqlx::query_scalar(dialect.sql(sql::ROWS)).fetch_one(pool).await
        })?;
        let rows = usize::try_from(rows).unwrap_or_default();
        Ok(Self { pool, run, rows })
    }

    async fn begun(pool: &AnyPool) -> Result<Option<BegunRun>, sqlx::Error> {
        let text = pool.dialect().sql(sql::RUN);
        let begun: Option<(String, i64)> = each!(pool, pool => {
            sqlx::query_as(text).fetch_optional(pool).await
        })?;
        Ok(begun.map(|(prefix, begun)| BegunRun {
            prefix,
            age: Duration::from_secs(now().saturating_sub(begun.unsigned_abs())),
        }))
    }

    async fn begin(pool: &AnyPool) -> Result<BegunRun, sqlx::Error> {
        let run = BegunRun {
            prefix: super::place::new_prefix(),
            age: Duration::ZERO,
        };
        let text = pool.dialect().sql(sql::BEGIN_RUN);
        each!(pool, pool => {
            let insert = sqlx::query(text).bind(&run.prefix).bind(now().cast_signed());
            insert.execute(pool).await.map(drop)
        })?;
        Ok(run)
    }

    /// The run that these books belong to.
    #[must_use]
    pub fn run(&self) -> &BegunRun {
        &self.run
    }

    /// Number of rows when it was opened.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Writes a row and its changes, once for each movement: a repeat, in this process
    /// or after a crash, gets the number of the same row. With `fails` it fails after all is written.
    ///
    /// # Errors
    ///
    /// [`PayError::Database`] and idem's own; nothing was written, unless the reply to the commit was
    /// lost, and then the next call detects that.
    #[must_use]
    pub fn book<'a>(
        &'a self,
        engine: &'a Engine,
        row: &'a Row,
        fails: bool,
    ) -> Boxed<'a, Result<Booked, PayError>> {
        Box::pin(async move {
            let dialect = self.pool.dialect();
            let mut now = false;
            let number: u64 = each!(&self.pool, pool => {
                let mut conn = pool.acquire().await?;
                // A connection without a transaction: idem begins one, and commits it.
                engine
                    .operation("payments.book")
                    .key(&row.movement)
                    .fingerprint(row)
                    .ttl(FOREVER)
                    .in_tx(&mut conn)
                    .run(async |tx: &mut PoolConnection<_>, _| {
                        now = true;
                        let number = insert!(tx, dialect, row);
                        if fails {
                            return Err(PayError::Database);
                        }
                        Ok(number)
                    })
                    .await
            })?;
            let number = usize::try_from(number).unwrap_or_default();
            Ok(Booked { number, now })
        })
    }

    /// Stores that a payment was refused. Repeats change nothing.
    ///
    /// # Errors
    ///
    /// sqlx's.
    #[must_use]
    pub fn refuse<'a>(
        &'a self,
        merchant: &'a str,
        payment: &'a str,
    ) -> Boxed<'a, Result<(), sqlx::Error>> {
        Box::pin(async move {
            let text = self.pool.dialect().sql(sql::REFUSE);
            each!(&self.pool, pool => {
                sqlx::query(text).bind(merchant).bind(payment).execute(pool).await.map(drop)
            })
        })
    }

    /// Finds a payment.
    ///
    /// # Errors
    ///
    /// sqlx's.
    #[must_use]
    pub fn find<'a>(
        &'a self,
        merchant: &'a str,
        payment: &'a str,
    ) -> Boxed<'a, Result<Found, sqlx::Error>> {
        Box::pin(async move {
            let dialect = self.pool.dialect();
            let paid: Option<(String, String)> = each!(&self.pool, pool => {
                let paid = sqlx::query_as(dialect.sql(sql::PAID)).bind(merchant).bind(payment);
                paid.fetch_optional(pool).await
            })?;
            if let Some((charge, card)) = paid {
                return Ok(Found::Paid { charge, card });
            }
            let refused: i64 = each!(&self.pool, pool => {
                let refused = sqlx::query_scalar(dialect.sql(sql::REFUSED));
                refused.bind(merchant).bind(payment).fetch_one(pool).await
            })?;
            Ok(match refused {
                0 => Found::Nothing,
                _ => Found::Refused,
            })
        })
    }

    /// All rows and balances.
    ///
    /// # Errors
    ///
    /// sqlx's.
    pub async fn books(&self) -> Result<Books, sqlx::Error> {
        type Columns = (
            String,
            String,
            String,
            String,
            String,
            String,
            i64,
            String,
            String,
        );
        let dialect = self.pool.dialect();
        let (rows, balances): (Vec<Columns>, Vec<(String, String, i64)>) = each!(&self.pool, pool => (
            sqlx::query_as(dialect.sql(sql::JOURNAL)).fetch_all(pool).await?,
            sqlx::query_as(dialect.sql(sql::BALANCES)).fetch_all(pool).await?,
        ));
        let rows = rows.into_iter().map(
            |(kind, merchant, id, payment, from, to, amount, currency, movement)| Row {
                kind: match kind.as_str() {
                    "payment" => Kind::Payment,
                    _ => Kind::Refund,
                },
                merchant,
                id,
                payment,
                from,
                to,
                amount: amount.unsigned_abs(),
                currency,
                movement,
            },
        );
        let balances = balances.into_iter();
        let balances = balances.map(|(account, currency, sum)| ((account, currency), sum));
        Ok(Books::new(rows.collect(), balances.collect()))
    }
}

/// Balance changes of the two accounts, always ordered by name: two transactions that lock
/// the same accounts in different orders wait for each other, until the database aborts one of them.
fn changes(row: &Row) -> [(&str, i64); 2] {
    let amount = row.amount.cast_signed();
    let mut changes = [(row.from.as_str(), -amount), (row.to.as_str(), amount)];
    changes.sort_unstable();
    changes
}

/// Seconds since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}
