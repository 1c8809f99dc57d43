//! A claim inside a transaction of the caller.

use std::time::Duration;

use crate::identity::operation::RecordKey;
use crate::record::transition;
use crate::record::unknown_cause::Cause;
use crate::record::{HEADER, Header, OutcomeKind, State};
use crate::store::sql::argument::SqlArgument;
use crate::store::sql::claim::{fresh, granted};
use crate::store::sql::columns::{HeaderColumns, displayed_operation, life_us};
use crate::store::sql::compare_and_write::overtaken;
use crate::store::sql::dialect::Dialect;
use crate::store::sql::error::SqlError;
use crate::store::sql::error_kind::SqlErrorKind;
use crate::store::sql::failure::store_error;
use crate::store::sql::in_transaction::TxError;
use crate::store::sql::in_transaction::store::{UNDO, named};
use crate::store::sql::primary_key::{PrimaryKey, primary_key};
use crate::store::sql::row::Row;
use crate::store::sql::session::{SqlSession, execute, row};
use crate::store::sql::state::SqlStoreState;
use crate::store::sql::statement::fetch_row;
use crate::store::sql::statement_texts::READ;
use crate::store::sql::template::with_literals;
use crate::store::{ClaimReply, ClaimRequest, Current};

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
const INSERT: &str =
    "{record} VALUES (?1, ?2, ?3, ?4, ?5, {now}, ?6, ?7, ?8, ?9, NULL, {now} + ?10, 1)";

const REPLACE: &str = "UPDATE {t} SET layout = ?2, state = ?3, owner = ?4, fence = ?5, attempts = ?6, \
     detail = ?7, retain_ms = ?8, fingerprint = ?9, {stored} = CASE WHEN ?2 <> 50 THEN {stored} END, expires_us = {now} + ?10, \
     version = version + 1 WHERE record_key = ?1 AND version = ?12 AND owner = ?13 AND fence = ?14";

/// How often a claim begins again after a concurrent write.
const TRIES: usize = 100;

