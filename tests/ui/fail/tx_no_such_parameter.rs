use idem_runtime::{Error, idempotent};
use sqlx::PgTransaction;

#[idempotent(key = order, on_error = release, tx = txn)]
async fn pay(order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> {
    let _ = tx;
    Ok(order)
}

#[idempotent(key = order, on_error = release, tx = tx)]
async fn refund(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
