//! Values that are moved out of a borrow, or outlive one.

use idem_runtime::{Error, idempotent};
use sqlx::PgTransaction;
use std::time::Duration;

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

#[idempotent(key = order, on_error = release, ttl = |_| Duration::from_secs(order.len() as u64))]
async fn moved_into_the_body(order: String) -> Result<usize, Error> {
    Ok(order.len())
}

struct Note<'a>(&'a str);

impl Note<'_> {
    #[idempotent(key = order, on_error = release, on_cancel = finish)]
    async fn finished_with_borrowed_self(self, order: u64) -> Result<usize, Error> {
        Ok(self.0.len())
    }
}

fn main() {}
