//! A queued statement of a group commit.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::multi_row::MultiRowStatement;
use crate::store::sql::argument::{OwnedArgument, SqlArgument};
use crate::store::sql::statement::StatementOutcome;
use crate::store::sql::statement::{SqlText, Statement};

/// The maximum number of statements of a transaction.
///
/// Other writers of the file wait for it.
pub(super) const MAX_BATCH: usize = 512;

/// A queued statement.
pub(super) struct QueuedStatement {
    pub(super) what: &'static str,
    pub(super) text: SqlText,
    pub(super) order: Arc<[usize]>,
    pub(super) multi_row: Option<Arc<MultiRowStatement>>,
    pub(super) arguments: Vec<OwnedArgument>,
    reply: oneshot::Sender<StatementOutcome>,
}

impl QueuedStatement {
    pub(super) fn new(
        what: &'static str,
        statement: &Statement,
        arguments: &[SqlArgument<'_>],
    ) -> (Self, oneshot::Receiver<StatementOutcome>) {
        let (reply, receiver) = oneshot::channel();
        let queued = Self {
            what,
            text: Arc::clone(&statement.text),
            order: Arc::clone(&statement.order),
            multi_row: statement.multi_row.clone(),
            arguments: arguments.iter().map(OwnedArgument::from).collect(),
            reply,
        };
        (queued, receiver)
    }

    /// Whether its caller has given up.
    pub(super) fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    /// Sends the outcome. Its caller may have given up.
    pub(super) fn reply(self, outcome: StatementOutcome) {
        let _ = self.reply.send(outcome);
    }
}
