use idem_runtime::{Error, idempotent, step_in_tx};
use sqlx::PgPool;

#[idempotent(key = order)]
async fn pay(order: u64, #[idem(skip)] mut pool: PgPool) -> Result<u64, Error> {
    step_in_tx("debit", &mut pool, async |_, _| Ok::<_, Error>(order)).await
}

fn main() {}
