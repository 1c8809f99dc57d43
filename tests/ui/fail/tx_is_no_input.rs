use idem_runtime::{Error, idempotent};
use sqlx::PgTransaction;

#[idempotent(key = order, on_error = release, tx = tx, fingerprint(order, tx))]
async fn compared(order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> {
    let _ = tx;
    Ok(order)
}

#[idempotent(key = (order, backend(tx)), scope = "{tx}", on_error = release, tx = tx)]
async fn keyed(order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> {
    let _ = tx;
    Ok(order)
}

#[idempotent(on_error = release, tx = tx)]
async fn alone(tx: &mut PgTransaction<'_>) -> Result<u64, Error> {
    let _ = tx;
    Ok(1)
}

fn main() {}
