//! One connection of a subscriber, from its first command to its end.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use redis::{RedisError, RedisResult};
use tokio::time::{Sleep, sleep};

use super::channels::ChannelCommand;
use super::subscriptions::Subscriptions;
use crate::env::backoff::Backoff;
use crate::record::Owner;
use crate::store::redis::cluster::slot;
use crate::store::redis::failure::{is_lost, store_error};
use crate::store::redis::subscriber_connection::{SubscriberConnection, check};
use crate::store::redis::wire::{PendingReplies, Published};
use crate::store::{StoreError, StoreErrorKind};

/// Silence after which the server is pinged.
const QUIET: Duration = Duration::from_secs(5);
/// Shortest interval between two replacements of a connection because of missed messages.
///
/// Replacing it more often does not help: then the connection is not the cause.
const REPLACE: Duration = Duration::from_secs(10);

/// A connection that is kept subscribed to the watched keys.
pub(super) struct Session<'a> {
    subscriptions: &'a Subscriptions,
    /// Requests without a reply, in the order in which the server replies. Dropped first: the connection ends with its
    /// last sender.
    pending: VecDeque<(SessionRequest, PendingReplies)>,
    connection: SubscriberConnection,
    quiet: Pin<Box<Sleep>>,
    /// The server has confirmed a subscription; an accepted connection alone does not count.
    works: bool,
    /// The target's generation when this connection was made.
    generation: u64,
    check: DeliveryCheck,
}

/// Check of a connection after a change without its message.
///
/// Under load a read often overtakes the message. The server sends the reply to a ping after earlier messages, so a
/// message before that reply shows that the connection works.
#[derive(PartialEq, Eq)]
enum DeliveryCheck {
    None,
    /// The ping has no reply yet, and no message has arrived since.
    Sent,
    /// A message has arrived since the ping.
    Delivered,
}

/// Reason for which a session ended.
pub(super) enum SessionEnd {
    /// The store is closed.
    Closed,
    /// The connection does not deliver messages.
    Missed,
    Lost,
    /// The connection never worked; subscriptions fail with this error.
    Failed(StoreError),
}

/// An event that a session waits for.
enum SessionEvent {
    Message(Published),
    Reply(SessionRequest, RedisResult<()>),
    /// The server was silent for [`QUIET`].
    Quiet,
    /// There may be commands to send.
    Work,
    Ended,
}

