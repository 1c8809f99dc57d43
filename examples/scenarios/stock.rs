//! Stock without oversell, three ways.
//!
//! `cargo run --example stock` sells 100 pieces to 150 orders, each placed three times, on `PostgreSQL` (`DATABASE_URL`,
//! or one of its own), with 100 callers on a pool of 10 connections: by a lock on the row (`FOR UPDATE`), by a version
//! that is compared, and by one conditional update. Stock, order and idem's record are one transaction, and one commit
//! of 40 fails. No way oversells without idem either: `--unprotected` (debug builds) shows that the repeats are then
//! orders of their own, and exits with 1.

use std::hash::{BuildHasher as _, RandomState};
use std::process::ExitCode;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use clap::Parser as _;
use idem_examples::scenario::{Books, Options, Server, count, hammer};
use idem_runtime::{Classify, Engine, Error, idempotent};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, PgTransaction};

const PIECES: i64 = 100;
const ORDERS: i64 = 150;
const CALLERS: usize = 100;

/// No unique index on the number: the books show idem's effect.
const SCHEMA: &str = "
DROP SCHEMA IF EXISTS idem_stock CASCADE;
CREATE SCHEMA idem_stock;
CREATE TABLE idem_stock.stock (article text PRIMARY KEY, pieces bigint NOT NULL, version bigint NOT NULL DEFAULT 0);
INSERT INTO idem_stock.stock VALUES ('tea', 0);
CREATE TABLE idem_stock.orders (way text NOT NULL, number bigint NOT NULL)";

/// Versions that had changed before the update.
static RETRIES: AtomicI64 = AtomicI64::new(0);
static COMMITS: AtomicI64 = AtomicI64::new(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
enum Way {
    Lock,
    Version,
    Condition,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Classify)]
enum StockError {
    /// An answer: it stays.
    #[class(business)]
    SoldOut,
    /// Nothing has happened, and a repeat runs.
    #[class(system)]
    Database,
    #[class(delegate)]
    Idempotency(Error),
}

impl From<Error> for StockError {
    fn from(error: Error) -> Self {
        Self::Idempotency(error)
    }
}

impl From<sqlx::Error> for StockError {
    fn from(_: sqlx::Error) -> Self {
        Self::Database
    }
}

/// The row is locked until the commit: others wait.
async fn lock(tx: &mut PgTransaction<'_>) -> Result<(), StockError> {
    let pieces = "SELECT pieces FROM idem_stock.stock WHERE article = 'tea' FOR UPDATE";
    let pieces: i64 = sqlx::query_scalar(pieces).fetch_one(&mut **tx).await?;
    if pieces < 1 {
        return Err(StockError::SoldOut);
    }
    let update = "UPDATE idem_stock.stock SET pieces = pieces - 1 WHERE article = 'tea'";
    sqlx::query(update).execute(&mut **tx).await?;
    Ok(())
}

/// The update is made if the row is as it was read; otherwise it is read again, after a random pause.
async fn version(tx: &mut PgTransaction<'_>) -> Result<(), StockError> {
    for attempt in 1..=200 {
        let read = "SELECT pieces, version FROM idem_stock.stock WHERE article = 'tea'";
        let (pieces, version): (i64, i64) = sqlx::query_as(read).fetch_one(&mut **tx).await?;
        if pieces < 1 {
            return Err(StockError::SoldOut);
        }
        let update = "UPDATE idem_stock.stock SET pieces = pieces - 1, version = version + 1 \
                      WHERE article = 'tea' AND version = $1";
        let updated = sqlx::query(update).bind(version).execute(&mut **tx).await?;
        if updated.rows_affected() == 1 {
            return Ok(());
        }
        RETRIES.fetch_add(1, Relaxed);
        let jitter = RandomState::new().hash_one(attempt) % (1_000 * attempt.min(10));
        tokio::time::sleep(Duration::from_micros(jitter)).await;
    }
    Err(StockError::Database)
}

/// One statement checks and takes.
async fn condition(tx: &mut PgTransaction<'_>) -> Result<(), StockError> {
    let update =
        "UPDATE idem_stock.stock SET pieces = pieces - 1 WHERE article = 'tea' AND pieces >= 1";
    let updated = sqlx::query(update).execute(&mut **tx).await?;
    (updated.rows_affected() == 1)
        .then_some(())
        .ok_or(StockError::SoldOut)
}

#[idempotent(op = "orders.create", key = (way, number), ttl = forever, tx = tx)]
async fn create(tx: &mut PgTransaction<'_>, way: Way, number: i64) -> Result<i64, StockError> {
    match way {
        Way::Lock => lock(tx).await?,
        Way::Version => version(tx).await?,
        Way::Condition => condition(tx).await?,
    }
    let insert = sqlx::query("INSERT INTO idem_stock.orders VALUES ($1, $2)");
    insert
        .bind(format!("{way:?}"))
        .bind(number)
        .execute(&mut **tx)
        .await?;
    Ok(number)
}

/// One request: the call in a transaction of its own, until there is an answer.
async fn request(shop: (Engine, PgPool), way: Way, number: i64) -> Result<i64, StockError> {
    loop {
        let mut tx = shop.1.begin().await?;
        let answer = shop.0.scope(create(&mut tx, way, number)).await;
        match &answer {
            // A crash before one commit of 40: dropped, and thereby rolled back.
            _ if COMMITS.fetch_add(1, Relaxed) % 40 == 39 => {}
            // A deadlock, or another transaction that takes long: dropped, and called again in a new one.
            Err(StockError::Idempotency(e)) if e.is_retryable() => {}
            Err(StockError::Database) => tx.commit().await?,
            // An error is committed as well: a business error is an answer.
            _ => {
                tx.commit().await?;
                return answer;
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let options = Options::parse();
    let (_server, pool, store) = Server::with_tables(SCHEMA, "idem_stock.records", 10).await?;
    let engine = options.engine(store);
    let mut books = Books::new("stock: 100 pieces, 150 orders, each placed 3 times");
    for (what, way) in [
        ("lock", Way::Lock),
        ("version", Way::Version),
        ("condition", Way::Condition),
    ] {
        let fill = "UPDATE idem_stock.stock SET pieces = $1";
        sqlx::query(fill).bind(PIECES).execute(&pool).await?;
        let (calls, shop) = (
            (0..ORDERS).flat_map(|number| [number; 3]),
            (engine.clone(), pool.clone()),
        );
        let load = hammer(what, CALLERS, calls.collect(), shop, move |shop, number| {
            request(shop, way, number)
        })
        .await;
        let orders =
            "SELECT count(*), count(DISTINCT number) FROM idem_stock.orders WHERE way = $1";
        let orders = sqlx::query_as(orders).bind(format!("{way:?}"));
        let (orders, numbers): (i64, i64) = orders.fetch_one(&pool).await?;
        let left = count(&pool, "SELECT pieces FROM idem_stock.stock").await?;
        let errors = load.count(|answer| !matches!(answer, Ok(_) | Err(StockError::SoldOut)));
        books
            .note(what, "")
            .check("  orders", orders, PIECES)
            .check("  numbers with an order", numbers, PIECES)
            .check("  pieces left", left, 0)
            .check("  repeats with another answer", load.contradictions(), 0)
            .check("  other errors", errors, 0);
        load.speed(&mut books);
    }
    books.note("versions that had changed", RETRIES.load(Relaxed));
    Ok(books.close())
}
