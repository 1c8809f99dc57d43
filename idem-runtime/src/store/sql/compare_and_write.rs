//! Compare-and-set: reads a record, decides, and writes unless the record has changed since.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::argument::SqlArgument;
use super::columns::{HeaderColumns, displayed_operation, life_us, stored_body};
use super::error_kind::SqlErrorKind;
use super::pool::ConnectionPool;
use super::primary_key::{PrimaryKey, primary_key};
use super::queue::Priority;
use super::row::Row;
use super::state::SqlStoreState;
use super::statement::{Statement, StatementOutcome};
use crate::identity::operation::RecordKey;
use crate::record::{HEADER, Header, Journal, Record, State, Unreadable};
use crate::store::{Current, StoreError, StoreErrorKind};

/// How often an operation begins again after a concurrent write.
///
/// Each time another caller made progress.
pub(super) const TRIES: usize = 1_000;

/// Longer than a server takes to write its log.
const YOUNG: Duration = Duration::from_secs(3);

/// The write of an operation.
pub(super) struct RecordWrite {
    pub(super) header: Header,
    /// The answer or the journal.
    pub(super) body: Bytes,
    /// The life of the record; `None`: its remaining life.
    pub(super) life: Option<Duration>,
}

impl RecordWrite {
    /// Writes another header, and keeps the journal.
    pub(super) fn header(header: Header, current: Option<Current<'_>>) -> Self {
        let journal = current.map_or_else(Journal::default, |current| current.record.journal());
        Self {
            header,
            body: journal.as_bytes().clone(),
            life: Some(header.retain),
        }
    }

    /// Writes a whole record.
    pub(super) fn record(record: Record) -> Self {
        let header = record.header;
        Self {
            header,
            body: record.into_bytes().slice(HEADER..),
            life: Some(header.retain),
        }
    }
}

/// An operation on a record: its pool, its purpose and the record.
pub(super) struct RecordAccess<'a> {
    pub(super) pool: &'a Arc<ConnectionPool>,
    /// Its name, for errors.
    pub(super) what: &'static str,
    priority: Priority<'a>,
    pub(super) key: &'a RecordKey,
    pub(super) primary_key: PrimaryKey,
}

impl<'a> RecordAccess<'a> {
    pub(super) fn new(
        pool: &'a Arc<ConnectionPool>,
        (what, priority): (&'static str, Priority<'a>),
        key: &'a RecordKey,
    ) -> Self {
        Self {
            pool,
            what,
            priority,
            key,
            primary_key: primary_key(key),
        }
    }

    /// The purpose of its next statement. A claim that has sent one continues with the priority of an ending.
    pub(super) fn purpose(&self) -> (&'static str, Priority<'a>) {
        (self.what, self.priority.of_next())
    }

    /// Sends a statement. Whether it changed the record.
    pub(super) async fn changes(
        &self,
        statement: &Statement,
        arguments: &[SqlArgument<'_>],
    ) -> Result<bool, StoreError> {
        let sent = self.pool.run(self.purpose(), statement, arguments);
        Ok(sent.await?.affected > 0)
    }
}

/// A decision on the record that was read.
pub(super) type Decision<T> = (T, Option<RecordWrite>);

impl SqlStoreState {
    /// Ensures that a done record is in the server's log.
    ///
    /// Called before it is replayed, because otherwise a server that loses it would have shown an answer that never
    /// existed.
    pub(super) async fn ensure_logged(
        &self,
        access: &RecordAccess<'_>,
        record: &Record,
        left: Duration,
    ) -> Result<(), StoreError> {
        let done = matches!(record.header.state, State::Done { .. });
        if self.dialect.shows_early && done && record.header.age(left) < YOUNG {
            // A later commit reaches the log later.
            return match self.touch(access).await {
                // A read-only server has the answer from the log of another.
                Err((Some(SqlErrorKind::ReadOnly), _)) => Ok(()),
                touched => touched.map(drop).map_err(|(_, error)| error),
            };
        }
        Ok(())
    }

    /// Writes to the record without consequence. Fails on a read-only server, also if it does not exist.
    pub(super) async fn touch(&self, access: &RecordAccess<'_>) -> StatementOutcome {
        let here = [SqlArgument::Bytes(&access.primary_key)];
        let statement = &self.statements.touch;
        (access.pool).send(access.purpose(), statement, &here).await
    }

    /// Reads the row of the record.
    pub(super) async fn read_row(
        &self,
        access: &RecordAccess<'_>,
    ) -> Result<Option<Row>, StoreError> {
        let here = [SqlArgument::Bytes(&access.primary_key)];
        let statement = &self.statements.read;
        let read = access.pool.run(access.purpose(), statement, &here);
        Ok(read.await?.row)
    }

    /// Reads the record, lets `decide` choose the header to write, and writes.
    ///
    /// Begins again if the record has changed since it was read.
    pub(super) async fn compare_and_write<T>(
        &self,
        access: &RecordAccess<'_>,
        mut found: Option<Row>,
        decide: impl Fn(Option<Current<'_>>, u64) -> Decision<T>,
        unreadable: impl Fn(Unreadable) -> T,
    ) -> Result<T, StoreError> {
        for _ in 0..TRIES {
            let row = match found.take() {
                Some(row) => Some(row),
                None => self.read_row(access).await?,
            };
            if let Some(row) = &row {
                row.readable(self.reads_bytes)?;
            }
            let record = match row.as_ref().map(Row::record).transpose() {
                Ok(record) => record.flatten(),
                Err(error) => return Ok(unreadable(error)),
            };
            let current = record.as_ref().map(|(record, left)| Current {
                record,
                left: *left,
            });
            let now_us = row.as_ref().map_or(0, |row| row.now_us);
            let (reply, write) = decide(current, now_us);
            let Some(write) = write else {
                return Ok(reply);
            };
            // Boxed, because it is rare: most decisions write nothing.
            if Box::pin(self.write(access, row.as_ref(), &write)).await? {
                return Ok(reply);
            }
        }
        Err(overtaken(access.what, TRIES))
    }

    /// Replaces this row, or inserts one. Whether the record was as expected.
    async fn write(
        &self,
        access: &RecordAccess<'_>,
        row: Option<&Row>,
        write: &RecordWrite,
    ) -> Result<bool, StoreError> {
        let columns = HeaderColumns::new(&write.header);
        let [layout, state, owner, fence, attempts, detail, retain, print] = columns.all();
        let key = SqlArgument::Bytes(&access.primary_key);
        let body = stored_body(&write.header, &write.body);
        if let Some(row) = row {
            let life = SqlArgument::Int(write.life.map_or(-1, life_us));
            let [version, was_of, was] = row.last_write();
            let arguments = [
                key, layout, state, owner, fence, attempts, detail, retain, print, body, life,
                version, was_of, was,
            ];
            return access.changes(&self.statements.replace, &arguments).await;
        }
        let shown = displayed_operation(access.key);
        let life = SqlArgument::Int(life_us(write.life.unwrap_or_default()));
        let shown = SqlArgument::Text(&shown);
        let arguments = [
            key, shown, layout, state, owner, fence, attempts, detail, retain, print, body, life,
        ];
        access.changes(&self.statements.insert, &arguments).await
    }
}

/// The error of an operation that so many concurrent writes have preceded.
pub(super) fn overtaken(what: &str, tries: usize) -> StoreError {
    let message = format!(
        "{what}: the record has changed between its read and its write {tries} times, or a trigger or a policy of the \
         table hides the row or prevents the write; it may be sent again"
    );
    StoreError::new(StoreErrorKind::Unavailable, message)
}
