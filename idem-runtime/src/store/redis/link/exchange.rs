//! Sending of a command, with what it takes before and after it.

use redis::Value;

use super::command::{Making, Order, Sent};
use super::pipeline::{Lane, Replies};
use crate::store::redis::failure::Failure;
use crate::store::redis::reply::wrote;

impl Order<'_> {
    pub(super) async fn send(&self, lane: &Lane) -> Result<Value, Failure> {
        let reply = match self.sent {
            Sent::Both(first, second) => both(lane, first, second).await?,
            // A user without the right to `ASKING` would be redirected for ever: the first error counts.
            Sent::One(command) if self.asking => {
                both(lane, &|| redis::cmd("ASKING"), command).await?
            }
            Sent::One(command) => one(lane, command, self.claims).await?,
        };
        match self.kept {
            // `WAIT` covers only writes of the same connection.
            Some(kept) if wrote(&reply) => {
                let replicas = Box::pin(one(lane, &|| kept.command.clone(), false)).await?;
                kept.judge(&replicas).map(|()| reply)
            }
            _ => Ok(reply),
        }
    }
}

async fn one(lane: &Lane, command: &Making<'_>, claims: bool) -> Result<Value, Failure> {
    let replies = lane.send(command, None, claims).await;
    replied(replies.map_err(Failure::Reply)?.first)
}

/// Sends two commands, one right after the other. The last reply, or the first error.
async fn both(lane: &Lane, first: &Making<'_>, second: &Making<'_>) -> Result<Value, Failure> {
    let replies = lane.send(first, Some(second), false).await;
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