impl SqlStoreState {
    /// A script with its arguments filled in.
    fn script(
        &self,
        primary_key: &PrimaryKey,
        template: &str,
        arguments: &[SqlArgument<'_>],
    ) -> String {
        let text = self
            .dialect
            .filled(template, &self.table, self.reads_bytes - HEADER);
        with_literals(self.dialect, &named(primary_key, &text), arguments)
    }

    /// Claims, and waits up to `wait` for a transaction with the row.
    pub(crate) async fn claim_within(
        &self,
        session: &mut dyn SqlSession,
        key: &RecordKey,
        request: &ClaimRequest,
        wait: Duration,
    ) -> Result<ClaimReply, TxError> {
        self.check(session)?;
        let primary_key = primary_key(key);
        let first = half_way(fresh(request));
        let columns = HeaderColumns::new(&first);
        let shown = displayed_operation(key);
        let mut session = ClaimSession::new(session, wait).await?;
        let mut arguments = columns.claim(&primary_key, &shown).to_vec();
        arguments.push(SqlArgument::Int(session.lock_wait));
        let insert = self.dialect.insert_within.replace("{values}", INSERT);
        let ((begin, end), shared) = (self.dialect.wait, self.dialect.shared);
        let check = format!("{}{}", self.dialect.in_transaction, self.one_table);
        let template = format!(
            "SAVEPOINT {{claim}}; {check}{begin}{insert}; {end}SAVEPOINT {{body}}; {READ}{shared}"
        );
        let script = self.script(&primary_key, &template, &arguments);
        for _ in 0..TRIES {
            let row = match session.fetch(script.clone()).await {
                Ok(row) => row,
                Err(error) => {
                    return Err(self.claim_failed(&mut session, &primary_key, error).await);
                }
            };
            if let Some(row) = row {
                if row.is_of(&request.owner) {
                    return Ok(granted(row.fence()));
                }
                if let Err(error) = row.readable(self.reads_bytes) {
                    self.undo_within(session.session, key).await?;
                    return Err(TxError::Store(error));
                }
                let reply = self
                    .take_over(&mut session, &primary_key, row, request)
                    .await?;
                if let Some(ClaimReply::Granted { .. }) = reply {
                    return Ok(reply.expect("just matched"));
                }
                self.undo_within(session.session, key).await?;
                if let Some(reply) = reply {
                    return Ok(reply);
                }
            } else {
                self.undo_within(session.session, key).await?;
            }
        }
        Err(TxError::Store(overtaken("a claim", TRIES)))
    }

    /// Decides on the record of an earlier claim. `None`: it has changed since; claim again.
    async fn take_over(
        &self,
        session: &mut ClaimSession<'_>,
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
        let key = SqlArgument::Bytes(primary_key);
        let life = SqlArgument::Int(life_us(request.retain));
        let wait = SqlArgument::Int(session.lock_wait);
        let arguments = [
            key, layout, state, owner, fence, attempts, detail, retain, print, life, wait, version,
            was_of, was,
        ];
        let ((begin, end), shared) = (self.dialect.wait, self.dialect.shared);
        let template = format!("{begin}{REPLACE}; {end}{READ}{shared}");
        let script = self.script(primary_key, &template, &arguments);
        match session.fetch(script).await {
            Ok(Some(row)) if row.is_of(&request.owner) => Ok(Some(reply)),
            Ok(_) => Ok(None),
            Err(error) => Err(self.claim_failed(session, primary_key, error).await),
        }
    }

    /// Determines the state of the transaction after a failed claim.
    async fn claim_failed(
        &self,
        session: &mut ClaimSession<'_>,
        primary_key: &PrimaryKey,
        error: SqlError,
    ) -> TxError {
        let kind = error.kind();
        let store = store_error(self.dialect, "a claim", error);
        match kind {
            // After a deadlock or a serialization failure the transaction is unusable.
            Some(SqlErrorKind::Collision { goes_on: false }) => {
                if !self.dialect.restore.is_empty() {
                    // The session outlives its transaction.
                    let _ = session.restore("").await;
                }
                TxError::Aborted(store)
            }
            Some(SqlErrorKind::Ended) | None => TxError::Aborted(store),
            Some(kind) => match session.restore(&named(primary_key, UNDO)).await {
                Ok(()) => match kind {
                    SqlErrorKind::Collision { .. } => TxError::Busy,
                    SqlErrorKind::Locked => TxError::Locked,
                    _ => TxError::Store(store),
                },
                Err(_) => TxError::Aborted(store),
            },
        }
    }
}

/// The session of a claim.
///
/// Its setting for lock waits is restored, however the claim ends.
struct ClaimSession<'c> {
    session: &'c mut dyn SqlSession,
    dialect: &'static Dialect,
    /// `?11` of [`Dialect::wait`](crate::store::sql::dialect::Dialect::wait).
    lock_wait: i64,
    /// Whether only the client can restore the setting.
    is_own: bool,
    /// Whether the setting must be restored.
    is_changed: bool,
}

impl<'c> ClaimSession<'c> {
    async fn new(session: &'c mut dyn SqlSession, wait: Duration) -> Result<Self, TxError> {
        let dialect = session.dialect();
        let is_own = !dialect.own_lock_wait.is_empty();
        let lock_wait = if is_own {
            let own = row(session, dialect.own_lock_wait, |row| row.number(0)).await;
            own.map_err(|error| TxError::Aborted(store_error(dialect, "a claim", error)))?
        } else {
            (dialect.lock_wait)(wait)
        };
        Ok(Self {
            session,
            dialect,
            lock_wait,
            is_own,
            is_changed: false,
        })
    }

    /// Sends a script that changes the setting, and restores it on success.
    async fn fetch(&mut self, script: String) -> Result<Option<Row>, SqlError> {
        self.is_changed = self.is_own;
        let row = fetch_row(self.session, script).await?;
        self.is_changed = false;
        Ok(row)
    }

    /// Sends a script after a failed one.
    async fn restore(&mut self, script: &str) -> Result<(), SqlError> {
        let script = self.restoring() + script;
        execute(self.session, script).await?;
        self.is_changed = false;
        Ok(())
    }

    fn restoring(&self) -> String {
        let arguments = [SqlArgument::Int(self.lock_wait); 11];
        with_literals(self.dialect, self.dialect.restore, &arguments)
    }
}

impl Drop for ClaimSession<'_> {
    fn drop(&mut self) {
        if self.is_changed {
            let restoring = self.restoring();
            self.session.start_script(restoring);
        }
    }
}
