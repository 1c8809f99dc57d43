//! Claims and completions inside a transaction of the caller.
//!
//! A claim is a row that is invisible before the transaction is committed, and that other claims of the same key wait
//! for. Until the answer replaces it, it is an unknown outcome: if a transaction is committed after its call was
//! dropped half-way, nothing runs a second time.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use sqlx::Database;

use crate::identity::operation::RecordKey;
use crate::record::transition;
use crate::record::unknown_cause::Cause;
use crate::record::{Fence, HEADER, Header, OutcomeKind, State};
use crate::store::sql::backend::{Argument, SqlDriver, SqlErrorKind, StatementReply};
use crate::store::sql::claim::fresh;
use crate::store::sql::compare_and_write::kept;
use crate::store::sql::failure::{error_kind, store_error};
use crate::store::sql::row::{HeaderColumns, Row, life_us, primary_key, shown};
use crate::store::sql::transaction::SqlConnection;
use crate::store::sql::{SqlStore, SqlStoreState};
use crate::store::{ClaimReply, ClaimRequest, Current, StoreError};

type Conn<B> = <<B as SqlDriver>::Db as Database>::Connection;
type TxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, TxError>> + Send + 'a>>;

/// Why an operation failed.
#[derive(Debug)]
pub(crate) enum TxError {
    /// The transaction is of another database than the store.
    Elsewhere { store: &'static str },
    /// Another transaction holds the row for longer than this call waits. The caller's transaction can go on.
    Locked,
    /// Another connection holds the only lock for writing; the claim has not waited. The caller's transaction can go
    /// on.
    Busy,
    /// The transaction can only be rolled back.
    Aborted(StoreError),
    /// The store refuses, or is not available.
    Store(StoreError),
}

/// A store that can work inside a transaction of its database.
pub(crate) trait TransactionalStore: Send + Sync {
    /// Whether a claim beside another writer fails as [`TxError::Busy`].
    fn has_one_writer(&self) -> bool;

    /// Claims, and waits up to `wait` for a transaction that holds the row.
    fn claim_within<'a>(
        &'a self,
        conn: SqlConnection<'a>,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
        wait: Duration,
    ) -> TxFuture<'a, ClaimReply>;

    /// Stores `record`; before that undoes the writes of the body, if `undo` is set.
    fn complete_within<'a>(
        &'a self,
        conn: SqlConnection<'a>,
        key: &'a RecordKey,
        record: &'a Bytes,
        undo: bool,
    ) -> TxFuture<'a, ()>;

    /// Undoes everything since the claim, and the claim itself.
    fn undo_within<'a>(&'a self, conn: SqlConnection<'a>, key: &'a RecordKey) -> TxFuture<'a, ()>;
}

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

/// The scripts, with `{t}`, `{now}` and `{columns}` as in [`statement`](crate::store::sql::statement).
const READ: &str = "SELECT {columns} FROM {t} WHERE record_key = ?1";

const INSERT: &str = "(record_key, op, layout, state, owner, fence, attempts, detail, retain_ms, \
     fingerprint, body, expires_us, version) \
     VALUES (?1, ?2, ?3, ?4, ?5, {now}, ?6, ?7, ?8, ?9, NULL, {now} + ?10, 1)";

const REPLACE: &str = "UPDATE {t} SET layout = ?2, state = ?3, owner = ?4, fence = ?5, attempts = ?6, \
     detail = ?7, retain_ms = ?8, fingerprint = ?9, body = NULL, expires_us = {now} + ?10, \
     version = version + 1 WHERE record_key = ?1 AND version = ?12 AND owner = ?13 AND fence = ?14";

/// Before the answer is stored. That is a statement of its own, with parameters, because sqlx logs texts, and no answer
/// may be in a log.
const RELEASE: &str = "RELEASE SAVEPOINT {claim}";
const UNDO_BODY: &str = "ROLLBACK TO SAVEPOINT {body}";
const UNDO: &str = "ROLLBACK TO SAVEPOINT {claim}; RELEASE SAVEPOINT {claim}";

