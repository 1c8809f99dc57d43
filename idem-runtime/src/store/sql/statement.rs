//! A statement, before and after its table is known.

#![allow(unnameable_types, reason = "part of a sealed trait")]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[cfg(feature = "sqlite")]
use super::sqlite::group_commit::multi_row::MultiRowStatement;

/// A cheap clone of the text of a statement.
pub(crate) type SqlText = Arc<str>;

/// A statement before its table is known.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct StatementTemplate {
    pub(crate) text: &'static str,
    pub(crate) kind: StatementKind,
}

/// How a statement is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatementKind {
    /// Prepared once a connection; returns at most one row.
    Fetch,
    /// Prepared once a connection; returns a row for each existing record of its keys.
    Several,
    /// Planned anew each time, by its arguments; returns a block of a listing.
    Block,
    /// Prepared once a connection; returns the number of changed rows.
    Execute,
    /// As `Execute`, and returns the time at which it changed a row, if it did.
    Grant,
    /// Inserts a record for each of several calls; returns the keys and the fences of those that it inserted.
    Grants,
    /// Several statements in one message, with the arguments written into the text.
    #[cfg(feature = "mysql")]
    Script,
}

/// A statement for a table.
#[derive(Debug)]
#[doc(hidden)]
pub struct Statement {
    pub(crate) text: SqlText,
    /// The argument of each parameter, for dialects without numbered parameters.
    pub(crate) order: Arc<[usize]>,
    pub(crate) kind: StatementKind,
    /// Whether its columns are known to have the expected types.
    pub(crate) is_known: AtomicBool,
    /// The statement that does the same for several calls.
    #[cfg(feature = "sqlite")]
    pub(crate) multi_row: Option<Arc<MultiRowStatement>>,
    /// The statement that does the same for several calls that wait for a connection.
    pub(crate) batch: Option<Arc<BatchStatement>>,
}

/// A statement for several calls.
#[derive(Debug)]
pub(crate) struct BatchStatement {
    pub(crate) statement: Statement,
    /// The maximum length of the arguments of all its calls.
    ///
    /// A call takes an equal share of it at most.
    pub(crate) most_bytes: usize,
}

#[cfg(feature = "sqlite")]
impl Statement {
    /// Whether it changes nothing.
    pub(crate) fn only_reads(&self) -> bool {
        matches!(
            self.kind,
            StatementKind::Fetch | StatementKind::Several | StatementKind::Block
        )
    }
}
