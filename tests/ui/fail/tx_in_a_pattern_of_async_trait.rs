use idem_runtime::{Error, idempotent};
use sqlx::PgTransaction;

#[async_trait::async_trait]
trait Pays {
    #[idempotent(op = "pay", key = order, on_error = release, tx = conn)]
    async fn pay(&self, order: u64, (conn, _): (&mut PgTransaction<'_>, u8)) -> Result<u64, Error> {
        let _ = conn;
        Ok(order)
    }
}

fn main() {}
