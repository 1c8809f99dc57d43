use idem_runtime::{Error, idempotent};
use sqlx::PgTransaction;

#[idempotent(key = order, on_error = release, tx = tx)]
async fn owned(order: u64, mut tx: PgTransaction<'_>) -> Result<u64, Error> {
    let _ = &mut tx;
    Ok(order)
}

#[idempotent(key = order, on_error = release, tx = tx)]
async fn shared(order: u64, tx: &PgTransaction<'_>) -> Result<u64, Error> {
    let _ = tx;
    Ok(order)
}

fn main() {}
