use idem_runtime::{Error, idempotent};
use sqlx::PgPool;

#[idempotent(key = order, on_error = release, tx = pool)]
async fn by_reference(order: u64, pool: &PgPool) -> Result<u64, Error> {
    let _ = pool;
    Ok(order)
}

#[idempotent(key = order, on_error = release, tx = pool)]
async fn owned(order: u64, pool: PgPool) -> Result<u64, Error> {
    let _ = pool;
    Ok(order)
}

fn main() {}
