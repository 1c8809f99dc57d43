use idem_runtime::{Error, idempotent};
use sqlx::PgTransaction;

#[idempotent(
    key = order,
    on_error = release,
    tx = tx,
    lease = "10s",
    max_run = "1h",
    on_cancel = finish,
    on_panic = unknown,
    on_lease_lost = cancel,
    on_outage = run,
    max_attempts = 3,
    count_errors = true,
    reconcile = find,
    label = "order {order}"
)]
async fn pay(order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> {
    let _ = tx;
    Ok(order)
}

fn main() {}
