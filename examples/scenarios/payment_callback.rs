//! A payment provider repeats its notifications. Each is booked once and answered with SUCCESS.
//!
//! `cargo run --example payment_callback` sends the notifications of 80 payments and 20 refunds five times each, at
//! once and out of order, to a handler on `PostgreSQL` (`DATABASE_URL`, or a server of its own), which fails now and
//! then. Notifications without SUCCESS are sent again later, and in the end all once more.
//!
//! The database guards the rows: the state changes by compare-and-set, and a payment has one row. What idem adds is
//! the answer. `--unprotected` loses no money for that reason: it answers repeats with FAIL, so that the provider never
//! stops, and exits with 1.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};

use clap::Parser as _;
use idem_examples::scenario::{Books, Options, Server};
use idem_runtime::{Classify, Error, idempotent};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, PgTransaction};
use tokio::task::JoinSet;

const SCHEMA: &str = "
DROP SCHEMA IF EXISTS idem_callback CASCADE;
CREATE SCHEMA idem_callback;
CREATE TABLE idem_callback.orders (number text PRIMARY KEY, cents bigint NOT NULL, state text NOT NULL);
CREATE TABLE idem_callback.payments (
    payment_id text, event text, number text NOT NULL REFERENCES idem_callback.orders, cents bigint NOT NULL,
    PRIMARY KEY (payment_id, event));
INSERT INTO idem_callback.orders SELECT 'order-' || n, 1000 + n, 'WAIT_PAY' FROM generate_series(0, 79) n";

const ORDERS: u32 = 80;
const REFUNDS: u32 = 20;
const REPEATS: usize = 5;
const ROUNDS: u32 = 8;

static BODIES: AtomicU32 = AtomicU32::new(0);
static TOO_EARLY: AtomicU32 = AtomicU32::new(0);
static ANSWERS: AtomicU32 = AtomicU32::new(0);

#[derive(Clone, Copy, Debug, Serialize)]
enum Event {
    Paid,
    Refunded,
}

#[derive(Clone, Debug, Serialize)]
struct Notification {
    out_trade_no: String,
    event: Event,
    payment_id: String,
    cents: i64,
    /// Another one in each repeat.
    sent_at: usize,
}

#[derive(Debug, Serialize, Deserialize, Classify)]
enum CallbackError {
    /// Not kept, although a repeat fares no better: a kept refusal would bind the number to this amount, and the
    /// notification with the right one would be refused.
    #[class(system)]
    WrongAmount,
    /// A refund that came before its payment: the provider sends it again.
    #[class(system)]
    WrongState,
    #[class(system)]
    Database,
    #[class(delegate)]
    Idempotency(Error),
}

impl From<Error> for CallbackError {
    fn from(error: Error) -> Self {
        Self::Idempotency(error)
    }
}

impl From<sqlx::Error> for CallbackError {
    fn from(_: sqlx::Error) -> Self {
        Self::Database
    }
}

// The provider gives up after less than a day. `sent_at` is not compared.
#[idempotent(op = "payments.notified", key = (&it.out_trade_no, it.event), fingerprint(it.payment_id, it.cents),
    ttl = "24h", tx = tx)]
async fn notified(tx: &mut PgTransaction<'_>, it: Notification) -> Result<(), CallbackError> {
    let body = BODIES.fetch_add(1, Ordering::Relaxed);
    let (from, to) = match it.event {
        Event::Paid => ("WAIT_PAY", "PAID"),
        Event::Refunded => ("PAID", "REFUNDED"),
    };
    let cents = "SELECT cents FROM idem_callback.orders WHERE number = $1";
    let cents = sqlx::query_scalar(cents).bind(&it.out_trade_no);
    let cents: i64 = cents.fetch_one(&mut **tx).await?;
    if cents != it.cents {
        return Err(CallbackError::WrongAmount);
    }
    let set = "UPDATE idem_callback.orders SET state = $1 WHERE number = $2 AND state = $3";
    let set = sqlx::query(set).bind(to).bind(&it.out_trade_no).bind(from);
    if set.execute(&mut **tx).await?.rows_affected() == 0 {
        TOO_EARLY.fetch_add(1, Ordering::Relaxed);
        return Err(CallbackError::WrongState);
    }
    let insert = "INSERT INTO idem_callback.payments VALUES ($1, $2, $3, $4)";
    let insert = sqlx::query(insert).bind(&it.payment_id).bind(to);
    let insert = insert.bind(&it.out_trade_no).bind(it.cents);
    insert.execute(&mut **tx).await?;
    if body.is_multiple_of(6) {
        return Err(CallbackError::Database); // after all writes
    }
    Ok(())
}

