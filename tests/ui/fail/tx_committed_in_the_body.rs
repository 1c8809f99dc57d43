use idem_runtime::{Error, idempotent};
use sqlx::PgTransaction;

#[idempotent(key = order, on_error = release, tx = tx)]
async fn pay(order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> {
    tx.commit().await.ok();
    Ok(order)
}

fn main() {}
