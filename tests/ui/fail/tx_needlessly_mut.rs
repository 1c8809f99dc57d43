#![deny(warnings)]

use idem_runtime::{Error, idempotent};
use sqlx::PgTransaction;

#[idempotent(key = order, on_error = release, tx = tx)]
async fn pay(order: u64, mut tx: &mut PgTransaction<'_>) -> Result<u64, Error> {
    let _ = tx;
    Ok(order)
}

fn main() {}
