//! Partners number their calls themselves, and the same number of two partners is two calls.
//!
//! `cargo run --example partner` has four partners, each of whom pays 100 bills with the serial numbers 0 to 99 and
//! sends each of them five times at once. The credential that comes with a call identifies the partner, and the partner
//! is the scope of the serial number. Payment, account and answer are one transaction in `PostgreSQL` (`DATABASE_URL`,
//! or a server of its own); a sixth of the bodies fails, and a ninth of the transactions is lost before its commit.
//! `--unprotected` shows the same without idem, and exits with 1.

use std::collections::{HashMap, HashSet};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};

use clap::Parser as _;
use idem_examples::scenario::{Books, Options, Server, progress};
use idem_runtime::store::sql::PostgresStore;
use idem_runtime::{Classify, Error, ErrorKind, idempotent};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, PgTransaction};
use tokio::task::JoinSet;

// No unique index: here, the serial numbers are guarded by idem alone.
const SCHEMA: &str = "
DROP SCHEMA IF EXISTS idem_partner CASCADE;
CREATE SCHEMA idem_partner;
CREATE TABLE idem_partner.accounts (partner text PRIMARY KEY, cents bigint NOT NULL);
CREATE TABLE idem_partner.payments (
    id bigint GENERATED ALWAYS AS IDENTITY, partner text NOT NULL, serial int NOT NULL, cents bigint NOT NULL);
INSERT INTO idem_partner.accounts SELECT unnest(ARRAY['north', 'south', 'east', 'west']), 1000000";

const PARTNERS: [&str; 4] = ["north", "south", "east", "west"];
const SERIALS: i32 = 100;
const REPEATS: i32 = 5;
const ATTEMPTS: u32 = 20;
/// The most that one call may pay. Every tenth call asks for more.
const LIMIT: i64 = 1_500;

static STEPS: AtomicU32 = AtomicU32::new(0);
static BODIES: AtomicU32 = AtomicU32::new(0);

