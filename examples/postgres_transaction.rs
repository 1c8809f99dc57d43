//! Order, stock and answer, committed in one transaction of `PostgreSQL`.
//!
//! `DATABASE_URL=postgres://user:password@127.0.0.1/database cargo run --example postgres_transaction`
//! prints:
//!
//! ```text
//! order-7: a crash before the commit
//!     (the body runs)
//!     not ordered: Database
//! order-7: its retry
//!     (the body runs)
//!     ordered, 0 left
//! order-7: a duplicate
//!     ordered, 0 left
//! order-8: the stock is empty
//!     (the body runs)
//!     not ordered: SoldOut
//! order-8: a duplicate
//!     not ordered: SoldOut
//! rows in the table of orders: 1
//! ```

#![allow(clippy::print_stdout, reason = "the program shows its answers")]

use std::process::ExitCode;

use idem_runtime::store::sql::PostgresStore;
use idem_runtime::{Classify, Engine, ErrorKind, idempotent};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, PgTransaction};

const USAGE: &str = "\
postgres_transaction: DATABASE_URL is not set. Start a server with
docker run -p 5432:5432 -e POSTGRES_PASSWORD=secret postgres
and then
DATABASE_URL=postgres://postgres:secret@127.0.0.1/postgres cargo run --example postgres_transaction";

/// The schema of all tables, idem's records included: new for each run.
const SCHEMA: &str = "
DROP SCHEMA IF EXISTS idem_example CASCADE;
CREATE SCHEMA idem_example;
CREATE TABLE idem_example.stock (article text PRIMARY KEY, pieces int NOT NULL);
CREATE TABLE idem_example.orders (number text PRIMARY KEY, article text NOT NULL);
INSERT INTO idem_example.stock VALUES ('tea', 1)";

#[derive(Serialize)]
struct NewOrder {
    number: &'static str,
    article: &'static str,
}

#[derive(Serialize, Deserialize)]
struct Order {
    pieces_left: i32,
}

#[derive(Debug, Serialize, Deserialize, Classify)]
enum OrderError {
    /// An answer: it is committed and replayed, without the writes of the body.
    #[class(business)]
    SoldOut,
    /// The claim and the body's writes are undone; a repeat runs the body.
    #[class(system)]
    Database,
    /// A refusal by idem.
    #[class(delegate)]
    Idempotency(idem_runtime::Error),
}

impl From<idem_runtime::Error> for OrderError {
    fn from(error: idem_runtime::Error) -> Self {
        Self::Idempotency(error)
    }
}

impl From<sqlx::Error> for OrderError {
    fn from(error: sqlx::Error) -> Self {
        eprintln!("postgres_transaction: {error}");
        Self::Database
    }
}

#[idempotent(op = "orders.create", key = new.number, ttl = forever, tx = tx)]
async fn create(tx: &mut PgTransaction<'_>, new: NewOrder) -> Result<Order, OrderError> {
    println!("    (the body runs)");
    sqlx::query("INSERT INTO idem_example.orders (number, article) VALUES ($1, $2)")
        .bind(new.number)
        .bind(new.article)
        .execute(&mut **tx)
        .await?;
    let taken = sqlx::query_scalar(
        "UPDATE idem_example.stock SET pieces = pieces - 1 WHERE article = $1 AND pieces > 0 \
         RETURNING pieces",
    );
    let pieces_left = taken.bind(new.article).fetch_optional(&mut **tx).await?;
    // The inserted row is undone, and the error is the answer.
    let pieces_left = pieces_left.ok_or(OrderError::SoldOut)?;
    Ok(Order { pieces_left })
}

/// One request: the call in a transaction of its own, which `crash` drops before the commit.
async fn request(pool: &PgPool, number: &'static str, crash: bool) -> Result<Order, OrderError> {
    let article = "tea";
    let mut tx = pool.begin().await?;
    let order = create(&mut tx, NewOrder { number, article }).await;
    match &order {
        // Dropped, and thereby rolled back. The call may be repeated in a new transaction.
        Err(OrderError::Idempotency(e)) if *e.kind() == ErrorKind::TransactionAborted => {}
        _ if crash => return Err(OrderError::Database),
        // An error is committed as well: a business error is an answer.
        _ => tx.commit().await?,
    }
    order
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let Ok(url) = std::env::var("DATABASE_URL") else {
        eprintln!("{USAGE}");
        return Ok(ExitCode::from(2));
    };
    let pool = PgPool::connect(&url).await?;
    sqlx::raw_sql(SCHEMA).execute(&pool).await?;
    let store = PostgresStore::builder(&pool)
        .table("idem_example.records")
        .connect()
        .await?;
    store.migrate().await?;
    Engine::new(store).install()?;

    for (label, number, crash) in [
        ("a crash before the commit", "order-7", true),
        ("its retry", "order-7", false),
        ("a duplicate", "order-7", false),
        ("the stock is empty", "order-8", false),
        ("a duplicate", "order-8", false),
    ] {
        println!("{number}: {label}");
        match request(&pool, number, crash).await {
            Ok(order) => println!("    ordered, {} left", order.pieces_left),
            Err(error) => println!("    not ordered: {error:?}"),
        }
    }
    let orders: i64 = sqlx::query_scalar("SELECT count(*) FROM idem_example.orders")
        .fetch_one(&pool)
        .await?;
    println!("rows in the table of orders: {orders}");
    Ok(ExitCode::SUCCESS)
}
