//! An order's status changes in allowed steps, each once. Every repeat gets the first answer.
//!
//! `cargo run --example order_status` pays, cancels and ships 80 orders on `PostgreSQL` (`DATABASE_URL`, or one of its
//! own): every request is sent three times, payment and cancellation of an order at once, by 100 callers on a pool of
//! 10 connections, and one commit of 40 fails. The status is changed by compare-and-set (`SET status = new WHERE status
//! = old`), in the transaction of idem's record. The compare-and-set alone lets no step happen twice: `--unprotected`
//! (debug builds) shows that the repeat of a payment is then told that it is forbidden, and exits with 1.

use std::process::ExitCode;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use clap::Parser as _;
use idem_examples::scenario::{Books, Load, Options, Server, count, hammer};
use idem_runtime::{Classify, Engine, Error, idempotent};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, PgTransaction};

const ORDERS: i64 = 80;

const SCHEMA: &str = "
DROP SCHEMA IF EXISTS idem_status CASCADE;
CREATE SCHEMA idem_status;
CREATE TABLE idem_status.orders (number bigint PRIMARY KEY, status text NOT NULL);
CREATE TABLE idem_status.steps (number bigint NOT NULL, status text NOT NULL);
INSERT INTO idem_status.orders SELECT number, 'new' FROM generate_series(1, 80) number";

static BODIES: AtomicI64 = AtomicI64::new(0);
static COMMITS: AtomicI64 = AtomicI64::new(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
enum Step {
    Pay,
    Cancel,
    Ship,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Classify)]
enum StepError {
    /// An answer: it stays, whatever the status becomes.
    #[class(business)]
    Forbidden,
    /// Nothing has happened, and a repeat runs.
    #[class(system)]
    Database,
    #[class(delegate)]
    Idempotency(Error),
}

impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        Self::Idempotency(error)
    }
}

impl From<sqlx::Error> for StepError {
    fn from(_: sqlx::Error) -> Self {
        Self::Database
    }
}

/// A request of a client, which numbers its requests about an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
struct Request {
    order: i64,
    number: u32,
    step: Step,
}

// A repeat has the number of its request; a new number looks at the order again.
#[idempotent(op = "orders.step", key = (request.order, request.number), ttl = forever, tx = tx)]
async fn take_step(tx: &mut PgTransaction<'_>, request: Request) -> Result<(), StepError> {
    BODIES.fetch_add(1, Relaxed);
    let (from, to) = match request.step {
        Step::Pay => ("new", "paid"),
        Step::Cancel => ("new", "cancelled"),
        Step::Ship => ("paid", "shipped"),
    };
    let update = "UPDATE idem_status.orders SET status = $3 WHERE number = $1 AND status = $2";
    let update = sqlx::query(update).bind(request.order).bind(from).bind(to);
    if update.execute(&mut **tx).await?.rows_affected() == 0 {
        return Err(StepError::Forbidden);
    }
    let insert = sqlx::query("INSERT INTO idem_status.steps VALUES ($1, $2)");
    insert
        .bind(request.order)
        .bind(to)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// The call in its own transaction, repeated until it has an answer.
async fn send((engine, pool): (Engine, PgPool), request: Request) -> Result<(), StepError> {
    loop {
        let mut tx = pool.begin().await?;
        let answer = engine.scope(take_step(&mut tx, request)).await;
        match &answer {
            // A crash before one commit of 40: dropped, and thereby rolled back.
            _ if COMMITS.fetch_add(1, Relaxed) % 40 == 39 => {}
            // A deadlock, or another transaction that takes long: dropped, and called again in a new one.
            Err(StepError::Idempotency(e)) if e.is_retryable() => {}
            Err(StepError::Database) => tx.commit().await?,
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
    let (_server, pool, store) = Server::with_tables(SCHEMA, "idem_status.records", 10).await?;
    let shop = (options.engine(store), pool.clone());
    // Each order's steps three times, interleaved.
    let send_all = async |what, steps: &[(u32, Step)]| {
        let steps = steps.repeat(3);
        let each = |order| {
            steps.iter().map(move |&(number, step)| Request {
                order,
                number,
                step,
            })
        };
        let requests = (1..=ORDERS).flat_map(each).collect();
        hammer(what, 100, requests, shop.clone(), send).await
    };
    let early = send_all("ship before the payment", &[(1, Step::Ship)]).await;
    let race = send_all("pay and cancel", &[(2, Step::Pay), (3, Step::Cancel)]).await;
    let late = send_all("repeat the early shipment", &[(1, Step::Ship)]).await;
    let sent = send_all("ship", &[(4, Step::Ship)]).await;

    let paid = count(
        &pool,
        "SELECT count(*) FROM idem_status.steps WHERE status = 'paid'",
    )
    .await?;
    let shipped = "SELECT count(*) FROM idem_status.orders WHERE status = 'shipped'";
    let shipped = count(&pool, shipped).await?;
    let rows = count(&pool, "SELECT count(*) FROM idem_status.steps").await?;
    let twice = "SELECT count(*) - count(DISTINCT (number, status)) FROM idem_status.steps";
    let twice = count(&pool, twice).await?;
    let forbidden = |answer: &Result<_, _>| *answer == Err(StepError::Forbidden);
    let loads = [&early, &race, &late, &sent];
    let others = loads.map(Load::contradictions).iter().sum();
    let mut books = Books::new("order status: 80 orders, each request 3 times");
    books
        .check("steps of orders paid or cancelled", rows - shipped, ORDERS)
        .check("steps that happened twice", twice, 0)
        .check("shipped orders, of the paid ones", shipped, paid)
        .check(
            "told to payments and cancellations: done",
            race.count(Result::is_ok),
            3 * ORDERS,
        )
        .check(
            "told to early shipments: forbidden",
            early.count(forbidden),
            3 * ORDERS,
        )
        .check(
            "told to their repeats after the payment: forbidden",
            late.count(forbidden),
            3 * ORDERS,
        )
        .check(
            "told to new shipments: done",
            sent.count(Result::is_ok),
            3 * paid,
        )
        .check("repeats with another answer", others, 0)
        .note("bodies", BODIES.load(Relaxed))
        .note("payment and cancellation at once", "");
    race.speed(&mut books);
    Ok(books.close())
}
