//! A connection: the own wire, or that of the client library where there is TLS.

use redis::RedisResult;
use redis::aio::MultiplexedConnection;

use super::command::WriteCommand;
use super::pipeline::{PipelinedConnection, Replies};
use super::wire::{BatchCommand, PendingReplies, Wire};
use crate::store::Admission;
use crate::store::pace::Crowded;

pub(super) enum Connection {
    Wire(Wire),
    Library(PipelinedConnection),
}

impl Connection {
    pub(super) fn library(connection: MultiplexedConnection) -> Self {
        Self::Library(PipelinedConnection::new(connection))
    }

    /// Sends a command on the wire; `None`: the client library has to send it.
    pub(super) fn begin(
        &self,
        command: &WriteCommand<'_>,
        claims: bool,
    ) -> Option<RedisResult<PendingReplies>> {
        match self {
            Self::Wire(wire) => Some(wire.begin(command, None, claims)),
            Self::Library(_) => None,
        }
    }

    /// Whether other commands are under way on the wire.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Wire(wire) if wire.is_busy())
    }

    /// Sends a command in a batch; `None`: there is no wire.
    pub(super) fn begin_in_batch(
        &self,
        command: &BatchCommand<'_>,
    ) -> Option<RedisResult<PendingReplies>> {
        match self {
            Self::Wire(wire) => Some(wire.begin_in_batch(command)),
            Self::Library(_) => None,
        }
    }

    /// Sends a command, or two without another between them. If dropped, they may still be executed.
    pub(super) async fn send(
        &self,
        first: &WriteCommand<'_>,
        second: Option<&WriteCommand<'_>>,
        claims: bool,
    ) -> RedisResult<Replies> {
        match self {
            Self::Wire(wire) => wire.send(first, second, claims).await,
            // Boxed: larger than the other.
            Self::Library(library) => Box::pin(library.send(first, second, claims)).await,
        }
    }

    /// Closes the queue. Queued commands fail as not sent.
    pub(super) fn close(&self) {
        match self {
            Self::Wire(wire) => wire.close(),
            Self::Library(library) => library.close(),
        }
    }

    /// Queue of a claim that cannot be sent in time.
    pub(super) fn crowded(&self, admission: &Admission) -> Option<Crowded> {
        match self {
            Self::Wire(wire) => wire.crowded(admission),
            Self::Library(library) => library.crowded(admission),
        }
    }
}

#[cfg(test)]
mod tests;
