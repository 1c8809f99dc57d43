//! Values that are moved out of a borrow, or outlive one.

use idem_runtime::{Error, idempotent};
use sqlx::PgTransaction;

#[idempotent(key = order, on_error = release)]
async fn moved_argument(order: String) -> Result<usize, Error> {
    drop(order);
    Ok(order.len())
}

#[idempotent(key = order, on_error = release, tx = tx)]
async fn committed_in_the_body(order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> {
    tx.commit().await.ok();
    Ok(order)
}

struct Note<'a>(&'a str);

impl Note<'_> {
    #[idempotent(key = order, on_error = release, on_cancel = finish)]
    async fn finished_with_borrowed_self(self, order: u64) -> Result<usize, Error> {
        Ok(self.0.len())
    }
}

fn main() {}