/// A text with its savepoints named. Each key has its own, because in MySQL a savepoint replaces another of its name,
/// which for a call within a body would be the outer call's.
fn named(primary_key: &[u8], text: &str) -> String {
    // From the operation, where a place begins, and the digest, where it ends.
    let number = match (primary_key.first_chunk(), primary_key.last_chunk()) {
        (Some(operation), Some(digest)) => {
            u64::from_be_bytes(*operation) ^ u64::from_be_bytes(*digest)
        }
        _ => 0,
    };
    text.replace("{claim}", &format!("idem_claim_{number:016x}"))
        .replace("{body}", &format!("idem_body_{number:016x}"))
}

/// The connection of a claim.
///
/// Its setting for lock waits is restored, however the claim ends.
struct ClaimSession<'c, B: SqlDriver> {
    conn: &'c mut Conn<B>,
    /// `?11` of [`SqlDriver::WAIT`].
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
            lock_wait: own.unwrap_or_else(|| B::lock_wait(wait)),
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
        let restore = crate::store::sql::parameters::written::<B>(
            B::RESTORE,
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

/// How often a claim begins again because another write came first.
const TRIES: usize = 100;

impl<B: SqlDriver> SqlStoreState<B> {
    /// A script with its arguments filled in.
    fn script(&self, primary_key: &[u8], template: &str, arguments: &[Argument<'_>]) -> String {
        let text = crate::store::sql::statement::filled::<B>(
            template,
            &self.table,
            self.reads_bytes - HEADER,
        );
        crate::store::sql::parameters::written::<B>(&named(primary_key, &text), arguments)
    }

    async fn claim_in(
        &self,
        conn: &mut Conn<B>,
        key: &RecordKey,
        request: &ClaimRequest,
        wait: Duration,
    ) -> Result<ClaimReply, TxError> {
        let primary_key = primary_key(key);
        let first = half_way(fresh(request));
        let columns = HeaderColumns::new(&first);
        let shown = shown(key);
        let mut session = ClaimSession::<B>::new(conn, wait).await?;
        let mut arguments = columns.claim(&primary_key, &shown).to_vec();
        arguments.push(Argument::Int(session.lock_wait));
        let insert = B::INSERT_WITHIN.replace("{values}", INSERT);
        let (begin, end, read) = (B::WAIT.0, B::WAIT.1, READ.to_owned() + B::SHARED);
        let check = B::IN_TRANSACTION;
        let template =
            format!("SAVEPOINT {{claim}}; {check}{begin}{insert}; {end}SAVEPOINT {{body}}; {read}");
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
                        fence: Fence::new(row.written_by().1.unsigned_abs()),
                        attempt: first.attempts,
                        fresh: true,
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
        let kind = crate::store::StoreErrorKind::Unavailable;
        Err(TxError::Store(StoreError::new(kind, message)))
    }

    /// Decides on the record of an earlier claim. `None`: it has changed since; claim again.
    async fn take_over(
        &self,
        session: &mut ClaimSession<'_, B>,
        primary_key: &[u8],
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
        let Some(header) = write else {
            return Ok(Some(reply));
        };
        let columns_of = half_way(header);
        let columns = HeaderColumns::new(&columns_of);
        let (owner, fence) = row.written_by();
        let arguments = [
            Argument::Bytes(primary_key),
            columns.layout(),
            columns.state(),
            columns.owner(),
            columns.fence(),
            columns.attempts(),
            columns.detail(),
            columns.retain_ms(),
            columns.fingerprint(),
            Argument::Int(life_us(request.retain)),
            Argument::Int(session.lock_wait),
            Argument::Int(row.version),
            Argument::Bytes(owner),
            Argument::Int(fence),
        ];
        let (begin, end, read) = (B::WAIT.0, B::WAIT.1, READ.to_owned() + B::SHARED);
        let script = self.script(
            primary_key,
            &format!("{begin}{REPLACE}; {end}{read}"),
            &arguments,
        );
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
        primary_key: &[u8],
        error: sqlx::Error,
    ) -> TxError {
        let kind = error_kind::<B>(&error);
        let is_busy = error.as_database_error().is_some_and(B::is_busy);
        let store = store_error::<B>("a claim", error);
        match kind {
            // After a deadlock or a serialization failure the transaction is unusable.
            Some(SqlErrorKind::Collision) if !is_busy => {
                if !B::RESTORE.is_empty() {
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

    async fn complete_in(
        &self,
        conn: &mut Conn<B>,
        key: &RecordKey,
        record: &Bytes,
        undo: bool,
    ) -> Result<(), TxError> {
        const WHAT: &str = "storing the answer in the transaction";
        let done = match Header::decode(record) {
            Ok(done) => done,
            Err(error) => {
                let kind = crate::store::StoreErrorKind::Protocol;
                return Err(TxError::Aborted(StoreError::new(kind, error.to_string())));
            }
        };
        let (primary_key, columns) = (primary_key(key), HeaderColumns::new(&done));
        let arguments = [
            Argument::Bytes(&primary_key),
            columns.state(),
            columns.detail(),
            columns.retain_ms(),
            kept(&done, &record[HEADER..]),
            Argument::Int(life_us(done.retain)),
            columns.owner(),
            columns.fence(),
        ];
        let before = match (undo, B::RELEASES) {
            (true, true) => format!("{UNDO_BODY}; {RELEASE}"),
            (true, false) => UNDO_BODY.to_owned(),
            (false, true) => RELEASE.to_owned(),
            (false, false) => String::new(),
        };
        let stored = async {
            // Fails if the transaction is over, so that no answer is committed by itself.
            if !before.is_empty() {
                B::execute_script(conn, named(&primary_key, &before)).await?;
            }
            let stored = B::run(conn, &self.statements.complete_within, &arguments).await?;
            Ok(stored.affected)
        };
        match stored.await {
            Ok(0) => Err(ended(WHAT)),
            Ok(_) => Ok(()),
            Err(error) => Err(TxError::Aborted(store_error::<B>(WHAT, error))),
        }
    }

    async fn undo_in(&self, conn: &mut Conn<B>, primary_key: &[u8]) -> Result<(), TxError> {
        let undone = B::execute_script(conn, named(primary_key, UNDO)).await;
        undone.map(drop).map_err(|error| {
            TxError::Aborted(store_error::<B>(
                "undoing its part of the transaction",
                error,
            ))
        })
    }
}

fn ended(what: &str) -> TxError {
    let message = format!(
        "{what}: its record is out of reach: the body has ended the transaction, or an error in it has"
    );
    let kind = crate::store::StoreErrorKind::Unavailable;
    TxError::Aborted(StoreError::new(kind, message))
}

fn connection_to<B: SqlDriver>(conn: SqlConnection<'_>) -> Result<&mut Conn<B>, TxError> {
    B::connection(conn).ok_or(TxError::Elsewhere { store: B::NAME })
}

impl<B: SqlDriver> TransactionalStore for SqlStore<B> {
    fn has_one_writer(&self) -> bool {
        B::WAITS
    }

    fn claim_within<'a>(
        &'a self,
        conn: SqlConnection<'a>,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
        wait: Duration,
    ) -> TxFuture<'a, ClaimReply> {
        Box::pin(async move {
            let conn = connection_to::<B>(conn)?;
            self.0.claim_in(conn, key, request, wait).await
        })
    }

    fn complete_within<'a>(
        &'a self,
        conn: SqlConnection<'a>,
        key: &'a RecordKey,
        record: &'a Bytes,
        undo: bool,
    ) -> TxFuture<'a, ()> {
        Box::pin(async move {
            let conn = connection_to::<B>(conn)?;
            self.0.complete_in(conn, key, record, undo).await
        })
    }

    fn undo_within<'a>(&'a self, conn: SqlConnection<'a>, key: &'a RecordKey) -> TxFuture<'a, ()> {
        Box::pin(async move {
            let conn = connection_to::<B>(conn)?;
            self.0.undo_in(conn, &primary_key(key)).await
        })
    }
}
