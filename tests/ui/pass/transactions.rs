//! Transactions that nobody begins: only their types are looked at.

#![deny(warnings)]

use idem_runtime::{Error, idempotent};
use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgTransaction, Postgres, Transaction};
use std::future::Future;
use std::pin::Pin;

#[idempotent(key = order, on_error = release, tx = tx, ttl = forever)]
pub async fn postgres(order: u64, tx: &mut Transaction<'_, Postgres>) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(key = order, on_error = release, tx = conn)]
pub async fn connection(order: u64, conn: &mut PgConnection) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(key = order, on_error = release, tx = _conn)]
pub async fn pooled(
    order: u64,
    #[idem(skip)] _conn: &mut PoolConnection<Postgres>,
) -> Result<u64, Error> {
    Ok(order)
}

// Written by hand, not by `#[async_trait]`.
#[idempotent(key = order, on_error = release, tx = tx)]
pub fn boxed<'a>(
    order: u64,
    mut tx: &'a mut PgTransaction<'_>,
) -> Pin<Box<dyn Future<Output = Result<usize, Error>> + Send + 'a>> {
    Box::pin(async move {
        let tx = &mut tx;
        let _: &mut PgConnection = tx;
        Ok(1)
    })
}

fn main() {}
