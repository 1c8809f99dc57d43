//! One connection of a subscriber, from its first command to its end.

use std::future::{Future, poll_fn, ready};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use redis::{RedisError, RedisResult};
use tokio::task::{JoinSet, unconstrained};
use tokio::time::error::Elapsed;
use tokio::time::{Sleep, sleep, timeout};

use super::channels::ChannelCommand;
use super::connection::{ChannelEvent, SubscriberConnection};
use super::subscriptions::Subscriptions;
use crate::env::backoff::Backoff;
use crate::record::Owner;
use crate::store::redis::failure::store_error;
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
    connection: SubscriberConnection,
    replies: JoinSet<SessionReply>,
    quiet: Pin<Box<Sleep>>,
    /// The server has confirmed a subscription; an accepted connection alone does not count.
    works: bool,
    /// Channels whose unsubscription the server has not confirmed yet.
    leaving: Vec<String>,
    /// The target's generation when this connection was made.
    generation: u64,
    check: DeliveryCheck,
}

/// Check of a connection after a poll found a change before its message arrived.
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
    Channel(ChannelEvent),
    Reply(SessionReply),
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

/// The server's reply to a request.
struct SessionReply {
    request: SessionRequest,
    reply: Result<RedisResult<()>, Elapsed>,
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
            replies: JoinSet::new(),
            quiet: Box::pin(sleep(QUIET)),
            works: false,
            leaving: Vec::new(),
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
                self.send(SessionRequest::Check).await;
            }
            while let Some(command) = self.next_command() {
                self.send(SessionRequest::Command(command)).await;
            }
            let event = self.event().await;
            if !matches!(event, SessionEvent::Work) {
                let now = tokio::time::Instant::now();
                self.quiet.as_mut().reset(now + QUIET);
            }
            match event {
                SessionEvent::Channel(ChannelEvent::Message(name)) => {
                    if self.check == DeliveryCheck::Sent {
                        self.check = DeliveryCheck::Delivered;
                    }
                    self.subscriptions.wake(&name);
                }
                SessionEvent::Channel(ChannelEvent::Unsubscribed(name)) => {
                    match self.leaving.iter().position(|leaving| *leaving == name) {
                        Some(place) => drop(self.leaving.swap_remove(place)),
                        // The slot of its key has moved to another node. The client library takes this for the reply
                        // to the oldest command, so that no later reply on this connection can be trusted.
                        None => return SessionEnd::Lost,
                    }
                }
                SessionEvent::Reply(reply) => {
                    if let Some(end) = self.handle(reply, backoff) {
                        if matches!(end, SessionEnd::Missed) {
                            *replaced = Some(Instant::now());
                        }
                        return end;
                    }
                }
                SessionEvent::Quiet => {
                    if !self.subscriptions.lock().channels.is_empty() {
                        self.send(SessionRequest::Ping).await;
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

    /// Sends a request. A separate task awaits its reply, so that other events do not wait for it.
    async fn send(&mut self, request: SessionRequest) {
        if let SessionRequest::Command(ChannelCommand::Unsubscribe { name }) = &request {
            self.leaving.push(name.clone());
        }
        let commands = self.connection.commands.clone();
        let response = self.subscriptions.limits.response;
        let mut reply: Pin<Box<dyn Future<Output = SessionReply> + Send>> = Box::pin(async move {
            let reply = timeout(response, async {
                match &request {
                    SessionRequest::Command(ChannelCommand::Subscribe { name, .. }) => {
                        commands.subscribe(name).await
                    }
                    SessionRequest::Command(ChannelCommand::Unsubscribe { name }) => {
                        commands.unsubscribe(name).await
                    }
                    SessionRequest::Ping | SessionRequest::Check => commands.ping().await,
                }
            });
            let reply = reply.await;
            SessionReply { request, reply }
        });
        // The first poll sends. It is made here, so that the commands about a channel keep their order.
        let first = unconstrained(poll_fn(|cx| Poll::Ready(reply.as_mut().poll(cx)))).await;
        match first {
            Poll::Ready(reply) => self.replies.spawn(ready(reply)),
            Poll::Pending => self.replies.spawn(reply),
        };
    }

    async fn event(&mut self) -> SessionEvent {
        let mut work = pin!(self.subscriptions.work.notified());
        poll_fn(|cx| {
            if let Poll::Ready(message) = self.connection.poll_message(cx) {
                return Poll::Ready(message.map_or(SessionEvent::Ended, SessionEvent::Channel));
            }
            // A task that panicked has no reply.
            if let Poll::Ready(Some(reply)) = self.replies.poll_join_next(cx) {
                return Poll::Ready(reply.map_or(SessionEvent::Ended, SessionEvent::Reply));
            }
            if work.as_mut().poll(cx).is_ready() {
                return Poll::Ready(SessionEvent::Work);
            }
            self.quiet.as_mut().poll(cx).map(|()| SessionEvent::Quiet)
        })
        .await
    }

    fn handle(&mut self, reply: SessionReply, backoff: &mut Backoff) -> Option<SessionEnd> {
        let SessionReply { request, reply } = reply;
        let Ok(reply) = reply else {
            return Some(self.lost());
        };
        if let Err(error) = &reply
            && (is_lost(error) || self.has_expired(error))
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
            SessionRequest::Command(ChannelCommand::Unsubscribe { name }) => {
                // A refusal is a reply as well.
                if reply.is_err() {
                    self.leaving.retain(|leaving| *leaving != name);
                }
            }
            SessionRequest::Ping => {}
            SessionRequest::Check => {
                if std::mem::replace(&mut self.check, DeliveryCheck::None) == DeliveryCheck::Sent {
                    return Some(SessionEnd::Missed);
                }
            }
        }
        None
    }

    /// Whether the credentials of the connection have expired, and the next one has others.
    fn has_expired(&self, error: &RedisError) -> bool {
        error.code() == Some("NOAUTH") && self.subscriptions.target.changes_credentials()
    }

    /// The end of a broken or silent connection.
    ///
    /// One that never worked counts as one that could not be made: a server without room hangs up, and a dead one is
    /// silent.
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

fn is_lost(error: &RedisError) -> bool {
    error.is_connection_dropped() || error.is_io_error()
}
