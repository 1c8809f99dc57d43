//! An order is created once; every repeat gets its receipt.
//!
//! `cargo run --example order` creates orders of two partners in `PostgreSQL` (`DATABASE_URL`, or a server of its own).
//! Partners number their orders themselves: the partner is the scope, and the same number of two partners is two orders.
//! First each partner sends one order 500 times at once, then each of 50 orders ten times. Order, stock and answer
//! are one transaction; a fifth of the transactions is lost before its commit, and a seventh of the bodies fails. The
//! same runs on the unique index alone: the index protects the rows as well, but the answer to a repeat is read from the rows of that moment,
//! also for another amount.
//! `--unprotected` is a plain insert, and the program exits with 1. It loses no money, because the unique index keeps
//! the rows right: the loss is the answer. A repeat of an order that was created gets an error, and a customer who
//! believes it orders again under another number, which no index finds.

use std::collections::{HashMap, HashSet};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};

use clap::Parser as _;
use idem_examples::scenario::{Books, Options, Server, hammer};
use idem_runtime::{Classify, Error, ErrorKind, idempotent};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, PgTransaction};

const SCHEMA: &str = "
DROP SCHEMA IF EXISTS idem_order CASCADE;
CREATE SCHEMA idem_order;
CREATE TABLE idem_order.stock (pieces bigint NOT NULL);
INSERT INTO idem_order.stock VALUES (1000);
CREATE TABLE idem_order.orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, partner text NOT NULL, number text NOT NULL,
    cents bigint NOT NULL, UNIQUE (partner, number))";

/// The identity behind a credential. It stays when the partner gets a new credential, and so do its numbers.
const PARTNERS: [&str; 2] = ["north", "south"];

const CALLERS: u32 = 1_000;
const ORDERS: u32 = 100;
const PRICE: i64 = 1_250;
const ATTEMPTS: u32 = 20;

/// Counts what may fail.
static STEPS: AtomicU32 = AtomicU32::new(0);

#[derive(Clone, Copy, Debug)]
enum Way {
    Idem,
    Index,
}

#[derive(Clone, Debug, Serialize)]
struct NewOrder {
    partner: &'static str,
    number: String,
    cents: i64,
}

/// The id of the order, and the pieces left in stock: the answer of that moment.
type Receipt = (i64, i64);

#[derive(Debug, PartialEq, Serialize, Deserialize, Classify)]
enum OrderError {
    /// The last line of defence, the unique index: another order of the partner has this number.
    #[class(business)]
    NumberTaken,
    /// Nothing is committed, and the next call runs the body.
    #[class(system)]
    Database,
    #[class(delegate)]
    Idempotency(Error),
}

impl From<Error> for OrderError {
    fn from(error: Error) -> Self {
        Self::Idempotency(error)
    }
}

impl From<sqlx::Error> for OrderError {
    fn from(error: sqlx::Error) -> Self {
        match error.as_database_error() {
            Some(error) if error.is_unique_violation() => Self::NumberTaken,
            _ => Self::Database,
        }
    }
}

// An order number is never used again: the record stays.
#[idempotent(op = "orders.create", scope = order.partner, key = order.number, ttl = forever, tx = tx)]
async fn create(tx: &mut PgTransaction<'_>, order: NewOrder) -> Result<Receipt, OrderError> {
    let insert =
        "INSERT INTO idem_order.orders (partner, number, cents) VALUES ($1, $2, $3) RETURNING id";
    let insert = sqlx::query_scalar(insert)
        .bind(order.partner)
        .bind(order.number);
    let id = insert.bind(order.cents).fetch_one(&mut **tx).await?;
    Ok((id, take_piece(tx).await?))
}

/// The same by the unique index alone.
async fn create_plain(tx: &mut PgTransaction<'_>, order: NewOrder) -> Result<Receipt, OrderError> {
    let insert = "INSERT INTO idem_order.orders (partner, number, cents) VALUES ($1, $2, $3) \
                  ON CONFLICT (partner, number) DO NOTHING RETURNING id";
    let insert = sqlx::query_scalar(insert)
        .bind(order.partner)
        .bind(&order.number);
    if let Some(id) = insert.bind(order.cents).fetch_optional(&mut **tx).await? {
        return Ok((id, take_piece(tx).await?));
    }
    let find = "SELECT id, pieces FROM idem_order.orders, idem_order.stock WHERE partner = $1 AND number = $2";
    let find = sqlx::query_as(find).bind(order.partner).bind(&order.number);
    Ok(find.fetch_one(&mut **tx).await?)
}

