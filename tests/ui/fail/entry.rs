//! `entry`: its name, and functions that cannot have one.

#![allow(unused)]

use idem_runtime::store::sql::SqlTransaction;
use idem_runtime::{Error, idempotent};
use sqlx::PgTransaction;

#[idempotent(op = "a", key = order, on_error = release, entry = 5)]
async fn number(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(op = "b", key = order, on_error = release, entry = "quoted_entry")]
async fn quoted(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(op = "c", key = order, on_error = release, entry = self::path_entry)]
async fn path(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(op = "d", key = order, on_error = release, entry = called_entry())]
async fn called(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(op = "e", key = order, on_error = release, entry)]
async fn valueless(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(op = "payments.pay", key = order, on_error = release, entry = same_name)]
async fn same_name(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, entry = pay_entry)]
async fn without_op(order: u64) -> Result<u64, Error> { Ok(order) }

#[async_trait::async_trait]
trait Pay {
    #[idempotent(op = "payments.pay", key = order, on_error = release, tx = tx, entry = pay_entry)]
    async fn boxed_transaction(&self, order: u64, tx: &mut PgTransaction<'_>) -> Result<u64, Error> {
        Ok(order)
    }
}

// `entry` generates `pay_entry(order)` without `tx`, where `T` could not be inferred.
#[idempotent(op = "payments.pay", key = order, on_error = release, tx = tx, entry = pay_entry)]
async fn generic_transaction<T: SqlTransaction>(order: u64, tx: &mut T) -> Result<u64, Error> { Ok(order) }

fn main() {}
