//! The service's books in a database: movements and balances.
//!
//! On purpose they have no unique key and no check for repeats: each row that is written is money. Where idem's
//! records are in the same database, [`Ledger::book`] is idempotent itself: row, balances and the record of the call
//! are committed together or not at all, so that a booking is written once, whenever the process dies. Elsewhere the
//! books are in memory, and the attribute of the caller has to ensure that money moves once.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use idem_runtime::{Engine, FOREVER};
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};

use super::error::PayError;
use super::provider::{Kind, Movement};
use super::sql::{self, Dialect};

/// Number of concurrent bookings. The records have connections of their own.
const CONNECTIONS: u32 = 8;

/// A pool of one of the databases.
#[derive(Clone, Debug)]
pub enum AnyPool {
    /// A file, or memory.
    Sqlite(SqlitePool),
    /// PostgreSQL.
    Postgres(PgPool),
    /// MySQL or MariaDB.
    MySql(MySqlPool),
}

/// State of a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It does not exist (yet).
    Nothing,
    /// The provider refused it.
    Refused,
    /// It was booked with this charge.
    Paid(String),
}

/// Rows and balances.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// Every movement, in order.
    pub journal: Vec<Movement>,
    /// Balance of each account, by account and currency.
    pub balances: BTreeMap<(String, String), i64>,
    /// Number of rows that an earlier run wrote.
    pub earlier: u64,
    /// Bookings of this run whose row existed already: replays of [`Ledger::book`].
    pub again: u64,
}

/// The books, and the pool to reach them.
#[derive(Debug)]
pub struct Ledger {
    pool: AnyPool,
    /// The prefix of the records of the run that the books belong to. It may continue in many processes.
    pub prefix: String,
    /// Time since the run began.
    pub age: Duration,
    /// Number of rows when it was opened.
    pub earlier: u64,
    again: AtomicU64,
}

/// A future that is declared `Send`: the compiler cannot prove that of the code shared by
/// three databases (<https://github.com/rust-lang/rust/issues/100013>).
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

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
        let insert = sqlx::query($dialect.sql(sql::ROW)).bind(word($row.kind));
        let insert = insert.bind(&$row.merchant).bind(&$row.id).bind(&$row.number);
        let insert = insert.bind(&$row.charge).bind(&$row.card);
        let insert = insert.bind($row.amount.cast_signed()).bind(&$row.currency);
        insert.execute(&mut **$tx).await?;
        // Ordered by name: two transactions that lock the same accounts in different orders wait for each other,
        // until the database aborts one of them.
        for (account, change) in $row.changes() {
            let add = sqlx::query($dialect.sql(sql::ADD)).bind(account);
            let add = add.bind(&$row.currency).bind(change);
            add.execute(&mut **$tx).await?;
        }
        let number = sqlx::query_scalar($dialect.sql(sql::NUMBER)).bind(&$row.number);
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
    pub async fn sqlite(file: &Path) -> Result<Self, sqlx::Error> {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            // Same mode as the store: readers do not wait for the writer.
            .journal_mode(SqliteJournalMode::Wal);
        // A file has one writer at a time anyway.
        let pool = SqlitePoolOptions::new().max_connections(2);
        Ok(Self::Sqlite(pool.connect_with(options).await?))
    }

    /// Books that end with the process.
    ///
    /// # Errors
    ///
    /// sqlx's.
    pub async fn memory() -> Result<Self, sqlx::Error> {
        // They end with their only connection, which therefore stays.
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .idle_timeout(None)
            .max_lifetime(None);
        Ok(Self::Sqlite(pool.connect("sqlite::memory:").await?))
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

    async fn create(&self, anew: bool) -> Result<(), sqlx::Error> {
        let drop = Dialect::drop().filter(|_| anew);
        for statement in drop.chain(self.dialect().create()) {
            each!(self, pool => sqlx::query(statement).execute(pool).await.map(|_| ()))?;
        }
        Ok(())
    }

    /// The prefix of the run of these books, and its age.
    async fn run(&self) -> Result<Option<(String, Duration)>, sqlx::Error> {
        let text = self.dialect().sql(sql::RUN);
        let begun: Option<(String, i64)> =
            each!(self, pool => sqlx::query_as(text).fetch_optional(pool).await)?;
        Ok(begun.map(|(prefix, begun)| {
            (
                prefix,
                Duration::from_secs(now().saturating_sub(begun.unsigned_abs())),
            )
        }))
    }
}

