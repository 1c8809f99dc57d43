//! Money goes in and out of accounts: once for each business number, never below zero, and the journal explains it.
//!
//! `cargo run --example balance` books 500 movements of 20 accounts on `PostgreSQL` (`DATABASE_URL`, or one of its
//! own), each sent two to four times, by 100 callers on a pool of 10 connections. The account's row is locked (`FOR
//! UPDATE`), and balance, journal row and idem's record are one transaction. Bodies fail half-way, commits fail, and
//! calls are dropped in the middle; each is repeated until there is an answer. `--unprotected` (debug builds) shows the
//! same without idem, and exits with 1.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use clap::Parser as _;
use idem_examples::scenario::{Books, Options, Server, count, hammer};
use idem_runtime::{Classify, Engine, Error, idempotent};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, PgTransaction};
use tokio::time::timeout;

const MOVEMENTS: i64 = 500;
const ACCOUNTS: i64 = 20;

/// A journal without a unique index on the number. The books therefore show idem's effect. A bank has one, as the last
/// line.
const SCHEMA: &str = "
DROP SCHEMA IF EXISTS idem_bank CASCADE;
CREATE SCHEMA idem_bank;
CREATE TABLE idem_bank.accounts (number bigint PRIMARY KEY, cents bigint NOT NULL CHECK (cents >= 0));
CREATE TABLE idem_bank.journal (number bigint NOT NULL, account bigint NOT NULL, cents bigint NOT NULL,
    balance bigint NOT NULL);
INSERT INTO idem_bank.accounts SELECT number, 0 FROM generate_series(0, 19) number";

/// The tries of all movements, and how many were cut off.
static TRIES: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);
static ROLLED_BACK: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, PartialEq, Serialize, Deserialize, Classify)]
enum BankError {
    /// An answer: it stays, also when the account is topped up later. A new attempt has a new number.
    #[class(business)]
    InsufficientBalance,
    /// Nothing has happened, and a repeat runs.
    #[class(system)]
    Database,
    #[class(delegate)]
    Idempotency(Error),
}

impl From<Error> for BankError {
    fn from(error: Error) -> Self {
        Self::Idempotency(error)
    }
}

impl From<sqlx::Error> for BankError {
    fn from(_: sqlx::Error) -> Self {
        Self::Database
    }
}

/// A top-up, or a deduction: cents below zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
struct Movement {
    number: i64,
    account: i64,
    cents: i64,
}

/// The new balance.
#[idempotent(op = "bank.book", key = movement.number, ttl = forever, tx = tx)]
async fn book(
    tx: &mut PgTransaction<'_>,
    movement: Movement,
    #[idem(skip)] fails: bool,
) -> Result<i64, BankError> {
    let account = movement.account;
    let lock = "SELECT cents FROM idem_bank.accounts WHERE number = $1 FOR UPDATE";
    let lock = sqlx::query_scalar::<_, i64>(lock).bind(account);
    let balance = lock.fetch_one(&mut **tx).await? + movement.cents;
    if balance < 0 {
        return Err(BankError::InsufficientBalance);
    }
    let update = sqlx::query("UPDATE idem_bank.accounts SET cents = $2 WHERE number = $1");
    let update = update.bind(account).bind(balance);
    update.execute(&mut **tx).await?;
    if fails {
        FAILED.fetch_add(1, Relaxed);
        return Err(BankError::Database); // the update is undone
    }
    let insert = sqlx::query("INSERT INTO idem_bank.journal VALUES ($1, $2, $3, $4)");
    let insert = insert.bind(movement.number).bind(account);
    let insert = insert.bind(movement.cents).bind(balance);
    insert.execute(&mut **tx).await?;
    Ok(balance)
}

