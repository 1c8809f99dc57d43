//! Sending of a command, with `ASKING` before it or `WAIT` after it.

use redis::{RedisResult, Value};

use super::command::{Payload, RoutedCommand, WriteCommand};
use super::connection::Connection;
use super::pipeline::Replies;
use super::wire::PendingReplies;
use crate::store::redis::failure::Failure;
use crate::store::redis::reply::wrote;

impl RoutedCommand<'_> {
    /// Sends a single command that needs nothing before or after it; `None`: [`send`](Self::send) has to.
    pub(super) fn begin(&self, connection: &Connection) -> Option<RedisResult<PendingReplies>> {
        match self.payload {
            Payload::One(command) if !self.asking && self.replicas.is_none() => {
                connection.begin(command, self.claims)
            }
            _ => None,
        }
    }

    /// Sends the command and waits for its reply.
    pub(super) async fn send(&self, connection: &Connection) -> Result<Value, Failure> {
        let reply = match self.payload {
            Payload::Pair(first, second) => pair(connection, first, second).await?,
            // A user without the right to `ASKING` would be redirected forever: the first error counts.
            Payload::One(command) if self.asking => {
                pair(connection, &|words| words.command(&[&[b"ASKING"]]), command).await?
            }
            Payload::One(command) => one(connection, command, self.claims).await?,
        };
        match self.replicas {
            // `WAIT` covers only writes of the same connection.
            Some(wanted) if wrote(&reply) => {
                let replicas =
                    Box::pin(one(connection, &|words| words.copy(&wanted.command), false)).await?;
                wanted.check(&replicas).map(|()| reply)
            }
            _ => Ok(reply),
        }
    }
}

async fn one(
    connection: &Connection,
    command: &WriteCommand<'_>,
    claims: bool,
) -> Result<Value, Failure> {
    one_reply(connection.send(command, None, claims).await)
}

/// The reply to a single command.
pub(super) fn one_reply(replies: RedisResult<Replies>) -> Result<Value, Failure> {
    replied(replies.map_err(Failure::Reply)?.first)
}

/// Sends two commands, one right after the other. The last reply, or the first error.
async fn pair(
    connection: &Connection,
    first: &WriteCommand<'_>,
    second: &WriteCommand<'_>,
) -> Result<Value, Failure> {
    let replies = connection.send(first, Some(second), false).await;
    let Replies { first, second } = replies.map_err(Failure::Reply)?;
    let first = replied(first)?;
    second.map_or(Ok(first), replied)
}

fn replied(value: Value) -> Result<Value, Failure> {
    match value {
        Value::ServerError(error) => Err(Failure::Reply(error.into())),
        value => Ok(value),
    }
}
