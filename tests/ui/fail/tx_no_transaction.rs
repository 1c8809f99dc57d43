use idem_runtime::{Error, idempotent};
use sqlx::PgPool;

#[idempotent(key = order, on_error = release, tx = pool)]
async fn pay(order: u64, pool: &mut PgPool) -> Result<u64, Error> {
    let _ = pool;
    Ok(order)
}

fn main() {}
