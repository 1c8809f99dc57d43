//! A statement that waits for a connection, alone or in a batch.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::argument::{OwnedArgument, SqlArgument};
use super::statement::{BatchStatement, Statement};

/// The bytes of a call in a script, besides its arguments.
const TEXT: usize = 256;

/// A statement with its arguments, and the statement of its batch.
#[derive(Debug)]
pub(super) struct QueuedCall {
    pub(super) batch: Arc<BatchStatement>,
    arguments: Vec<OwnedArgument>,
    /// When another statement took it along.
    pub(super) taken: Arc<OnceLock<Instant>>,
}

impl QueuedCall {
    /// `None`: the statement is always sent alone.
    pub(super) fn new(statement: &Statement, arguments: &[SqlArgument<'_>]) -> Option<Self> {
        let batch = statement.batch.as_ref()?;
        let bytes = TEXT + arguments.iter().map(SqlArgument::len).sum::<usize>();
        (bytes <= batch.most_bytes).then(|| Self {
            batch: Arc::clone(batch),
            arguments: arguments.iter().map(OwnedArgument::from).collect(),
            taken: Arc::default(),
        })
    }

    /// The first argument. Outside of SQLite two writes with the same are never in one batch, because otherwise they would
    /// affect one row.
    pub(super) fn primary_key(&self) -> &[u8] {
        match self.arguments.first() {
            Some(OwnedArgument::Bytes(primary_key)) => primary_key,
            _ => &[],
        }
    }

    pub(super) fn arguments(&self) -> Vec<SqlArgument<'_>> {
        self.arguments.iter().map(OwnedArgument::borrow).collect()
    }

    #[cfg(feature = "_sqlite")]
    pub(super) fn argument(&self, index: usize) -> Option<SqlArgument<'_>> {
        self.arguments.get(index).map(OwnedArgument::borrow)
    }

    /// Whether it may be sent together with this one.
    pub(super) fn joins(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.batch, &other.batch)
            && (self.batch.only_reads() || self.primary_key() != other.primary_key())
    }
}
