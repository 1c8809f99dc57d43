//! Transactions of sea-orm on SQLite, which may roll back by itself.
//!
//! sqlx does not notice, and its count of transactions, which sea-orm hides, stays: see `sqlx_client::transaction_depth`.

use sea_orm::{ConnectionTrait as _, DatabaseTransaction};

use super::error::of_server;

/// The depth of nested transactions that a connection may still count.
const LEVELS: usize = 4;

/// Makes a commit fail, and a rollback succeed: a reference to a row that does not exist, checked at the commit.
///
/// The setting has no effect within a transaction.
const TRAP: &str = "PRAGMA foreign_keys = ON; BEGIN; \
     CREATE TEMP TABLE idem_ended (id INTEGER PRIMARY KEY, \
         next INTEGER REFERENCES idem_ended DEFERRABLE INITIALLY DEFERRED); \
     INSERT INTO idem_ended VALUES (1, 2)";

const ENDED: &str = "SELECT 1 FROM temp.idem_ended";

/// Whether the transaction exists, and is none within another.
///
/// Where SQLite has rolled back, sqlx goes on counting, and begins the next transaction by `SAVEPOINT`. Rolled back, that
/// stays open, and every later commit releases a savepoint in it, and commits nothing. SQL cannot tell it from a
/// transaction of sea-orm within another, nor from a savepoint that such a one has left behind when it was rolled back:
/// all are refused.
pub(super) async fn is_begun(tx: &DatabaseTransaction) -> bool {
    // The first fails within a transaction, the other unless the transaction is that of `end`.
    if !is_refused(tx, "BEGIN; ROLLBACK").await || !is_refused(tx, ENDED).await {
        return false;
    }
    for level in 1..=LEVELS {
        // If there is one, the refusal of the call undoes all.
        let text = format!("ROLLBACK TO SAVEPOINT _sqlx_savepoint_{level}");
        if !is_refused(tx, &text).await {
            return false;
        }
    }
    true
}

/// Whether SQLite refuses a statement where it is, by `SQLITE_ERROR`.
async fn is_refused(tx: &DatabaseTransaction, text: &str) -> bool {
    match tx.execute_unprepared(text).await {
        Ok(_) => false,
        Err(error) => of_server(&error).is_some_and(|server| server.code().as_deref() == Some("1")),
    }
}

/// Rolls everything back, and makes every later call and commit fail.
///
/// sea-orm cannot close one connection of a pool. Later statements are in a transaction that can only be rolled back,
/// which also corrects the count.
pub(super) async fn end(tx: &DatabaseTransaction) {
    let _ = tx.execute_unprepared("ROLLBACK").await;
    if tx.execute_unprepared(TRAP).await.is_err() {
        // A `COMMIT` without a transaction fails as well.
        let _ = tx.execute_unprepared("ROLLBACK").await;
    }
}
