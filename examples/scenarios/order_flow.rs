//! Order, payment and parcel in a process that is killed after every step and started again until all is done.
//!
//! `cargo run --example order_flow` orders six times, in `PostgreSQL` (`DATABASE_URL`, or a server of its own). Each
//! flow is a program of its own (this one, as its own child), which aborts after its first step, after its second in
//! the next run, and so on: token, order, payment number, the states NEW, PAID and SHIPPED. The bank is another system:
//! its table has its own transaction and guards nothing, so a payment without a record is looked up there
//! (`reconcile`). `--unprotected` shows the same without idem, and exits with 1.

use std::process::{Command, ExitCode};
use std::sync::OnceLock;
use std::{env, io};

use clap::Parser;
use idem_examples::scenario::{Books, Options, Server, progress};
use idem_runtime::store::sql::PostgresStore;
use idem_runtime::token::{TokenIssuer, token};
use idem_runtime::{Classify, Error, Reconciled, context, idempotent};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Executor, PgPool, PgTransaction};
use tokio::task::JoinSet;

const SCHEMA: &str = "
DROP SCHEMA IF EXISTS idem_flow CASCADE;
CREATE SCHEMA idem_flow;
CREATE TABLE orders (payment_no text PRIMARY KEY DEFAULT gen_random_uuid(), customer int, state text DEFAULT 'NEW');
CREATE TABLE moves (payment_no text, old text, new text);
CREATE RULE moves AS ON UPDATE TO orders DO ALSO INSERT INTO moves VALUES (OLD.payment_no, OLD.state, NEW.state);
CREATE TABLE parcels (payment_no text);
CREATE TABLE bank (charge bigint GENERATED ALWAYS AS IDENTITY, key text, cents bigint);
CREATE TABLE runs (body text);
CREATE VIEW books (what, counted, expected) AS
SELECT 'orders', count(*), 6 FROM orders UNION ALL
SELECT old || ' to ' || new, count(*), 6 FROM moves GROUP BY old, new UNION ALL
SELECT 'parcels', count(*), 6 FROM parcels UNION ALL
SELECT 'charges at the bank', count(*), 6 FROM bank UNION ALL
SELECT '  their cents', sum(cents), 7500 FROM bank UNION ALL
SELECT 'bodies of payments run', count(*), 12 FROM runs WHERE body = 'pay' UNION ALL
SELECT 'questions to the bank', count(*), 12 FROM runs WHERE body = 'find'";

const STEPS: [&str; 9] = [
    "the order was written, not committed",
    "the order was committed",
    "the payment had begun",
    "the bank had charged, nothing was recorded",
    "the payment was recorded",
    "PAID was written, not committed",
    "PAID was committed",
    "the parcel was written, not committed",
    "the parcel was committed",
];

/// The step after which this process is killed.
static LAST: OnceLock<usize> = OnceLock::new();

fn reached(step: usize) {
    if LAST.get() == Some(&step) {
        std::process::abort(); // no destructor, no rollback, no release
    }
}

#[derive(Debug, Serialize, Deserialize, Classify)]
enum FlowError {
    #[class(business)]
    WrongState,
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

/// The answer is the number of the payment, and the key of all that follows.
#[idempotent(op = "flow.order", key = token(form, user), ttl = forever, tx = tx)]
async fn order(tx: &mut PgTransaction<'_>, form: &str, user: i32) -> Result<String, FlowError> {
    let insert = "INSERT INTO orders (customer) VALUES ($1) RETURNING payment_no";
    let insert = sqlx::query_scalar(insert).bind(user);
    Ok(insert.fetch_one(&mut **tx).await?)
}

// After an error or a kill only the bank knows what happened: the next call asks it, once the lease is over.
#[idempotent(op = "flow.pay", key = no, fingerprint(cents), ttl = forever, lease = "1s", on_error = unknown,
    reconcile = find_charge(pool))]
async fn pay(pool: &PgPool, no: &str, cents: i64) -> Result<i64, FlowError> {
    pool.execute("INSERT INTO runs VALUES ('pay')").await?;
    reached(2);
    let charge = "INSERT INTO bank (key, cents) VALUES ($1, $2) RETURNING charge";
    let charge = sqlx::query_scalar(charge).bind(context().derive_key("bank"));
    let charge = charge.bind(cents).fetch_one(pool).await?;
    reached(3);
    Ok(charge)
}

async fn find_charge(pool: &PgPool) -> Result<Reconciled<i64>, FlowError> {
    pool.execute("INSERT INTO runs VALUES ('find')").await?;
    let find = sqlx::query_scalar("SELECT charge FROM bank WHERE key = $1");
    let find = find.bind(context().derive_key("bank"));
    let found = find.fetch_optional(pool).await?;
    Ok(found.map_or(Reconciled::NotLanded, Reconciled::Landed))
}

/// The state machine: compare and set. What belongs to a state is in the same transaction.
#[idempotent(op = "flow.go", key = (no, to), ttl = forever, tx = tx)]
async fn go(tx: &mut PgTransaction<'_>, no: &str, from: &str, to: &str) -> Result<(), FlowError> {
    let set = "UPDATE orders SET state = $3 WHERE payment_no = $1 AND state = $2";
    let set = sqlx::query(set).bind(no).bind(from).bind(to);
    if set.execute(&mut **tx).await?.rows_affected() == 0 {
        return Err(FlowError::WrongState);
    }
    if to == "SHIPPED" {
        let parcel = sqlx::query("INSERT INTO parcels VALUES ($1)").bind(no);
        parcel.execute(&mut **tx).await?;
    }
    Ok(())
}

async fn commit(tx: PgTransaction<'_>, step: usize) -> Result<(), FlowError> {
    reached(step);
    tx.commit().await?;
    reached(step + 1);
    Ok(())
}

/// The whole flow, from the beginning: what is done is not done again. An error ends the process.
async fn flow(pool: &PgPool, form: &str, user: i32) -> Result<(), FlowError> {
    let mut tx = pool.begin().await?;
    let no = order(&mut tx, form, user).await?;
    commit(tx, 0).await?;
    pay(pool, &no, 1_250).await?;
    reached(4);
    let mut tx = pool.begin().await?;
    go(&mut tx, &no, "NEW", "PAID").await?;
    commit(tx, 5).await?;
    let mut tx = pool.begin().await?;
    go(&mut tx, &no, "PAID", "SHIPPED").await?;
    commit(tx, 7).await
}

#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
    /// Of a child: its customer, the token of the form, and the step after which it is killed.
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
        let done = flow(&pool, form, user.parse()?).await;
        return Ok(done.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS));
    }

    // Each customer's flow is killed after each step, runs to its end, and runs once more.
    let bar = progress("processes", 6 * 11);
    let mut customers = JoinSet::new();
    for customer in 0..6 {
        let form = engine.issue_token("flow.order", &customer)?;
        let (url, bar) = (postgres.url().to_owned(), bar.clone());
        customers.spawn_blocking(move || {
            let runs = (0..STEPS.len() + 2).map(|last| {
                bar.inc(1);
                start(customer, &form, last, &url)
            });
            runs.collect::<io::Result<Vec<_>>>()
        });
    }
    let exits: io::Result<Vec<_>> = customers.join_all().await.into_iter().collect();
    let exits = exits?;
    bar.finish_and_clear();

    let mut books = Books::new("order_flow: six flows, killed nine times each");
    for (step, what) in STEPS.into_iter().enumerate() {
        let killed = exits.iter().filter(|runs| runs[step].is_none());
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