/// The identity behind a credential. It stays when the partner gets a new credential, and so do its serial numbers.
#[derive(Clone, Copy)]
struct Partner(&'static str);

/// Stands for the check of a secret or a signature.
fn authenticate(credential: &str) -> Option<Partner> {
    let of = |partner: &&&str| credential.strip_prefix("secret of ") == Some(**partner);
    PARTNERS.iter().find(of).map(|partner| Partner(partner))
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Payment {
    serial: i32,
    cents: i64,
}

/// The id of the payment, and the cents that it left in the account.
type Receipt = (i64, i64);

#[derive(Debug, Serialize, Deserialize, Classify)]
enum PayError {
    /// No call, and no record.
    #[class(system)]
    WrongCredential,
    /// An answer: every repeat gets it.
    #[class(business)]
    OverLimit,
    #[class(system)]
    Database,
    #[class(delegate)]
    Idempotency(Error),
}

impl From<Error> for PayError {
    fn from(error: Error) -> Self {
        Self::Idempotency(error)
    }
}

impl From<sqlx::Error> for PayError {
    fn from(_: sqlx::Error) -> Self {
        Self::Database
    }
}

#[idempotent(op = "partner.pay", scope = by.0, key = payment.serial, fingerprint(payment), ttl = "30d", tx = tx)]
async fn pay(
    tx: &mut PgTransaction<'_>,
    by: Partner,
    payment: Payment,
) -> Result<Receipt, PayError> {
    BODIES.fetch_add(1, Ordering::Relaxed);
    if payment.cents > LIMIT {
        return Err(PayError::OverLimit);
    }
    let insert = "INSERT INTO idem_partner.payments (partner, serial, cents) VALUES ($1, $2, $3) RETURNING id";
    let insert = sqlx::query_scalar(insert).bind(by.0).bind(payment.serial);
    let id = insert.bind(payment.cents).fetch_one(&mut **tx).await?;
    let take =
        "UPDATE idem_partner.accounts SET cents = cents - $1 WHERE partner = $2 RETURNING cents";
    let take = sqlx::query_scalar(take).bind(payment.cents).bind(by.0);
    let left = take.fetch_one(&mut **tx).await?;
    let fails = STEPS.fetch_add(1, Ordering::Relaxed).is_multiple_of(6);
    (!fails).then_some((id, left)).ok_or(PayError::Database)
}

/// The endpoint: authenticates, then calls.
async fn endpoint(pool: &PgPool, credential: &str, payment: Payment) -> Result<Receipt, PayError> {
    let by = authenticate(credential).ok_or(PayError::WrongCredential)?;
    let mut tx = pool.begin().await?;
    let receipt = pay(&mut tx, by, payment).await;
    if STEPS.fetch_add(1, Ordering::Relaxed).is_multiple_of(9) {
        return Err(PayError::Database); // the process dies before the commit
    }
    match &receipt {
        Err(PayError::Idempotency(error)) if error.is_retryable() => {}
        _ => tx.commit().await?,
    }
    receipt
}

/// A partner, who asks again until there is an answer.
async fn insist(pool: &PgPool, credential: &str, payment: Payment) -> Result<Receipt, PayError> {
    for _ in 0..ATTEMPTS {
        match endpoint(pool, credential, payment).await {
            Err(PayError::Database) => {}
            Err(PayError::Idempotency(error)) if error.is_retryable() => {}
            answer => return answer,
        }
    }
    Err(PayError::Database)
}

fn bill(serial: i32) -> Payment {
    let cents = i64::from(serial) + if serial % 10 == 0 { LIMIT + 1 } else { 1_000 };
    Payment { serial, cents }
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let options = Options::parse();
    let postgres = Server::postgres();
    let pool = PgPoolOptions::new().max_connections(20);
    let pool = pool.connect(postgres.url()).await?;
    sqlx::raw_sql(SCHEMA).execute(&pool).await?;
    let store = PostgresStore::builder(&pool).table("idem_partner.records");
    let store = store.connect().await?;
    store.migrate().await?;
    options.engine(store).install()?;

    let bar = progress("calls", 4 * 5 * 100);
    let mut calls = JoinSet::new();
    for serial in (0..REPEATS).flat_map(|_| 0..SERIALS) {
        for partner in PARTNERS {
            let (pool, bar) = (pool.clone(), bar.clone());
            calls.spawn(async move {
                let credential = format!("secret of {partner}");
                let answer = insist(&pool, &credential, bill(serial)).await;
                bar.inc(1);
                (partner, serial, answer)
            });
        }
    }
    let mut receipts: HashMap<_, HashSet<Receipt>> = HashMap::new();
    let (mut answered, mut over_limit) = (0, 0);
    for (partner, serial, answer) in calls.join_all().await {
        answered += u32::from(answer.is_ok());
        over_limit += u32::from(matches!(answer, Err(PayError::OverLimit)));
        receipts
            .entry((partner, serial))
            .or_default()
            .extend(answer.ok());
    }
    bar.finish_and_clear();
    let bodies = BODIES.load(Ordering::Relaxed);
    let (mut mismatches, mut strangers) = (0, 0);
    for serial in 0..SERIALS {
        let other = Payment {
            cents: 1,
            ..bill(serial)
        };
        if let Err(PayError::Idempotency(error)) = insist(&pool, "secret of north", other).await {
            mismatches += i32::from(*error.kind() == ErrorKind::Mismatch);
        }
        let stranger = insist(&pool, "a guess", bill(serial)).await;
        strangers += i32::from(matches!(stranger, Err(PayError::WrongCredential)));
    }
    let refused_bodies = BODIES.load(Ordering::Relaxed) - bodies;

    let rows = "SELECT count(*), count(DISTINCT (partner, serial)), count(*) FILTER (WHERE serial = 1), \
                (SELECT sum(1000000 - cents)::bigint FROM idem_partner.accounts) FROM idem_partner.payments";
    let (rows, distinct, first, paid): (i64, i64, i64, i64) =
        sqlx::query_as(rows).fetch_one(&pool).await?;
    let bills: i64 = (0..SERIALS)
        .map(bill)
        .map(|it| it.cents)
        .filter(|cents| *cents <= LIMIT)
        .sum();
    let several = receipts.values().filter(|told| told.len() > 1).count();
    let mut books = Books::new("partner: four partners, 100 bills");
    books
        .check("payments", rows, 360)
        .check("  different ones", distinct, 360)
        .check("  with the serial number 1", first, 4)
        .check("cents that left the accounts", paid, 4 * bills)
        .check("callers with a receipt", answered, 360 * 5)
        .check("callers told of the limit", over_limit, 40 * 5)
        .check("payments with two receipts", several, 0)
        .check("other amounts refused", mismatches, SERIALS)
        .check("wrong credentials refused", strangers, SERIALS)
        .check("  bodies that these ran", refused_bodies, 0)
        .note("bodies run", bodies);
    Ok(books.close())
}
