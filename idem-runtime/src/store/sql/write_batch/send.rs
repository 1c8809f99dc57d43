//! Sends a batch, and gives each of its calls its own outcome.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use tokio::time::timeout;

use crate::store::sql::argument::Argument;
use crate::store::sql::backend::SqlDriver;
use crate::store::sql::pool::{ConnectionPool, PermittedConnection};
use crate::store::sql::priority::Priority;
use crate::store::sql::reply::{StatementOutcome, StatementReply};
use crate::store::sql::statement::Statement;
use crate::store::sql::write_batch::queued_call::{BatchMember, TakenCall};

impl<B: SqlDriver> ConnectionPool<B> {
    /// Sends a batch, in the order of its primary keys.
    ///
    /// All batches lock their rows in this order. After an error no call of it has a reply, and each is sent alone,
    /// because the error may be about the row of another.
    pub(crate) async fn send_batch(
        self: Arc<Self>,
        connection: PermittedConnection<B>,
        mut batch: Vec<BatchMember>,
    ) {
        batch.sort_unstable_by(|one, other| one.call.primary_key().cmp(other.call.primary_key()));
        let statement = Arc::clone(&batch[0].call.batch);
        let sent = {
            let calls: Vec<_> = batch.iter().map(|member| member.call.arguments()).collect();
            let arguments = [Argument::Calls(&calls)];
            self.send_on(connection, "a batch", &statement.statement, &arguments)
                .await
        };
        if let Ok(reply) = sent {
            deliver(reply, batch);
        }
    }

    /// Waits for the outcome of a call in a batch, or sends its statement alone.
    ///
    /// Without a reply for long it does so too: the task of the batch runs on the runtime of another caller, which may
    /// be blocked.
    pub(crate) async fn receive_from_batch(
        self: &Arc<Self>,
        (what, priority): (&'static str, Priority<'_>),
        (statement, arguments): (&Statement, &[Argument<'_>]),
        (taken, begun): (TakenCall, Instant),
    ) -> StatementOutcome {
        if let Priority::Claim(admission) = priority {
            admission.sent_after(taken.at.saturating_duration_since(begun));
        }
        if let Ok(Ok(outcome)) = timeout(self.patience() / 4, taken.outcome).await {
            return outcome;
        }
        let ending = (what, Priority::Ending);
        match self.send_once(ending, statement, arguments, || None).await {
            ControlFlow::Break(outcome) => outcome,
            // Only a queued call is taken along.
            ControlFlow::Continue(_) => Err((None, self.silence(what))),
        }
    }
}

/// Gives each call of a batch its part of the reply.
fn deliver(mut reply: StatementReply, batch: Vec<BatchMember>) {
    let grants = &mut reply.grants;
    grants.sort_unstable_by_key(|(primary_key, _)| *primary_key);
    // If not all of them had their effect, it is not known which had: each caller reads its record, which shows it.
    let all = reply.affected == batch.len() as u64;
    for BatchMember {
        call,
        reply: sender,
    } in batch
    {
        let found =
            grants.binary_search_by(|(primary_key, _)| primary_key[..].cmp(call.primary_key()));
        let granted = found.ok().map(|found| grants[found].1);
        // The caller may have been dropped.
        let _ = sender.send(Ok(StatementReply {
            affected: u64::from(all || granted.is_some()),
            granted,
            ..StatementReply::default()
        }));
    }
}
