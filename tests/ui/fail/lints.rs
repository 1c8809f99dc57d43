//! Lints of rustc that the expansion must not hide.

#![deny(warnings)]

use idem_runtime::{Error, idempotent};
use sqlx::PgTransaction;

#[idempotent(key = order, on_error = release)]
pub async fn unused_variables(order: u64, #[idem(skip)] note: &str) -> Result<u64, Error> {
    let unused = 1;
    Ok(order)
}

#[idempotent(key = order, on_error = release, tx = tx)]
pub async fn needlessly_mut(order: u64, mut tx: &mut PgTransaction<'_>) -> Result<u64, Error> {
    let _ = tx;
    Ok(order)
}

fn main() {}
