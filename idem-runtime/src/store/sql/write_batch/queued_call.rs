//! A claim or a completion that waits for a connection, and may be sent with others.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use crate::store::sql::argument::{Argument, OwnedArgument};
use crate::store::sql::reply::StatementOutcome;
use crate::store::sql::statement::{BatchStatement, Statement};

/// The maximum number of calls of one statement.
const MAX_CALLS: usize = 64;
/// The text of a call in a script, besides its arguments, in bytes.
const TEXT: usize = 256;

/// A statement with its arguments, and the one that does the same for several calls.
#[derive(Debug)]
pub(crate) struct QueuedCall {
    pub(super) batch: Arc<BatchStatement>,
    arguments: Vec<OwnedArgument>,
}

/// A call of a batch. If `reply` is dropped, the call is sent alone.
#[derive(Debug)]
pub(crate) struct BatchMember {
    pub(super) call: QueuedCall,
    pub(super) reply: oneshot::Sender<StatementOutcome>,
}

/// The place of a call in a batch.
#[derive(Debug)]
pub(crate) struct TakenCall {
    /// Before the batch is sent.
    pub(crate) at: Instant,
    pub(super) outcome: oneshot::Receiver<StatementOutcome>,
}

impl QueuedCall {
    /// `None`: the statement is always sent alone.
    pub(crate) fn new(statement: &Statement, arguments: &[Argument<'_>]) -> Option<Self> {
        let batch = statement.batch.as_ref()?;
        let bytes = TEXT + arguments.iter().map(Argument::len).sum::<usize>();
        (bytes <= batch.most_bytes / MAX_CALLS).then(|| Self {
            batch: Arc::clone(batch),
            arguments: arguments.iter().map(OwnedArgument::from).collect(),
        })
    }

    /// The first argument. Two calls with the same are never in one batch.
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
    pub(crate) fn joins<W>(&self, first: &Self, others: &[(Self, W)]) -> bool {
        let mut all = others.iter().map(|(call, _)| call).chain([first]);
        others.len() + 1 < MAX_CALLS
            && all.all(|other| {
                Arc::ptr_eq(&self.batch, &other.batch) && self.primary_key() != other.primary_key()
            })
    }

    /// Makes it a member of a batch that is about to be sent.
    pub(crate) fn join(self, at: Instant) -> (BatchMember, TakenCall) {
        let (reply, outcome) = oneshot::channel();
        (BatchMember { call: self, reply }, TakenCall { at, outcome })
    }
}