/// A command of a session.
enum SessionRequest {
    Command(ChannelCommand),
    /// Detects a silent connection.
    Ping,
    /// The ping of a [`DeliveryCheck`].
    Check,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        subscriptions: &'a Subscriptions,
        connection: SubscriberConnection,
        generation: u64,
    ) -> Self {
        // Messages missed so far were missed on another connection.
        subscriptions.lock().missed = false;
        Self {
            subscriptions,
            connection,
            pending: VecDeque::new(),
            quiet: Box::pin(sleep(QUIET)),
            works: false,
            generation,
            check: DeliveryCheck::None,
        }
    }

    /// Sends commands and delivers messages until the connection is no longer usable.
    ///
    /// `replaced`: the time at which a connection was last replaced because of missed messages.
    pub(super) async fn serve(
        mut self,
        backoff: &mut Backoff,
        replaced: &mut Option<Instant>,
    ) -> SessionEnd {
        loop {
            // The old primary may still be there, and confirm any subscription.
            if self.subscriptions.target.generation() != self.generation {
                return SessionEnd::Lost;
            }
            let missed = {
                let mut state = self.subscriptions.lock();
                if state.closed {
                    return SessionEnd::Closed;
                }
                std::mem::take(&mut state.missed)
            };
            // Before the commands: one of them may unsubscribe from the channel of the missed message.
            if missed
                && self.check == DeliveryCheck::None
                && replaced.is_none_or(|at| at.elapsed() >= REPLACE)
            {
                self.check = DeliveryCheck::Sent;
                if let Err(end) = self.send(SessionRequest::Check) {
                    return end;
                }
            }
            while let Some(command) = self.next_command() {
                if let Err(end) = self.send(SessionRequest::Command(command)) {
                    return end;
                }
            }
            let event = self.event().await;
            if !matches!(event, SessionEvent::Work) {
                let now = tokio::time::Instant::now();
                self.quiet.as_mut().reset(now + QUIET);
            }
            match event {
                SessionEvent::Message(message) => {
                    if self.check == DeliveryCheck::Sent {
                        self.check = DeliveryCheck::Delivered;
                    }
                    self.subscriptions.wake(&message.channel);
                }
                SessionEvent::Reply(request, reply) => {
                    if let Some(end) = self.handle(request, reply, backoff) {
                        if matches!(end, SessionEnd::Missed) {
                            *replaced = Some(Instant::now());
                        }
                        return end;
                    }
                }
                SessionEvent::Quiet => {
                    if !self.subscriptions.lock().channels.is_empty()
                        && let Err(end) = self.send(SessionRequest::Ping)
                    {
                        return end;
                    }
                }
                SessionEvent::Work => {}
                SessionEvent::Ended => return self.lost(),
            }
        }
    }

    fn next_command(&self) -> Option<ChannelCommand> {
        let watched = |key: &_| self.subscriptions.watchers.is_watched(key);
        self.subscriptions.lock().channels.next_command(watched)
    }

    /// Sends a request; its reply is an event.
    fn send(&mut self, request: SessionRequest) -> Result<(), SessionEnd> {
        let sent = match &request {
            SessionRequest::Command(command) => self.connection.begin(&self.words(command)),
            SessionRequest::Ping | SessionRequest::Check => self.connection.begin_ping(),
        };
        match sent {
            Ok(replies) => self.pending.push_back((request, replies)),
            // The server may have said why before it closed the connection.
            Err(error) if !self.works => {
                return Err(SessionEnd::Failed(store_error("watching a key", error)));
            }
            Err(_) => return Err(SessionEnd::Lost),
        }
        Ok(())
    }

    fn words<'c>(&self, command: &'c ChannelCommand) -> [&'c str; 2] {
        let sharded = self.subscriptions.sharded;
        match command {
            ChannelCommand::Subscribe { name, .. } if sharded => ["SSUBSCRIBE", name],
            ChannelCommand::Subscribe { name, .. } => ["SUBSCRIBE", name],
            ChannelCommand::Unsubscribe { name } if sharded => ["SUNSUBSCRIBE", name],
            ChannelCommand::Unsubscribe { name } => ["UNSUBSCRIBE", name],
        }
    }

    async fn event(&mut self) -> SessionEvent {
        let mut work = pin!(self.subscriptions.work.notified());
        poll_fn(|cx| {
            let message = self.connection.poll_message(cx);
            if let Poll::Ready(Some(message)) = message {
                return Poll::Ready(SessionEvent::Message(message));
            }
            if let Some((_, replies)) = self.pending.front_mut()
                && let Poll::Ready(replies) = Pin::new(replies).poll(cx)
                && let Some((request, _)) = self.pending.pop_front()
            {
                let words = match &request {
                    SessionRequest::Command(command) => Some(self.words(command)),
                    SessionRequest::Ping | SessionRequest::Check => None,
                };
                let reply = replies.and_then(|replies| check(words.as_ref(), replies.first));
                return Poll::Ready(SessionEvent::Reply(request, reply));
            }
            // After the last replies, which may say why.
            if message.is_ready() {
                return Poll::Ready(SessionEvent::Ended);
            }
            if work.as_mut().poll(cx).is_ready() {
                return Poll::Ready(SessionEvent::Work);
            }
            self.quiet.as_mut().poll(cx).map(|()| SessionEvent::Quiet)
        })
        .await
    }

    fn handle(
        &mut self,
        request: SessionRequest,
        reply: RedisResult<()>,
        backoff: &mut Backoff,
    ) -> Option<SessionEnd> {
        if let Err(error) = &reply
            && (is_lost(error) || self.has_expired(error) || is_of_another(&request, error))
        {
            return Some(self.lost());
        }
        match request {
            SessionRequest::Command(ChannelCommand::Subscribe { name, request }) => match reply {
                Ok(()) => {
                    *backoff = Backoff::new(&Owner::random());
                    self.works = true;
                    self.subscriptions.confirmed(&name, request);
                }
                Err(error) if error.redirect_node().is_some() => {
                    self.works = true;
                    self.subscriptions.moved(&name, request, &error);
                }
                Err(error) => {
                    let error = store_error("watching a key", error);
                    if error.is_transient() {
                        return Some(SessionEnd::Failed(error));
                    }
                    self.subscriptions.refused(&name, request);
                }
            },
            // A refusal is a reply as well.
            SessionRequest::Command(ChannelCommand::Unsubscribe { .. }) | SessionRequest::Ping => {}
            SessionRequest::Check => {
                if std::mem::replace(&mut self.check, DeliveryCheck::None) == DeliveryCheck::Sent {
                    return Some(SessionEnd::Missed);
                }
            }
        }
        None
    }

    /// Whether the credentials have expired, and the next connection has others.
    fn has_expired(&self, error: &RedisError) -> bool {
        error.code() == Some("NOAUTH") && self.subscriptions.target.changes_credentials()
    }

    /// The end of a broken or silent connection.
    ///
    /// A connection that never worked counts as a failed attempt: a server without room hangs up, and a dead server
    /// is silent.
    fn lost(&self) -> SessionEnd {
        if self.works {
            return SessionEnd::Lost;
        }
        SessionEnd::Failed(StoreError::new(
            StoreErrorKind::Unavailable,
            "watching a key: the connection to Redis is lost",
        ))
    }
}

/// Whether a redirect is not that of this request's key: the server has ended a subscription unasked, which was taken for
/// the reply to an earlier request, and no later reply on the connection can be trusted.
fn is_of_another(request: &SessionRequest, error: &RedisError) -> bool {
    let Some((_, of)) = error.redirect_node() else {
        return false;
    };
    match request {
        SessionRequest::Command(
            ChannelCommand::Subscribe { name, .. } | ChannelCommand::Unsubscribe { name },
        ) => slot(name) != of,
        SessionRequest::Ping | SessionRequest::Check => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slot of a key moves while the key is unsubscribed from: the server ends the subscription, which looks like the
    /// reply, and the redirect that is the reply looks like that to the next command.
    #[tokio::test]
    async fn a_redirect_of_another_key_ends_the_connection() {
        let subscriptions = Subscriptions::unconnected(true);
        let (connection, _server) = SubscriberConnection::in_memory();
        let mut session = Session::new(&subscriptions, connection, 0);
        session.works = true;
        let mut moved = |slot: u16| {
            let reply = format!("-MOVED {slot} 127.0.0.1:2\r\n");
            let reply = redis::parse_redis_value(reply.as_bytes()).unwrap();
            let (name, request) = ("idem:pay:1".to_owned(), 1);
            let request = SessionRequest::Command(ChannelCommand::Subscribe { name, request });
            let error = reply.extract_error().unwrap_err();
            session.handle(request, Err(error), &mut Backoff::new(&Owner::random()))
        };
        let own = slot("idem:pay:1");
        assert!(moved(own).is_none());
        assert!(matches!(moved(own ^ 1), Some(SessionEnd::Lost)));
    }
}
