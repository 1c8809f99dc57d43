//! The transaction of a connection, and the count of diesel.

use std::mem;

use diesel::connection::{
    TransactionDepthChange, TransactionManagerStatus, ValidTransactionManagerStatus,
};
use diesel_async::{AnsiTransactionManager, TransactionManager as _};

use super::connection::{DieselConnection, broken, status};
use super::message::batch;
use crate::store::sql::error::SqlError;

/// Whether a call may use the connection; its count of transactions is right then.
pub(super) async fn in_step<C: DieselConnection>(conn: &mut C) -> Result<bool, SqlError> {
    if is_broken(conn) {
        return Err(broken());
    }
    conn.prepare().await?;
    Ok(true)
}

/// Whether diesel-async failed at, or abandoned, a transaction's begin or end.
fn is_broken<C: DieselConnection>(conn: &mut C) -> bool {
    // Its other check is for an open transaction.
    let before = mem::take(status(conn));
    let is_flagged = AnsiTransactionManager::is_broken_transaction_manager(conn);
    let status = status(conn);
    *status = before;
    is_flagged || matches!(status, TransactionManagerStatus::InError)
}

/// The number of transactions and savepoints of diesel; 1 on a broken connection.
pub(super) fn depth<C: DieselConnection>(conn: &mut C) -> usize {
    match status(conn).transaction_depth() {
        Ok(depth) => depth.map_or(0, |depth| depth.get() as usize),
        Err(_) => 1,
    }
}

/// Begins the only transaction.
pub(super) async fn begin<C: DieselConnection>(conn: &mut C) -> Result<(), SqlError> {
    batch(conn, "BEGIN").await?;
    let mut counted = ValidTransactionManagerStatus::default();
    let begun = counted.change_transaction_depth(TransactionDepthChange::IncreaseDepth);
    begun.map_err(|_| broken())?;
    *status(conn) = TransactionManagerStatus::Valid(counted);
    Ok(())
}

/// Commits the only transaction.
pub(super) async fn commit<C: DieselConnection>(conn: &mut C) -> Result<(), SqlError> {
    if depth(conn) != 1 {
        let text = "a transaction that the body has begun is open";
        return Err(SqlError::client(text));
    }
    // The body may have abandoned a message, whose reply is not that to the commit.
    conn.prepare().await?;
    end(conn, C::COMMIT).await
}

/// Rolls back the only transaction, and those open within it.
pub(super) async fn rollback<C: DieselConnection>(conn: &mut C) -> Result<(), SqlError> {
    end(conn, "ROLLBACK").await
}

async fn end<C: DieselConnection>(conn: &mut C, text: &str) -> Result<(), SqlError> {
    batch(conn, text).await?;
    *status(conn) = TransactionManagerStatus::default();
    Ok(())
}