/// The endpoint, after a check of the signature: `Ok` is the answer SUCCESS, and an error is FAIL.
async fn endpoint(pool: &PgPool, it: Notification) -> Result<(), CallbackError> {
    let mut tx = pool.begin().await?;
    let booked = notified(&mut tx, it).await;
    if ANSWERS.fetch_add(1, Ordering::Relaxed).is_multiple_of(9) {
        return Err(CallbackError::Database); // the process dies before the commit
    }
    match &booked {
        Err(CallbackError::Idempotency(error)) if error.is_retryable() => {}
        _ => tx.commit().await?,
    }
    booked
}

/// Sends all notifications at once, and returns those answered with FAIL.
async fn send(pool: &PgPool, all: Vec<Notification>) -> Vec<Notification> {
    let mut calls = JoinSet::new();
    for it in all {
        let pool = pool.clone();
        calls.spawn(async move { (it.clone(), endpoint(&pool, it).await) });
    }
    let answers = calls.join_all().await.into_iter();
    let failed = answers.filter(|(_, answer)| answer.is_err());
    failed.map(|(it, _)| it).collect()
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let options = Options::parse();
    let (_server, pool, store) = Server::with_tables(SCHEMA, "idem_callback.records", 20).await?;
    options.engine(store).install()?;

    let each = (0..ORDERS + REFUNDS).map(|n| Notification {
        out_trade_no: format!("order-{}", n % ORDERS),
        event: [Event::Paid, Event::Refunded][(n / ORDERS) as usize],
        payment_id: format!("payment-{}", n % ORDERS),
        cents: 1_000 + i64::from(n % ORDERS),
        sent_at: 0,
    });
    let each: Vec<_> = each.collect();
    let mut other = each.clone();
    for it in &mut other {
        it.cents += 1;
    }
    let refused_before = send(&pool, other.clone()).await.len();
    BODIES.store(0, Ordering::Relaxed);

    // In an order like that of dealt cards: repeats before others, refunds before their payments.
    let notifications = each.len() * REPEATS;
    let mut open = Vec::new();
    for sent_at in (0..notifications).map(|n| n * 7_919 % notifications) {
        let it = each[sent_at % each.len()].clone();
        open.push(Notification { sent_at, ..it });
    }
    let mut sent = 0;
    for _ in 0..ROUNDS {
        sent += open.len();
        open = send(&pool, open).await;
    }
    let bodies = BODIES.load(Ordering::Relaxed);
    let too_early = TOO_EARLY.load(Ordering::Relaxed);
    let mut late = each.clone();
    for _ in 0..ROUNDS {
        late = send(&pool, late).await;
    }
    let late_bodies = BODIES.load(Ordering::Relaxed) - bodies;
    let refused_after = send(&pool, other).await.len();

    let states = "SELECT count(*) FILTER (WHERE state = 'PAID'), count(*) FILTER (WHERE state = 'REFUNDED') \
                  FROM idem_callback.orders";
    let states: (i64, i64) = sqlx::query_as(states).fetch_one(&pool).await?;
    let rows = "SELECT count(*), sum(cents)::bigint FROM idem_callback.payments";
    let (rows, cents): (i64, i64) = sqlx::query_as(rows).fetch_one(&pool).await?;
    let (all, sum) = (each.len(), each.iter().map(|it| it.cents).sum());
    let mut books = Books::new("payment_callback: PostgreSQL");
    books
        .check("orders paid", states.0, (ORDERS - REFUNDS).into())
        .check("orders refunded", states.1, REFUNDS.into())
        .check("payments and refunds", rows, (ORDERS + REFUNDS).into())
        .check("  their cents", cents, sum)
        .check("notifications not yet answered with SUCCESS", open.len(), 0)
        .check("late repeats not answered with SUCCESS", late.len(), 0)
        .check("  bodies that they ran", late_bodies, 0)
        .check("other amounts refused before", refused_before, all)
        .check("other amounts refused afterwards", refused_after, all)
        .note("notifications", notifications)
        .note("  sent until SUCCESS", sent)
        .note("  bodies run", bodies)
        .note("  answered with FAIL: too early", too_early)
        .remark_if(
            options.unprotected,
            "The rows are right by compare-and-set and a primary key. The answers are wrong: the provider gets FAIL for a payment that is booked, and never stops.",
        );
    Ok(books.close())
}
