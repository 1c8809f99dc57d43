//! Compare-and-set: reads a record, decides, and writes unless the record has changed since.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::argument::Argument;
use super::backend::SqlDriver;
use super::columns::{HeaderColumns, displayed_operation, life_us, stored_body};
use super::error_kind::SqlErrorKind;
use super::pool::ConnectionPool;
use super::primary_key::{PrimaryKey, primary_key};
use super::priority::Priority;
use super::reply::StatementReply;
use super::row::Row;
use super::state::SqlStoreState;
use super::statement::Statement;
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
pub(super) struct RecordAccess<'a, B: SqlDriver> {
    pub(super) pool: &'a Arc<ConnectionPool<B>>,
    /// Its name, for errors.
    pub(super) what: &'static str,
    priority: Priority<'a>,
    pub(super) key: &'a RecordKey,
    pub(super) primary_key: PrimaryKey,
}

impl<'a, B: SqlDriver> RecordAccess<'a, B> {
    pub(super) fn new(
        pool: &'a Arc<ConnectionPool<B>>,
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
        match self.priority {
            Priority::Claim(admission) if admission.was_sent() => (self.what, Priority::Ending),
            priority => (self.what, priority),
        }
    }

    pub(super) async fn run(
        &self,
        statement: &Statement,
        arguments: &[Argument<'_>],
    ) -> Result<StatementReply, StoreError> {
        self.pool.run(self.purpose(), statement, arguments).await
    }
}

/// A decision on the record that was read.
pub(super) type Decision<T> = (T, Option<RecordWrite>);

impl<B: SqlDriver> SqlStoreState<B> {
    /// Ensures that a done record is in the server's log.
    ///
    /// Called before it is replayed, because otherwise a server that loses it would have shown an answer that never
    /// existed.
    pub(super) async fn ensure_logged(
        &self,
        access: &RecordAccess<'_, B>,
        record: &Record,
        left: Duration,
    ) -> Result<(), StoreError> {
        let done = matches!(record.header.state, State::Done { .. });
        if B::SHOWS_EARLY && done && record.header.age(left) < YOUNG {
            // A later commit reaches the log later.
            let here = [Argument::Bytes(&access.primary_key)];
            let touched = access
                .pool
                .send(access.purpose(), &self.statements.touch, &here);
            match touched.await {
                // A read-only server has the answer from the log of another.
                Ok(_) | Err((Some(SqlErrorKind::ReadOnly), _)) => {}
                Err((_, error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Fails on a read-only server, by a write to a record that does not exist.
    pub(super) async fn ensure_writable(
        &self,
        access: &RecordAccess<'_, B>,
    ) -> Result<(), StoreError> {
        let here = [Argument::Bytes(&access.primary_key)];
        let touched = access
            .pool
            .send(access.purpose(), &self.statements.touch, &here);
        touched.await.map(|_| ()).map_err(|(_, error)| error)
    }

    /// Reads the row of the record.
    pub(super) async fn read_row(
        &self,
        access: &RecordAccess<'_, B>,
    ) -> Result<Option<Row>, StoreError> {
        (access.pool)
            .read(access.purpose(), &self.statements, &access.primary_key)
            .await
    }

    /// Reads the record, lets `decide` choose the header to write, and writes.
    ///
    /// Begins again if the record has changed since it was read.
    pub(super) async fn compare_and_write<T>(
        &self,
        access: &RecordAccess<'_, B>,
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
            let done = match &row {
                Some(row) => Box::pin(self.replace(access, row, &write)).await?,
                None => Box::pin(self.insert(access, &write)).await?,
            };
            if done {
                return Ok(reply);
            }
        }
        Err(overtaken(access.what))
    }

    async fn replace(
        &self,
        access: &RecordAccess<'_, B>,
        row: &Row,
        write: &RecordWrite,
    ) -> Result<bool, StoreError> {
        let columns = HeaderColumns::new(&write.header);
        let (owner, fence) = row.written_by();
        let arguments = [
            Argument::Bytes(&access.primary_key),
            columns.layout(),
            columns.state(),
            columns.owner(),
            columns.fence(),
            columns.attempts(),
            columns.detail(),
            columns.retain_ms(),
            columns.fingerprint(),
            stored_body(&write.header, &write.body),
            Argument::Int(write.life.map_or(-1, life_us)),
            Argument::Int(row.version),
            Argument::Bytes(owner),
            Argument::Int(fence),
        ];
        let answer = access.run(&self.statements.replace, &arguments).await?;
        Ok(answer.affected > 0)
    }

    async fn insert(
        &self,
        access: &RecordAccess<'_, B>,
        write: &RecordWrite,
    ) -> Result<bool, StoreError> {
        let columns = HeaderColumns::new(&write.header);
        let arguments = [
            Argument::Bytes(&access.primary_key),
            Argument::Text(&displayed_operation(access.key)),
            columns.layout(),
            columns.state(),
            columns.owner(),
            columns.fence(),
            columns.attempts(),
            columns.detail(),
            columns.retain_ms(),
            columns.fingerprint(),
            stored_body(&write.header, &write.body),
            Argument::Int(life_us(write.life.unwrap_or_default())),
        ];
        let answer = access.run(&self.statements.insert, &arguments).await?;
        Ok(answer.affected > 0)
    }
}

pub(super) fn overtaken(what: &str) -> StoreError {
    let message = format!("{what}: others were quicker {TRIES} times; it may be sent again");
    StoreError::new(StoreErrorKind::Unavailable, message)
}