impl Ledger {
    /// Opens the existing books, or new ones of this prefix. With `fresh`, and after `lapse`, they are new:
    /// then the records of the old ones begin to expire, and their content can no longer be checked.
    ///
    /// # Errors
    ///
    /// sqlx's.
    pub async fn open(
        pool: AnyPool,
        new: String,
        fresh: bool,
        lapse: Duration,
    ) -> Result<Self, sqlx::Error> {
        pool.create(fresh).await?;
        let mut run = pool.run().await?;
        if run.as_ref().is_some_and(|(_, age)| *age > lapse) {
            pool.create(true).await?;
            run = None;
        }
        let dialect = pool.dialect();
        let (prefix, age) = if let Some(run) = run {
            run
        } else {
            let text = dialect.sql(sql::BEGIN_RUN);
            each!(&pool, pool => {
                let insert = sqlx::query(text).bind(&new).bind(now().cast_signed());
                insert.execute(pool).await.map(drop)
            })?;
            (new, Duration::ZERO)
        };
        let rows: i64 =
            each!(&pool, pool => sqlx::query_scalar(dialect.sql(sql::ROWS)).fetch_one(pool).await)?;
        Ok(Self {
            pool,
            prefix,
            age,
            earlier: rows.unsigned_abs(),
            again: AtomicU64::new(0),
        })
    }

    /// Moves money, and returns the number of the row. With an engine, whose records are in the same database, it does
    /// so once for each movement: a repeat, in this process or after a crash, gets the number of the same row. With
    /// `fails` it fails after all is written.
    ///
    /// # Errors
    ///
    /// [`PayError::Database`] and idem's own; nothing was written, unless the reply to the commit was
    /// lost, and then the next call detects that.
    #[must_use]
    pub fn book<'a>(
        &'a self,
        engine: Option<&'a Engine>,
        row: &'a Movement,
        fails: bool,
    ) -> Boxed<'a, Result<usize, PayError>> {
        Box::pin(async move {
            let dialect = self.pool.dialect();
            let mut now = false;
            let number: u64 = each!(&self.pool, pool => if let Some(engine) = engine {
                let mut conn = pool.acquire().await?;
                // A connection without a transaction: idem begins one, and commits it.
                engine
                    .operation("payments.book")
                    .key(&row.number)
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
            } else {
                now = true;
                let mut tx = pool.begin().await?;
                let open = &mut tx;
                let number = insert!(open, dialect, row);
                if fails {
                    return Err(PayError::Database);
                }
                tx.commit().await?;
                Ok(number)
            })?;
            self.again.fetch_add(u64::from(!now), Ordering::Relaxed);
            Ok(usize::try_from(number).unwrap_or_default())
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
            each!(&self.pool, pool => sqlx::query(text).bind(merchant).bind(payment).execute(pool).await.map(drop))
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
            let paid: Option<String> = each!(&self.pool, pool => {
                let paid = sqlx::query_scalar(dialect.sql(sql::PAID)).bind(merchant).bind(payment);
                paid.fetch_optional(pool).await
            })?;
            if let Some(charge) = paid {
                return Ok(Found::Paid(charge));
            }
            let refused: i64 = each!(&self.pool, pool => {
                let refused = sqlx::query_scalar(dialect.sql(sql::REFUSED)).bind(merchant).bind(payment);
                refused.fetch_one(pool).await
            })?;
            Ok(if refused == 0 {
                Found::Nothing
            } else {
                Found::Refused
            })
        })
    }

    /// All rows and balances.
    ///
    /// # Errors
    ///
    /// sqlx's.
    pub async fn books(&self) -> Result<Books, sqlx::Error> {
        type Columns = (String, String, String, String, String, String, i64, String);
        let dialect = self.pool.dialect();
        let (rows, balances): (Vec<Columns>, Vec<(String, String, i64)>) = each!(&self.pool, pool => (
            sqlx::query_as(dialect.sql(sql::JOURNAL)).fetch_all(pool).await?,
            sqlx::query_as(dialect.sql(sql::BALANCES)).fetch_all(pool).await?,
        ));
        let row =
            |(kind, merchant, id, number, charge, card, amount, currency): Columns| Movement {
                kind: if kind == word(Kind::Payment) {
                    Kind::Payment
                } else {
                    Kind::Refund
                },
                merchant,
                id,
                number,
                charge,
                card,
                amount: amount.unsigned_abs(),
                currency,
            };
        let balances = balances.into_iter();
        Ok(Books {
            journal: rows.into_iter().map(row).collect(),
            balances: balances
                .map(|(account, currency, sum)| ((account, currency), sum))
                .collect(),
            earlier: self.earlier,
            again: self.again.load(Ordering::Relaxed),
        })
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Payment => "payment",
        Kind::Refund => "refund",
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}
