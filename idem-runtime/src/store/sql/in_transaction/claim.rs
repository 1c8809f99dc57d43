//! A claim inside a transaction of the caller.

use std::time::Duration;

use crate::identity::operation::RecordKey;
use crate::record::transition;
use crate::record::unknown_cause::Cause;
use crate::record::{Fence, HEADER, Header, Journal, OutcomeKind, State};
use crate::store::sql::argument::Argument;
use crate::store::sql::backend::{Conn, SqlDriver};
use crate::store::sql::claim::fresh;
use crate::store::sql::columns::{HeaderColumns, displayed_operation, life_us};
use crate::store::sql::error_kind::SqlErrorKind;
use crate::store::sql::failure::{error_kind, store_error};
use crate::store::sql::in_transaction::TxError;
use crate::store::sql::in_transaction::store::{UNDO, named};
use crate::store::sql::primary_key::{PrimaryKey, primary_key};
use crate::store::sql::row::Row;
use crate::store::sql::state::SqlStoreState;
use crate::store::sql::statement::StatementReply;
use crate::store::sql::template::with_literals;
use crate::store::{ClaimReply, ClaimRequest, Current, StoreError, StoreErrorKind};

/// The header of a record while the body runs.
fn half_way(header: Header) -> Header {
    Header {
        state: State::Done {
            outcome: OutcomeKind::Unknown,
            schema: Cause::HalfWay.code(),
        },
        ..header
    }
}

/// The scripts, with placeholders as in [`statement_texts`](crate::store::sql::statement_texts).
const READ: &str = "SELECT {columns} FROM {t} WHERE record_key = ?1";

const INSERT: &str =
    "{record} VALUES (?1, ?2, ?3, ?4, ?5, {now}, ?6, ?7, ?8, ?9, NULL, {now} + ?10, 1)";

const REPLACE: &str = "UPDATE {t} SET layout = ?2, state = ?3, owner = ?4, fence = ?5, attempts = ?6, \
     detail = ?7, retain_ms = ?8, fingerprint = ?9, body = CASE WHEN ?2 <> 50 THEN body END, expires_us = {now} + ?10, \
     version = version + 1 WHERE record_key = ?1 AND version = ?12 AND owner = ?13 AND fence = ?14";

/// How often a claim begins again because another write came first.
const TRIES: usize = 100;

