//! An order in a process that is killed after every step.
//!
//! `cargo run --example order_flow` orders six times, in `PostgreSQL` (`DATABASE_URL`, or a server of its own). One
//! function writes the order, charges the card, takes the piece from the stock, prints the label and sends the mail. Each
//! process aborts at the next point; the one after it gets the results of the finished steps, and runs the others. Order
//! and stock are rows of this database, and are committed together with their step. The bank and the printer are other
//! systems that guard nothing: after an interruption they are asked (`reconcile`). A mail cannot be looked for (`once`).
//! `--unprotected` shows the same without idem, and exits with 1.

use std::process::{Command, ExitCode};
use std::sync::OnceLock;
use std::{env, io};

use clap::Parser;
use idem_examples::scenario::{Books, Options, Server};
use idem_runtime::store::sql::PostgresStore;
use idem_runtime::token::{TokenIssuer, token};
use idem_runtime::{Classify, Error, Reconciled, idempotent, step, step_in_tx};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Executor, PgPool, PgTransaction};
use tokio::task::JoinSet;

const SCHEMA: &str = "
DROP SCHEMA IF EXISTS idem_flow CASCADE;
CREATE SCHEMA idem_flow;
CREATE TABLE orders (order_no text PRIMARY KEY DEFAULT gen_random_uuid(), customer int);
CREATE TABLE stock (pieces int CHECK (pieces >= 0));
INSERT INTO stock VALUES (100);
CREATE TABLE bank (charge bigint GENERATED ALWAYS AS IDENTITY, key text, cents bigint);
CREATE TABLE labels (label bigint GENERATED ALWAYS AS IDENTITY, key text);
CREATE TABLE mails (order_no text);
CREATE TABLE runs (what text);
CREATE VIEW books (what, counted, expected) AS
SELECT 'bodies of the function run', count(*), 66 FROM runs WHERE what = 'flow' UNION ALL
SELECT 'charges begun', count(*), 12 FROM runs WHERE what = 'charge' UNION ALL
SELECT 'questions to the bank', count(*), 12 FROM runs WHERE what = 'find charge' UNION ALL
SELECT 'questions to the printer', count(*), 6 FROM runs WHERE what = 'find label' UNION ALL
SELECT 'orders', count(*), 6 FROM orders UNION ALL
SELECT 'charges at the bank', count(*), 6 FROM bank UNION ALL
SELECT '  their cents', sum(cents), 7500 FROM bank UNION ALL
SELECT 'pieces left of 100', pieces, 94 FROM stock UNION ALL
SELECT 'labels', count(*), 6 FROM labels UNION ALL
SELECT 'mails', count(*), 6 FROM mails";

const POINTS: [&str; 10] = [
    "the order was written, not committed",
    "the order was committed",
    "the charge had begun",
    "the bank had charged, nothing was recorded",
    "the charge was recorded",
    "the piece was taken, not committed",
    "the piece was committed",
    "the label was printed, nothing was recorded",
    "the label was recorded",
    "the mail was recorded",
];

/// The point at which this process is killed.
static LAST: OnceLock<usize> = OnceLock::new();

fn reached(point: usize) {
    if LAST.get() == Some(&point) {
        std::process::abort(); // no destructor, no rollback, no release
    }
}

#[derive(Debug, Serialize, Deserialize, Classify)]
enum FlowError {
    #[class(business)]
    SoldOut,
    #[class(system)]
    Database,
    #[class(delegate)]
    Idempotency(Error),
}

impl From<Error> for FlowError {
    fn from(error: Error) -> Self {
        Self::Idempotency(error)
    }
}

impl From<sqlx::Error> for FlowError {
    fn from(_: sqlx::Error) -> Self {
        Self::Database
    }
}

/// The whole flow. The answer is the number of the label.
#[idempotent(op = "flow.order", key = token(form, user), ttl = forever, lease = "1s", max_attempts = 20)]
async fn order(#[idem(skip)] pool: &PgPool, form: &str, user: i32) -> Result<i64, FlowError> {
    ran(pool, "flow").await?;
    let mut tx = pool.begin().await?;
    let no: String = step_in_tx("order", &mut *tx, async |conn: &mut PgConnection, _| {
        let insert = "INSERT INTO orders (customer) VALUES ($1) RETURNING order_no";
        let insert = sqlx::query_scalar(insert).bind(user);
        Ok::<_, FlowError>(insert.fetch_one(conn).await?)
    })
    .await?;
    commit(tx, 0).await?;

    let charge = step("charge", async |s| charge(pool, &s.key(), 1_250).await);
    charge
        .reconcile(async |s| find_charge(pool, &s.key()).await)
        .await?;
    reached(4);

    let mut tx = pool.begin().await?;
    step_in_tx("stock", &mut *tx, async |conn: &mut PgConnection, _| {
        let take = sqlx::query("UPDATE stock SET pieces = pieces - 1 WHERE pieces > 0");
        match take.execute(conn).await?.rows_affected() {
            0 => Err(FlowError::SoldOut),
            _ => Ok(()),
        }
    })
    .await?;
    commit(tx, 5).await?;

    let label = step("label", async |s| print(pool, &s.key()).await);
    let label = label
        .reconcile(async |s| find_label(pool, &s.key()).await)
        .await?;
    reached(8);

    let mail = step("mail", async |_| {
        let mail = sqlx::query("INSERT INTO mails VALUES ($1)").bind(&no);
        mail.execute(pool).await?;
        Ok::<_, FlowError>(())
    });
    mail.once().await?;
    reached(9);
    Ok(label)
}

