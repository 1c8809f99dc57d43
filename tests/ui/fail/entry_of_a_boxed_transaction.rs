use idem_runtime::{Error, idempotent};
use sqlx::PgTransaction;

#[async_trait::async_trait]
trait Pay {
    #[idempotent(op = "payments.pay", key = order, on_error = release, tx = tx, entry = pay_entry)]
    async fn pay(&self, order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> {
        let _ = tx;
        Ok(order)
    }
}

fn main() {}