impl<B: SqlDriver> SqlStoreState<B> {
    /// A script with its arguments filled in.
    fn script(
        &self,
        primary_key: &PrimaryKey,
        template: &str,
        arguments: &[Argument<'_>],
    ) -> String {
        let text = B::DIALECT.filled(template, &self.table, self.reads_bytes - HEADER);
        with_literals(B::DIALECT, &named(primary_key, &text), arguments)
    }

    pub(super) async fn claim_in(
        &self,
        conn: &mut Conn<B>,
        key: &RecordKey,
        request: &ClaimRequest,
        wait: Duration,
    ) -> Result<ClaimReply, TxError> {
        let primary_key = primary_key(key);
        let first = half_way(fresh(request));
        let columns = HeaderColumns::new(&first);
        let shown = displayed_operation(key);
        let mut session = ClaimSession::<B>::new(conn, wait).await?;
        let mut arguments = columns.claim(&primary_key, &shown).to_vec();
        arguments.push(Argument::Int(session.lock_wait));
        let insert = B::DIALECT.insert_within.replace("{values}", INSERT);
        let ((begin, end), shared) = (B::DIALECT.wait, B::DIALECT.shared);
        let check = format!("{}{}", B::DIALECT.in_transaction, self.one_table);
        let template = format!(
            "SAVEPOINT {{claim}}; {check}{begin}{insert}; {end}SAVEPOINT {{body}}; {READ}{shared}"
        );
        let script = self.script(&primary_key, &template, &arguments);
        for _ in 0..TRIES {
            let row = match session.fetch(script.clone()).await {
                Ok(answer) => answer.row,
                Err(error) => {
                    return Err(self.claim_failed(&mut session, &primary_key, error).await);
                }
            };
            if let Some(row) = row {
                if row.is_of(&request.owner) {
                    return Ok(ClaimReply::Granted {
                        fence: Fence::new(row.fence().unsigned_abs()),
                        attempt: first.attempts,
                        fresh: true,
                        journal: Journal::default(),
                    });
                }
                if let Err(error) = row.readable(self.reads_bytes) {
                    self.undo_in(session.conn, &primary_key).await?;
                    return Err(TxError::Store(error));
                }
                let reply = self
                    .take_over(&mut session, &primary_key, row, request)
                    .await?;
                if let Some(ClaimReply::Granted { .. }) = reply {
                    return Ok(reply.expect("just matched"));
                }
                self.undo_in(session.conn, &primary_key).await?;
                if let Some(reply) = reply {
                    return Ok(reply);
                }
            } else {
                self.undo_in(session.conn, &primary_key).await?;
            }
        }
        let message = format!("a claim: others were quicker {TRIES} times; it may be sent again");
        let kind = StoreErrorKind::Unavailable;
        Err(TxError::Store(StoreError::new(kind, message)))
    }

    /// Decides on the record of an earlier claim. `None`: it has changed since; claim again.
    async fn take_over(
        &self,
        session: &mut ClaimSession<'_, B>,
        primary_key: &PrimaryKey,
        row: Row,
        request: &ClaimRequest,
    ) -> Result<Option<ClaimReply>, TxError> {
        let record = match row.record() {
            Ok(record) => record,
            Err(error) => return Ok(Some(ClaimReply::Unreadable(error))),
        };
        let current = record.as_ref().map(|(record, left)| Current {
            record,
            left: *left,
        });
        let (reply, write) = transition::claim(current, request, row.now_us);
        let Some(record) = write else {
            return Ok(Some(reply));
        };
        let columns = HeaderColumns::new(&half_way(record.header));
        let [layout, state, owner, fence, attempts, detail, retain, print] = columns.all();
        let [version, was_of, was] = row.last_write();
        let key = Argument::Bytes(primary_key);
        let life = Argument::Int(life_us(request.retain));
        let wait = Argument::Int(session.lock_wait);
        let arguments = [
            key, layout, state, owner, fence, attempts, detail, retain, print, life, wait, version,
            was_of, was,
        ];
        let ((begin, end), shared) = (B::DIALECT.wait, B::DIALECT.shared);
        let template = format!("{begin}{REPLACE}; {end}{READ}{shared}");
        let script = self.script(primary_key, &template, &arguments);
        match session.fetch(script).await {
            Ok(StatementReply { row: Some(row), .. }) if row.is_of(&request.owner) => {
                Ok(Some(reply))
            }
            Ok(_) => Ok(None),
            Err(error) => Err(self.claim_failed(session, primary_key, error).await),
        }
    }

    /// Determines the state of the transaction after a failed claim.
    async fn claim_failed(
        &self,
        session: &mut ClaimSession<'_, B>,
        primary_key: &PrimaryKey,
        error: sqlx::Error,
    ) -> TxError {
        let kind = error_kind::<B>(&error);
        let is_busy = error.as_database_error().is_some_and(B::is_busy);
        let store = store_error::<B>("a claim", error);
        match kind {
            // After a deadlock or a serialization failure the transaction is unusable.
            Some(SqlErrorKind::Collision) if !is_busy => {
                if !B::DIALECT.restore.is_empty() {
                    // The session outlives its transaction.
                    let _ = session.restore("").await;
                }
                TxError::Aborted(store)
            }
            Some(SqlErrorKind::Ended) | None => TxError::Aborted(store),
            Some(kind) => match session.restore(&named(primary_key, UNDO)).await {
                Ok(()) if is_busy => TxError::Busy,
                Ok(()) if kind == SqlErrorKind::Locked => TxError::Locked,
                Ok(()) => TxError::Store(store),
                Err(_) => TxError::Aborted(store),
            },
        }
    }
}

/// The connection of a claim.
///
/// Its setting for lock waits is restored, however the claim ends.
struct ClaimSession<'c, B: SqlDriver> {
    conn: &'c mut Conn<B>,
    /// `?11` of [`Dialect::wait`](crate::store::sql::dialect::Dialect::wait).
    lock_wait: i64,
    /// Whether only the client can restore the setting.
    is_own: bool,
    /// Whether the setting must be restored.
    is_changed: bool,
}

impl<'c, B: SqlDriver> ClaimSession<'c, B> {
    async fn new(conn: &'c mut Conn<B>, wait: Duration) -> Result<Self, TxError> {
        let own = B::own_lock_wait(conn).await;
        let own = own.map_err(|error| TxError::Aborted(store_error::<B>("a claim", error)))?;
        Ok(Self {
            conn,
            lock_wait: own.unwrap_or_else(|| (B::DIALECT.lock_wait)(wait)),
            is_own: own.is_some(),
            is_changed: false,
        })
    }

    /// Sends a script that changes the setting, and restores it unless it fails.
    async fn fetch(&mut self, script: String) -> Result<StatementReply, sqlx::Error> {
        self.is_changed = self.is_own;
        let answer = B::fetch_script(self.conn, script).await?;
        self.is_changed = false;
        Ok(answer)
    }

    /// Sends a script after one that failed.
    async fn restore(&mut self, script: &str) -> Result<(), sqlx::Error> {
        let restore = with_literals(
            B::DIALECT,
            B::DIALECT.restore,
            &[Argument::Int(self.lock_wait); 11],
        );
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
