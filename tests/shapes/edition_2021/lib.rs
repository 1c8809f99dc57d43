//! Exported functions under the lints of a library: of these, `tests/shapes` has none. Its tests are built here in edition
//! 2021.

#![deny(
    warnings,
    missing_docs,
    unreachable_pub,
    clippy::pedantic,
    clippy::nursery,
    clippy::shadow_unrelated
)]
#![forbid(unsafe_code)]

use async_trait::async_trait;
use idem_runtime::{Error, idempotent};
use sqlx::SqliteTransaction;

/// Pays an order.
///
/// # Errors
///
/// Those of idem.
#[idempotent(op = "library.pay", key = order, on_error = release, entry = pay_entry)]
pub async fn pay(order: u64) -> Result<u64, Error> {
    Ok(order)
}

/// Books an order in a transaction.
///
/// # Errors
///
/// Those of idem.
#[idempotent(op = "library.book", key = order, on_error = release, tx = tx, entry = book_entry)]
pub async fn book(order: u64, tx: &mut SqliteTransaction<'_>) -> Result<u64, Error> {
    let _ = tx;
    Ok(order)
}

/// A bank.
#[async_trait]
pub trait Bank {
    /// Pays an order.
    ///
    /// # Errors
    ///
    /// Those of idem.
    async fn pay(&self, order: u64) -> Result<u64, Error>;
}

/// A bank that pays.
#[derive(Clone, Copy, Debug)]
pub struct Paying;

#[async_trait]
impl Bank for Paying {
    #[idempotent(key = order, on_error = release)]
    async fn pay(&self, order: u64) -> Result<u64, Error> {
        Ok(order)
    }
}

impl Paying {
    /// Pays an order back.
    ///
    /// # Errors
    ///
    /// Those of idem.
    #[idempotent(op = "library.refund", key = order, on_error = release, entry = refund_entry)]
    pub async fn refund(&self, order: u64) -> Result<u64, Error> {
        Ok(order)
    }
}