async fn ran(pool: &PgPool, what: &str) -> Result<(), FlowError> {
    let run = sqlx::query("INSERT INTO runs VALUES ($1)").bind(what);
    run.execute(pool).await?;
    Ok(())
}

async fn commit(tx: PgTransaction<'_>, point: usize) -> Result<(), FlowError> {
    reached(point);
    tx.commit().await?;
    reached(point + 1);
    Ok(())
}

async fn charge(pool: &PgPool, key: &str, cents: i64) -> Result<i64, FlowError> {
    ran(pool, "charge").await?;
    reached(2);
    let charge = "INSERT INTO bank (key, cents) VALUES ($1, $2) RETURNING charge";
    let charge = sqlx::query_scalar(charge).bind(key).bind(cents);
    let charge = charge.fetch_one(pool).await?;
    reached(3);
    Ok(charge)
}

async fn find_charge(pool: &PgPool, key: &str) -> Result<Reconciled<i64>, FlowError> {
    ran(pool, "find charge").await?;
    let find = sqlx::query_scalar("SELECT charge FROM bank WHERE key = $1");
    let found = find.bind(key).fetch_optional(pool).await?;
    Ok(found.map_or(Reconciled::NotLanded, Reconciled::Landed))
}

async fn print(pool: &PgPool, key: &str) -> Result<i64, FlowError> {
    let print = sqlx::query_scalar("INSERT INTO labels (key) VALUES ($1) RETURNING label");
    let label = print.bind(key).fetch_one(pool).await?;
    reached(7);
    Ok(label)
}

async fn find_label(pool: &PgPool, key: &str) -> Result<Reconciled<i64>, FlowError> {
    ran(pool, "find label").await?;
    let find = sqlx::query_scalar("SELECT label FROM labels WHERE key = $1");
    let found = find.bind(key).fetch_optional(pool).await?;
    Ok(found.map_or(Reconciled::NotLanded, Reconciled::Landed))
}

#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
    /// Of a child: its customer, the token of the form, and the point at which it is killed.
    #[arg(long, hide = true, num_args = 3, allow_hyphen_values = true)]
    child: Vec<String>,
}

/// Runs a flow in a child. Its exit code, unless it was killed.
fn start(user: i32, form: &str, last: usize, url: &str) -> io::Result<Option<i32>> {
    let mut child = Command::new(env::current_exe()?);
    child.env("DATABASE_URL", url).args(env::args_os().skip(1));
    child.args(["--child", &user.to_string(), form, &last.to_string()]);
    Ok(child.status()?.code())
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let args = Args::parse();
    let postgres = Server::postgres();
    let options: PgConnectOptions = postgres.url().parse()?;
    let pool = PgPool::connect_with(options.options([("search_path", "idem_flow")])).await?;
    if args.child.is_empty() {
        pool.execute(sqlx::raw_sql(SCHEMA)).await?;
    }
    let store = PostgresStore::connect(&pool).await?;
    store.migrate().await?;
    // At least 32 bytes from your secret store, the same in every process.
    let tokens = TokenIssuer::new([7; 32]);
    let engine = args.options.builder(store).tokens(tokens).build()?;
    engine.install()?;
    if let [user, form, last] = &*args.child {
        let _ = LAST.set(last.parse()?);
        let done = order(&pool, form, user.parse()?).await;
        return Ok(done.map_or(ExitCode::FAILURE, |_| ExitCode::SUCCESS));
    }

    // Each customer's flow is killed at each point, runs to its end, and runs once more.
    let mut customers = JoinSet::new();
    for customer in 0..6 {
        let form = engine.issue_token("flow.order", &customer)?;
        let url = postgres.url().to_owned();
        customers.spawn_blocking(move || {
            let runs = (0..POINTS.len() + 2).map(|last| start(customer, &form, last, &url));
            runs.collect::<io::Result<Vec<_>>>()
        });
    }
    let exits: io::Result<Vec<_>> = customers.join_all().await.into_iter().collect();
    let exits = exits?;

    let mut books = Books::new("order_flow: six flows, killed ten times each");
    for (point, what) in POINTS.into_iter().enumerate() {
        let killed = exits.iter().filter(|runs| runs[point].is_none());
        books.check(&format!("killed when {what}"), killed.count(), exits.len());
    }
    let ended = exits.iter().flatten().filter(|code| **code == Some(0));
    books.check("ended, and once more", ended.count(), 2 * exits.len());
    let rows = "SELECT what, counted::bigint, expected::bigint FROM books";
    let rows: Vec<(String, i64, i64)> = sqlx::query_as(rows).fetch_all(&pool).await?;
    for (what, counted, expected) in rows {
        books.check(&what, counted, expected);
    }
    Ok(books.close())
}
