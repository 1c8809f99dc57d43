//! The connection of a claim inside a transaction.

use std::time::Duration;

use crate::store::sql::argument::Argument;
use crate::store::sql::backend::{Conn, SqlDriver};
use crate::store::sql::failure::store_error;
use crate::store::sql::in_transaction::TxError;
use crate::store::sql::reply::StatementReply;
use crate::store::sql::script::with_literals;

/// The connection of a claim.
///
/// Its setting for lock waits is restored, however the claim ends.
pub(super) struct ClaimSession<'c, B: SqlDriver> {
    pub(super) conn: &'c mut Conn<B>,
    /// `?11` of [`SqlDriver::WAIT`].
    pub(super) lock_wait: i64,
    /// Whether only the client can restore the setting.
    is_own: bool,
    /// Whether the setting must be restored.
    is_changed: bool,
}

impl<'c, B: SqlDriver> ClaimSession<'c, B> {
    pub(super) async fn new(conn: &'c mut Conn<B>, wait: Duration) -> Result<Self, TxError> {
        let own = B::own_lock_wait(conn).await;
        let own = own.map_err(|error| TxError::Aborted(store_error::<B>("a claim", error)))?;
        Ok(Self {
            conn,
            lock_wait: own.unwrap_or_else(|| B::lock_wait(wait)),
            is_own: own.is_some(),
            is_changed: false,
        })
    }

    /// Sends a script that changes the setting, and restores it unless it fails.
    pub(super) async fn fetch(&mut self, script: String) -> Result<StatementReply, sqlx::Error> {
        self.is_changed = self.is_own;
        let answer = B::fetch_script(self.conn, script).await?;
        self.is_changed = false;
        Ok(answer)
    }

    /// Sends a script after one that failed.
    pub(super) async fn restore(&mut self, script: &str) -> Result<(), sqlx::Error> {
        let restore = with_literals::<B>(B::RESTORE, &[Argument::Int(self.lock_wait); 11]);
        B::execute_script(self.conn, restore + script).await?;
        self.is_changed = false;
        Ok(())
    }
}

impl<B: SqlDriver> Drop for ClaimSession<'_, B> {
    fn drop(&mut self) {
        if self.is_changed {
            B::start_restore(self.conn, self.lock_wait);
        }
    }
}
