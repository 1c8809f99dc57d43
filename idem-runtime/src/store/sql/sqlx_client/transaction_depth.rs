//! Compares sqlx's count of transactions on a connection with SQLite's state.
//!
//! SQLite ends a transaction by itself after some errors: a full disk, an I/O error, an interrupt,
//! `ON CONFLICT ROLLBACK`, `RAISE(ROLLBACK)`, a `COMMIT` that fails. sqlx does not notice. Its `ROLLBACK` fails
//! from then on, its count stays, and its next `BEGIN` is a `SAVEPOINT`: rolled back, that leaves the transaction
//! open which it began, and every later commit releases a savepoint in it, and commits nothing.

use futures_util::FutureExt as _;
use sqlx::sqlite::SqliteTransactionManager;
use sqlx::{Executor as _, SqliteConnection};
use sqlx_core::sql_str::SqlStr;
use sqlx_core::transaction::TransactionManager as _;

fn depth(conn: &SqliteConnection) -> usize {
    SqliteTransactionManager::get_transaction_depth(conn)
}

/// Whether the connection is usable for a call.
///
/// `most` is the depth that a caller may have reached.
///
/// From the second transaction of sqlx on, which is a savepoint, SQL cannot show whether the first one exists: both
/// look the same from within.
pub(crate) async fn in_step(conn: &mut SqliteConnection, most: usize) -> bool {
    if depth(conn) == 0 {
        return true;
    }
    // `BEGIN` fails in a transaction, and takes no lock outside of one. It runs after earlier commands, such as the
    // rollback of a dropped transaction, so that the count is final afterwards.
    let script = sqlx::raw_sql("BEGIN; ROLLBACK");
    let is_open = conn.execute(script).await.is_err();
    depth(conn) == 0 || is_open && depth(conn) <= most
}

/// Rolls back the transaction that idem began, unless SQLite has done so.
pub(crate) async fn roll_back(conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    // Outside of a transaction `ROLLBACK` would fail, and sqlx would go on counting.
    let _ = conn.execute(sqlx::raw_sql("BEGIN")).await;
    let rolled_back = SqliteTransactionManager::rollback(conn).await;
    if rolled_back.is_err() {
        // The body has left savepoints of sqlx that went with the transaction.
        close(conn).await;
    }
    rolled_back
}

/// As [`roll_back`], without waiting for it.
pub(crate) fn start_rollback(conn: &mut SqliteConnection) {
    // Polled once, which sends the command to the thread of the connection.
    let _ = conn.execute(sqlx::raw_sql("BEGIN")).now_or_never();
    SqliteTransactionManager::start_rollback(conn);
}

/// Ends a connection on which sqlx counts a transaction.
///
/// Every later use of it fails, a commit included, and a pool replaces it.
///
/// sqlx ends the thread of a connection when it refuses a `BEGIN` whose caller is gone.
pub(crate) async fn close(conn: &mut SqliteConnection) {
    // The thread may refuse it so quickly that the caller is still there.
    const TRIES: usize = 10_000;
    for _ in 0..TRIES {
        let begin = SqlStr::from_static("BEGIN");
        let reply = SqliteTransactionManager::begin(conn, Some(begin));
        if reply.now_or_never().is_none() {
            break;
        }
    }
    // Acquired when the thread has ended. A command sent to it meanwhile would never get a reply.
    let _ = conn.lock_handle().await;
}

/// Sends a statement, without waiting for its reply.
pub(crate) fn start(conn: &mut SqliteConnection, sql: String) {
    let _ = conn
        .execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql)))
        .now_or_never();
}
