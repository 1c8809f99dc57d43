//! A command, with `ASKING` before it or another one after it, and its reply.

use redis::{RedisResult, Value};

use super::command::{Payload, RoutedCommand};
use crate::store::redis::failure::Failure;
use crate::store::redis::wire::{PendingReplies, Replies, Wire};

impl RoutedCommand<'_> {
    /// Sends the command, but for a `WAIT`.
    pub(super) fn begin(&self, wire: &Wire) -> RedisResult<PendingReplies> {
        match self.payload {
            Payload::Pair(first, second) => wire.begin(first, Some(second), false),
            Payload::One(command) if self.asking => wire.begin(
                &|words| words.command(&[&[b"ASKING"]]),
                Some(command),
                false,
            ),
            Payload::One(command) => wire.begin(command, None, self.claims),
        }
    }
}

/// The last reply, or the first error. A user without the right to `ASKING` would be redirected forever otherwise.
pub(super) fn last(replies: RedisResult<Replies>) -> Result<Value, Failure> {
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
