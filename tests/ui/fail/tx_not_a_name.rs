use idem_runtime::{Error, idempotent};
use sqlx::PgTransaction;

struct Bank {
    tx: PgTransaction<'static>,
}

impl Bank {
    #[idempotent(op = "a", key = order, on_error = release, tx = self.tx)]
    async fn field(&mut self, order: u64) -> Result<u64, Error> {
        let _ = &self.tx;
        Ok(order)
    }
}

#[idempotent(key = order, on_error = release, tx = &mut tx)]
async fn reference(order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> {
    let _ = tx;
    Ok(order)
}

#[idempotent(key = order, on_error = release, tx = "tx")]
async fn quoted(order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> {
    let _ = tx;
    Ok(order)
}

#[idempotent(key = order, on_error = release, tx = mut tx)]
async fn mutable(order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> {
    let _ = tx;
    Ok(order)
}

#[idempotent(key = order, on_error = release, tx)]
async fn valueless(order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> {
    let _ = tx;
    Ok(order)
}

fn main() {}
