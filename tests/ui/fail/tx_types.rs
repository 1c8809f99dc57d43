//! Transactions and pools that are none of the supported types.

#![allow(unused)]

use idem_runtime::store::sql::PostgresStore;
use idem_runtime::{Error, idempotent, step_in_tx};
use sqlx::PgPool;

#[idempotent(key = order, on_error = release, tx = pool)]
async fn pool(order: u64, pool: &mut PgPool) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(op = "pay", key = order, on_error = release, tx = tx)]
async fn generic<T: Send>(order: u64, tx: &mut T) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(op = "refund", key = order, on_error = release, tx = tx)]
async fn opaque(order: u64, tx: &mut impl Send) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(key = order)]
async fn step_of_a_pool(order: u64, #[idem(skip)] mut pool: PgPool) -> Result<u64, Error> {
    step_in_tx("debit", &mut pool, async |_, _| Ok::<_, Error>(order)).await
}

/// As that of another version of sqlx: not of the type that the store takes.
struct ForeignPool;

fn store_of_a_foreign_pool(pool: &ForeignPool) {
    let _ = PostgresStore::builder(pool);
}

fn main() {}
