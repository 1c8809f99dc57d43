//! `tx`: the parameter that it names, and what may not stand beside it.

#![allow(unused)]

use idem_runtime::{Error, idempotent};
use sqlx::{PgPool, PgTransaction};

struct Bank {
    tx: PgTransaction<'static>,
}

impl Bank {
    #[idempotent(op = "a", key = order, on_error = release, tx = self.tx)]
    async fn field(&mut self, order: u64) -> Result<u64, Error> { Ok(order) }

    #[idempotent(key = order, on_error = release, tx = self)]
    async fn receiver(&mut self, order: u64) -> Result<u64, Error> { Ok(order) }
}

#[idempotent(key = order, on_error = release, tx = &mut tx)]
async fn reference(order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, tx = "tx")]
async fn quoted(order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, tx = mut tx)]
async fn mutable(order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, tx)]
async fn valueless(order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, tx = txn)]
async fn misspelt(order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, tx = tx)]
async fn no_such_parameter(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, tx = tx)]
async fn in_a_pattern(order: u64, (tx, _): (&mut PgTransaction<'_>, u8)) -> Result<u64, Error> { Ok(order) }

#[async_trait::async_trait]
trait Pays {
    #[idempotent(op = "pay", key = order, on_error = release, tx = conn)]
    async fn in_a_hidden_pattern(&self, order: u64, (conn, _): (&mut PgTransaction<'_>, u8)) -> Result<u64, Error> {
        Ok(order)
    }
}

#[idempotent(key = order, on_error = release, tx = tx)]
async fn owned(order: u64, mut tx: PgTransaction<'_>) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, tx = tx)]
async fn shared(order: u64, tx: &PgTransaction<'_>) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, tx = pool)]
async fn reference_to_a_pool(order: u64, pool: &PgPool) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, tx = pool)]
async fn owned_pool(order: u64, pool: PgPool) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, tx = tx, fingerprint(order, tx))]
async fn compared(order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = (order, backend(tx)), scope = "{tx}", on_error = release, tx = tx)]
async fn keyed(order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> { Ok(order) }

#[idempotent(on_error = release, tx = tx)]
async fn alone(tx: &mut PgTransaction<'_>) -> Result<u64, Error> { Ok(1) }

#[idempotent(
    key = order,
    on_error = release,
    tx = tx,
    lease = "10s",
    max_run = "1h",
    on_cancel = finish,
    on_panic = unknown,
    on_lease_lost = cancel,
    on_unconfirmed = fail,
    on_outage = run,
    max_attempts = 3,
    count_errors = true,
    reconcile = find,
    label = "order {order}"
)]
async fn settings_of_a_lease(order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> { Ok(order) }

fn main() {}
