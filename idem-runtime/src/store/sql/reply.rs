//! The reply to a statement.

#![allow(unnameable_types, reason = "part of a sealed trait")]

use super::error_kind::SqlErrorKind;
use super::primary_key::PrimaryKey;
use super::row::Row;
use crate::store::StoreError;

/// The reply to a statement.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct StatementReply {
    pub(crate) affected: u64,
    pub(crate) row: Option<Row>,
    /// The time at which a row was changed, which is the fence of an inserted record.
    pub(crate) granted: Option<i64>,
    /// The existing records of a read of several keys.
    pub(crate) rows: Vec<(PrimaryKey, Row)>,
    /// The keys and the fences of the records that a batch of claims has inserted.
    pub(crate) grants: Vec<(PrimaryKey, i64)>,
    /// A block of a listing, with the operation of each record as the table has it.
    pub(crate) block: Vec<(PrimaryKey, String, Row)>,
}

impl StatementReply {
    /// The database's time, in microseconds, if the reply has it.
    pub(crate) fn now_us(&self) -> Option<u64> {
        let row = self.row.as_ref().or(self.rows.first().map(|(_, row)| row));
        let granted = self
            .granted
            .or(self.grants.first().map(|(_, fence)| *fence));
        let granted = granted.and_then(|micros| u64::try_from(micros).ok());
        row.map(|row| row.now_us).or(granted)
    }
}

/// The outcome of a statement, with the kind of a server's error.
pub(crate) type StatementOutcome = Result<StatementReply, (Option<SqlErrorKind>, StoreError)>;
