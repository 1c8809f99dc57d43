//! A statement that waits for a connection, and may be sent with others of its kind.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use super::argument::{Argument, OwnedArgument};
use super::statement::{BatchStatement, Statement, StatementOutcome};

/// The text of a call in a script, besides its arguments, in bytes.
const TEXT: usize = 256;

/// A statement with its arguments, and the one that does the same for several calls.
#[derive(Debug)]
pub(super) struct QueuedCall {
    pub(super) batch: Arc<BatchStatement>,
    arguments: Vec<OwnedArgument>,
}

/// A call of a batch. If `reply` is dropped, the call is sent alone.
#[derive(Debug)]
pub(super) struct BatchMember {
    pub(super) call: QueuedCall,
    pub(super) reply: oneshot::Sender<StatementOutcome>,
}

/// The place of a call in a batch.
#[derive(Debug)]
pub(super) struct TakenCall {
    /// Before the batch is sent.
    pub(super) at: Instant,
    pub(super) outcome: oneshot::Receiver<StatementOutcome>,
}

impl QueuedCall {
    /// `None`: the statement is always sent alone.
    pub(super) fn new(statement: &Statement, arguments: &[Argument<'_>]) -> Option<Self> {
        let batch = statement.batch.as_ref()?;
        let bytes = TEXT + arguments.iter().map(Argument::len).sum::<usize>();
        (bytes <= batch.most_bytes).then(|| Self {
            batch: Arc::clone(batch),
            arguments: arguments.iter().map(OwnedArgument::from).collect(),
        })
    }

    /// The first argument. Two writes with the same are never in one batch.
    pub(super) fn primary_key(&self) -> &[u8] {
        match self.arguments.first() {
            Some(OwnedArgument::Bytes(primary_key)) => primary_key,
            _ => &[],
        }
    }

    pub(super) fn arguments(&self) -> Vec<Argument<'_>> {
        self.arguments.iter().map(OwnedArgument::borrow).collect()
    }

    /// Whether it may be sent together with these.
    pub(super) fn joins<W>(&self, first: &Self, others: &[(Self, W)]) -> bool {
        let mut all = others.iter().map(|(call, _)| call).chain([first]);
        Arc::ptr_eq(&self.batch, &first.batch)
            && others.len() + 1 < self.batch.width()
            && (self.batch.only_reads()
                || all.all(|other| self.primary_key() != other.primary_key()))
    }

    /// Makes it a member of a batch that is about to be sent.
    pub(super) fn join(self, at: Instant) -> (BatchMember, TakenCall) {
        let (reply, outcome) = oneshot::channel();
        (BatchMember { call: self, reply }, TakenCall { at, outcome })
    }
}