async fn take_piece(tx: &mut PgTransaction<'_>) -> Result<i64, OrderError> {
    let take = "UPDATE idem_order.stock SET pieces = pieces - 1 RETURNING pieces";
    let left = sqlx::query_scalar(take).fetch_one(&mut **tx).await?;
    let fails = STEPS.fetch_add(1, Ordering::Relaxed).is_multiple_of(7);
    (!fails).then_some(left).ok_or(OrderError::Database)
}

/// One request of a caller, who asks again after a failure: each time in a transaction of its own.
async fn request(pool: &PgPool, order: NewOrder, way: Way) -> Result<Receipt, OrderError> {
    for _ in 0..ATTEMPTS {
        let mut tx = pool.begin().await?;
        let told = match way {
            Way::Idem => create(&mut tx, order.clone()).await,
            Way::Index => create_plain(&mut tx, order.clone()).await,
        };
        let lost = STEPS.fetch_add(1, Ordering::Relaxed).is_multiple_of(5);
        // A process that dies here leaves no rows, and no answer for the caller.
        // Nor is there anything to commit after these errors. A business error is an answer, and committed as well.
        let again = match &told {
            Err(OrderError::Database) => true,
            Err(OrderError::Idempotency(error)) => error.is_retryable(),
            Ok(_) | Err(OrderError::NumberTaken) => lost,
        };
        if !again && tx.commit().await.is_ok() {
            return told;
        }
    }
    Err(OrderError::Database)
}

/// All callers at once, then late repeats. The books get the callers' answers.
async fn load(pool: &PgPool, orders: u32, way: Way, books: &mut Books) -> sqlx::Result<()> {
    let send = async |what, callers, calls: u32, cents| {
        let calls = (0..calls).map(|call| call % orders).collect();
        hammer(
            what,
            callers,
            calls,
            pool.clone(),
            move |pool, number| async move {
                let order = NewOrder {
                    partner: PARTNERS[(number % 2) as usize],
                    number: format!("{orders} {way:?} {}", number / 2),
                    cents,
                };
                request(&pool, order, way).await
            },
        )
        .await
    };
    let many = send("orders", CALLERS as usize, CALLERS, PRICE).await;
    let late = send("late repeats", 1, ORDERS, PRICE).await;
    let other = send("other amounts", 1, ORDERS, PRICE + 1).await;
    let refused = other.count(|told| {
        matches!(told, Err(OrderError::Idempotency(error)) if *error.kind() == ErrorKind::Mismatch)
    });

    let rows = "SELECT count(*) FROM idem_order.orders WHERE number LIKE $1";
    let rows = sqlx::query_scalar(rows).bind(format!("{orders} {way:?} %"));
    let rows: i64 = rows.fetch_one(pool).await?;
    let mut receipts: HashMap<u32, HashSet<&Receipt>> = HashMap::new();
    let mut answered = 0;
    for (order, receipt) in many.answers.iter().chain(&late.answers) {
        answered += u32::from(receipt.is_ok());
        receipts
            .entry(*order)
            .or_default()
            .extend(receipt.as_ref().ok());
    }
    let several = receipts.values().filter(|told| told.len() > 1).count();
    let line = |what: &str| format!("{orders} by {way:?}: {what}");
    books.check(&line("rows"), rows, orders.into());
    books.check(&line("answered"), answered, CALLERS + ORDERS);
    let (two, other) = (line("told of two receipts"), line("other amounts refused"));
    match way {
        Way::Idem => books
            .check(&two, several, 0)
            .check(&other, refused, ORDERS.into()),
        Way::Index => books.note(&two, several).note(&other, refused),
    };
    books.note(&line("calls per second"), many.per_second());
    books.note(&line("a late repeat, µs"), late.within(50).as_micros());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let options = Options::parse();
    let (_server, pool, store) = Server::with_tables(SCHEMA, "idem_order.records", 20).await?;
    options.engine(store).install()?;

    let mut books = Books::new("order: PostgreSQL, in one transaction");
    for orders in [2, ORDERS] {
        load(&pool, orders, Way::Idem, &mut books).await?;
        load(&pool, orders, Way::Index, &mut books).await?;
    }
    let left = sqlx::query_scalar("SELECT pieces FROM idem_order.stock");
    let left: i64 = left.fetch_one(&pool).await?;
    books.check(
        "pieces taken from stock",
        1_000 - left,
        4 + 2 * i64::from(ORDERS),
    );
    books.remark_if(
        options.unprotected,
        "The rows are right by the unique index. The answers are wrong: a repeat of an order that exists gets an error.",
    );
    Ok(books.close())
}
