//! Sends statements of a kind as one, and distributes their outcomes.

use std::sync::Arc;

use super::argument::Arguments;
use super::pool::{ConnectionPool, PermittedConnection};
use super::queue::{BatchMember, Turn};
use super::statement::StatementReply;

impl ConnectionPool {
    /// Sends a batch, in the order of its primary keys.
    ///
    /// All batches lock their rows in this order. After an error no call of it has a reply, and each is sent alone,
    /// because the error may be about the row of another.
    pub(super) async fn send_batch(
        self: Arc<Self>,
        connection: PermittedConnection,
        mut batch: Vec<BatchMember>,
    ) {
        batch.sort_unstable_by(|one, other| one.call.primary_key().cmp(other.call.primary_key()));
        let statement = Arc::clone(&batch[0].call.batch);
        let sent = {
            let records = batch.chunk_by(|one, other| {
                statement.only_reads() && one.call.primary_key() == other.call.primary_key()
            });
            let calls: Vec<_> = records.map(|same| same[0].call.arguments()).collect();
            let arguments = Arguments::Several(&calls);
            self.send_on(connection, "a batch", statement.of(calls.len()), arguments)
                .await
        };
        if let Ok(reply) = sent {
            if statement.only_reads() {
                statement.adapt_width(reply.rows.iter().map(|(_, row)| row.weight()).sum());
            }
            deliver(reply, batch);
        }
    }
}

/// Gives each call of a batch its part of the reply.
fn deliver(mut reply: StatementReply, batch: Vec<BatchMember>) {
    reply.grants.sort_unstable_by_key(|(key, _)| *key);
    reply.rows.sort_unstable_by_key(|(key, _)| *key);
    // If not all of them had their effect, it is not known which had: each caller reads its record, which shows it.
    let all = reply.affected == batch.len() as u64;
    for member in batch {
        let key = member.call.primary_key();
        let granted = reply.grants.binary_search_by(|(of, _)| of[..].cmp(key));
        let granted = granted.ok().map(|found| reply.grants[found].1);
        let row = reply.rows.binary_search_by(|(of, _)| of[..].cmp(key));
        let row = row.ok().map(|found| reply.rows[found].1.clone());
        // The caller may have been dropped.
        let _ = member.reply.send(Turn::Outcome(Ok(StatementReply {
            affected: u64::from(all || granted.is_some()),
            row,
            granted,
            ..StatementReply::default()
        })));
    }
}
