//! A link with a usable connection, and a command in flight on it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use redis::{RedisResult, Value};

use super::command::RoutedCommand;
use super::connection::Connection;
use super::exchange::one_reply;
use super::wire::{BatchCommand, PendingReplies};
use super::{Link, LiveConnection, QUIET};
use crate::store::redis::failure::Failure;

/// A link with a usable connection.
pub(in crate::store::redis) struct ReadyLink<'a> {
    pub(super) link: &'a Link,
    pub(super) live: Arc<LiveConnection>,
}

impl<'a> ReadyLink<'a> {
    /// The server's time in microseconds, if it is known on this connection.
    pub(in crate::store::redis) fn server_time(&self) -> Option<u64> {
        self.live.time.now()
    }

    /// Whether other commands are under way on the connection.
    pub(in crate::store::redis) fn is_busy(&self) -> bool {
        self.live.connection.is_busy()
    }

    /// Sends a single command at once; `None`: [`Link::send`] has to.
    pub(in crate::store::redis) fn begin(
        self,
        command: &RoutedCommand<'_>,
    ) -> Option<Result<Exchange<'a>, Failure>> {
        self.begin_by(|connection| command.begin(connection))
    }

    /// Sends a command in a batch; `None`: it has to be sent alone.
    pub(in crate::store::redis) fn begin_in_batch(
        self,
        command: &BatchCommand<'_>,
    ) -> Option<Result<Exchange<'a>, Failure>> {
        self.begin_by(|connection| connection.begin_in_batch(command))
    }

    fn begin_by(
        self,
        begin: impl FnOnce(&Connection) -> Option<RedisResult<PendingReplies>>,
    ) -> Option<Result<Exchange<'a>, Failure>> {
        let Self { link, live } = self;
        let before = live.replies.load(Ordering::Relaxed);
        Some(match begin(&live.connection)? {
            Ok(replies) => Ok(Exchange {
                replies,
                link,
                live,
                before,
            }),
            Err(error) => {
                let failure = Failure::Reply(error);
                link.count_reply(&live, before, Some(&failure));
                Err(failure)
            }
        })
    }
}

/// A command in flight. If dropped, it may still be executed.
///
/// A sender whose deadline is shorter than `response_timeout` drops it, which counts as a time-out as well.
pub(in crate::store::redis) struct Exchange<'a> {
    replies: PendingReplies,
    link: &'a Link,
    pub(super) live: Arc<LiveConnection>,
    /// Number of replies when the command was sent.
    before: u64,
}

impl Future for Exchange<'_> {
    type Output = Result<Value, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = one_reply(ready!(Pin::new(&mut self.replies).poll(cx)));
        (self.link).count_reply(&self.live, self.before, reply.as_ref().err());
        Poll::Ready(reply)
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        let waited = self.replies.waited();
        if waited.is_some_and(|waited| waited >= QUIET) {
            self.link.count_timeout(&self.live, self.before);
        }
    }
}