/// The call in its own transaction, repeated until it has an answer.
async fn send((engine, pool): (Engine, PgPool), movement: Movement) -> Result<i64, BankError> {
    loop {
        let number = TRIES.fetch_add(1, Relaxed);
        let mut tx = pool.begin().await?;
        let call = engine.scope(book(&mut tx, movement, number % 17 == 2));
        // One caller of ten goes away at some point, and its transaction is dropped: a rollback.
        let patience = match number % 10 {
            1 => Duration::from_micros(number % 6_000),
            _ => Duration::MAX,
        };
        let Ok(answer) = timeout(patience, call).await else {
            DROPPED.fetch_add(1, Relaxed);
            continue;
        };
        match &answer {
            _ if number % 19 == 3 => {
                ROLLED_BACK.fetch_add(1, Relaxed);
                tx.rollback().await?;
            }
            // A deadlock, or another transaction that takes long: dropped, and called again in a new one.
            Err(BankError::Idempotency(e)) if e.is_retryable() => {}
            Err(BankError::Database) => tx.commit().await?,
            // An error is committed as well: a business error is an answer.
            _ => {
                tx.commit().await?;
                return answer;
            }
        }
    }
}

/// Each movement two to four times: twice at once, and the others later.
fn movements() -> Vec<Movement> {
    let twice = (0..MOVEMENTS).flat_map(|number| [number; 2]);
    let third = (0..MOVEMENTS).filter(|number| number % 3 != 0);
    let fourth = (0..MOVEMENTS).filter(|number| number % 3 == 1);
    let movement = |number: i64| Movement {
        number,
        account: number % ACCOUNTS,
        // More goes out than comes in, so that some deductions are refused.
        cents: number / ACCOUNTS % 5 * 300 - 650,
    };
    let all = twice.chain(third).chain(fourth);
    all.map(movement).collect()
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let options = Options::parse();
    let (_server, pool, store) = Server::with_tables(SCHEMA, "idem_bank.records", 10).await?;
    let bank = (options.engine(store), pool.clone());
    let load = hammer("movements", 100, movements(), bank, send).await;

    let booked = load.answers.iter().filter(|(_, answer)| answer.is_ok());
    let booked = booked.map(|(movement, _)| (movement.number, movement.cents));
    let booked: HashMap<_, _> = booked.collect();
    let (confirmed, sum) = (i64::try_from(booked.len())?, booked.values().sum());
    let refused = load.count(|answer| *answer == Err(BankError::InsufficientBalance));
    let rows = count(&pool, "SELECT count(*) FROM idem_bank.journal").await?;
    let numbers = "SELECT count(DISTINCT number) FROM idem_bank.journal";
    let total = "SELECT sum(cents)::bigint FROM idem_bank.accounts";
    let unexplained = "SELECT count(*) FROM idem_bank.accounts a WHERE cents <> \
                       (SELECT coalesce(sum(cents), 0) FROM idem_bank.journal WHERE account = a.number)";
    let below = "SELECT count(*) FROM idem_bank.journal WHERE balance < 0";
    let unexplained = count(&pool, unexplained).await?;
    let mut books = Books::new("balance: 500 movements of 20 accounts, each sent 2 to 4 times");
    books
        .check("journal rows: confirmed movements", rows, confirmed)
        .check(
            "numbers in the journal",
            count(&pool, numbers).await?,
            confirmed,
        )
        .check("accounts not explained by their journal", unexplained, 0)
        .check("balances below zero", count(&pool, below).await?, 0)
        .check(
            "cents in all accounts: confirmed sums",
            count(&pool, total).await?,
            sum,
        )
        .check("repeats with another answer", load.contradictions(), 0)
        .check("other errors", load.count(Result::is_err) - refused, 0)
        .note("refusals: insufficient balance", refused)
        .note("bodies that failed half-way", FAILED.load(Relaxed))
        .note("calls that were dropped", DROPPED.load(Relaxed))
        .note(
            "transactions that were rolled back",
            ROLLED_BACK.load(Relaxed),
        );
    load.speed(&mut books);
    Ok(books.close())
}
