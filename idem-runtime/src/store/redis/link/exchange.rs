//! Sending of a command, with `ASKING` before it or `WAIT` after it.

use redis::Value;

use super::command::{MakeCommand, Payload, RoutedCommand};
use super::pipeline::{PipelinedConnection, Replies};
use crate::store::redis::failure::Failure;
use crate::store::redis::reply::wrote;

impl RoutedCommand<'_> {
    /// Sends the command and waits for its reply.
    pub(super) async fn send(&self, connection: &PipelinedConnection) -> Result<Value, Failure> {
        let reply = match self.payload {
            Payload::Pair(first, second) => pair(connection, first, second).await?,
            // A user without the right to `ASKING` would be redirected forever: the first error counts.
            Payload::One(command) if self.asking => {
                pair(connection, &|| redis::cmd("ASKING"), command).await?
            }
            Payload::One(command) => one(connection, command, self.claims).await?,
        };
        match self.replicas {
            // `WAIT` covers only writes of the same connection.
            Some(wanted) if wrote(&reply) => {
                let replicas = Box::pin(one(connection, &|| wanted.command.clone(), false)).await?;
                wanted.check(&replicas).map(|()| reply)
            }
            _ => Ok(reply),
        }
    }
}

async fn one(
    connection: &PipelinedConnection,
    command: &MakeCommand<'_>,
    claims: bool,
) -> Result<Value, Failure> {
    let replies = connection.send(command, None, claims).await;
    replied(replies.map_err(Failure::Reply)?.first)
}

/// Sends two commands, one right after the other. The last reply, or the first error.
async fn pair(
    connection: &PipelinedConnection,
    first: &MakeCommand<'_>,
    second: &MakeCommand<'_>,
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
