//! The life of one connection that subscribes.

use std::future::{Future, poll_fn, ready};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use redis::{RedisError, RedisResult};
use tokio::task::{JoinSet, unconstrained};
use tokio::time::error::Elapsed;
use tokio::time::{Sleep, sleep, timeout};

use super::channels::Order;
use super::connection::{Heard, Wire};
use super::subscriptions::Shared;
use crate::env::backoff::Backoff;
use crate::record::Owner;
use crate::store::redis::failure::store_error;
use crate::store::{StoreError, StoreErrorKind};

/// Silence after which the server is pinged.
const QUIET: Duration = Duration::from_secs(5);
/// Shortest interval between two replacements of a connection because waiting calls missed notifications. If
/// the connection is not the cause, replacing it does not help.
const REPLACE: Duration = Duration::from_secs(10);

/// A connection that is kept subscribed to the watched keys.
pub(super) struct Session<'a> {
    shared: &'a Shared,
    wire: Wire,
    answers: JoinSet<Answer>,
    quiet: Pin<Box<Sleep>>,
    /// The server has confirmed a subscription; an accepted connection alone does not count.
    works: bool,
    /// Channels whose unsubscription the server has not confirmed yet.
    leaving: Vec<String>,
    /// The target's generation when this connection was made.
    generation: u64,
    check: Check,
}

/// Whether the connection still delivers messages, after a read found a change before its message did.
///
/// Under load a read often overtakes the message. The server replies to a ping after the messages that it published
/// before: with a message before the reply, the connection works.
#[derive(PartialEq, Eq)]
enum Check {
    None,
    /// The ping has no reply yet, and no message has arrived since.
    Silent,
    /// A message has arrived since the ping.
    Heard,
}

/// Why a connection is no longer usable.
pub(super) enum End {
    /// The store is closed.
    Closed,
    /// Waiting calls missed notifications.
    Missed,
    Lost,
    /// There is no connection for now, for this reason.
    Failed(StoreError),
}

enum Event {
    Heard(Heard),
    Answer(Answer),
    /// The server was silent for a while.
    Quiet,
    /// There may be orders to send.
    Work,
    Ended,
}

/// A command of a session.
enum Request {
    Order(Order),
    /// Detects a silent connection.
    Ping,
    /// The ping of a [`Check`].
    Check,
}

/// The server's reply to a request.
struct Answer {
    request: Request,
    reply: Result<RedisResult<()>, Elapsed>,
}

impl<'a> Session<'a> {
    pub(super) fn new(shared: &'a Shared, wire: Wire, generation: u64) -> Self {
        // Messages missed so far were missed on another connection.
        shared.lock().missed = false;
        Self {
            shared,
            wire,
            answers: JoinSet::new(),
            quiet: Box::pin(sleep(QUIET)),
            works: false,
            leaving: Vec::new(),
            generation,
            check: Check::None,
        }
    }

    /// Sends orders, and delivers messages, until the connection is no longer usable.
    /// `replaced` is when a connection was last given up because of missed messages.
    pub(super) async fn serve(
        mut self,
        backoff: &mut Backoff,
        replaced: &mut Option<Instant>,
    ) -> End {
        loop {
            // The old primary may still be there, and confirm any subscription.
            if self.shared.target.generation() != self.generation {
                return End::Lost;
            }
            let missed = {
                let mut state = self.shared.lock();
                if state.closed {
                    return End::Closed;
                }
                std::mem::take(&mut state.missed)
            };
            // Before the orders: one of them may give up the channel of the missed message.
            if missed
                && self.check == Check::None
                && replaced.is_none_or(|at| at.elapsed() >= REPLACE)
            {
                self.check = Check::Silent;
                self.send(Request::Check).await;
            }
            while let Some(order) = self.next_order() {
                self.send(Request::Order(order)).await;
            }
            let event = self.event().await;
            if !matches!(event, Event::Work) {
                let now = tokio::time::Instant::now();
                self.quiet.as_mut().reset(now + QUIET);
            }
            match event {
                Event::Heard(Heard::Message(name)) => {
                    if self.check == Check::Silent {
                        self.check = Check::Heard;
                    }
                    self.shared.tell(&name);
                }
                Event::Heard(Heard::Left(name)) => {
                    match self.leaving.iter().position(|leaving| *leaving == name) {
                        Some(place) => drop(self.leaving.swap_remove(place)),
                        // The slot of its key has moved to another node. The client library takes
                        // this for the reply to the command that was sent first: no later reply on
                        // this connection can be trusted.
                        None => return End::Lost,
                    }
                }
                Event::Answer(answer) => {
                    if let Some(end) = self.settle(answer, backoff) {
                        if matches!(end, End::Missed) {
                            *replaced = Some(Instant::now());
                        }
                        return end;
                    }
                }
                Event::Quiet => {
                    if !self.shared.lock().channels.is_empty() {
                        self.send(Request::Ping).await;
                    }
                }
                Event::Work => {}
                Event::Ended => return self.lost(),
            }
        }
    }

    fn next_order(&self) -> Option<Order> {
        let watched = |key: &_| self.shared.watchers.is_watched(key);
        self.shared.lock().channels.next_order(watched)
    }

    /// Sends a request. Its reply is awaited in a separate task, so that no other event waits for it.
    async fn send(&mut self, request: Request) {
        if let Request::Order(Order::Unsubscribe { name }) = &request {
            self.leaving.push(name.clone());
        }
        let commands = self.wire.commands.clone();
        let response = self.shared.patience.response;
        let mut answer: Pin<Box<dyn Future<Output = Answer> + Send>> = Box::pin(async move {
            let reply = timeout(response, async {
                match &request {
                    Request::Order(Order::Subscribe { name, .. }) => commands.subscribe(name).await,
                    Request::Order(Order::Unsubscribe { name }) => commands.unsubscribe(name).await,
                    Request::Ping | Request::Check => commands.ping().await,
                }
            });
            let reply = reply.await;
            Answer { request, reply }
        });
        // The first poll sends: here, so that the orders for a channel leave in their order.
        let first = unconstrained(poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx)))).await;
        match first {
            Poll::Ready(answer) => self.answers.spawn(ready(answer)),
            Poll::Pending => self.answers.spawn(answer),
        };
    }

    async fn event(&mut self) -> Event {
        let mut work = pin!(self.shared.work.notified());
        poll_fn(|cx| {
            if let Poll::Ready(message) = self.wire.poll_message(cx) {
                return Poll::Ready(message.map_or(Event::Ended, Event::Heard));
            }
            // A panicked task is one whose reply never comes.
            if let Poll::Ready(Some(answer)) = self.answers.poll_join_next(cx) {
                return Poll::Ready(answer.map_or(Event::Ended, Event::Answer));
            }
            if work.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Work);
            }
            self.quiet.as_mut().poll(cx).map(|()| Event::Quiet)
        })
        .await
    }

    fn settle(&mut self, answer: Answer, backoff: &mut Backoff) -> Option<End> {
        let Ok(reply) = answer.reply else {
            return Some(self.lost());
        };
        if let Err(error) = &reply
            && is_lost(error)
        {
            return Some(self.lost());
        }
        match answer.request {
            Request::Order(Order::Subscribe { name, request }) => match reply {
                Ok(()) => {
                    *backoff = Backoff::new(&Owner::random());
                    self.works = true;
                    self.shared.confirmed(&name, request);
                }
                Err(error) if error.redirect_node().is_some() => {
                    self.works = true;
                    self.shared.moved(&name, request, &error);
                }
                Err(error) => {
                    let error = store_error("watching a key", error);
                    if error.is_transient() {
                        return Some(End::Failed(error));
                    }
                    self.shared.refused(&name, request);
                }
            },
            Request::Order(Order::Unsubscribe { name }) => {
                // A refusal is a reply as well.
                if reply.is_err() {
                    self.leaving.retain(|leaving| *leaving != name);
                }
            }
            Request::Ping => {}
            Request::Check => {
                if std::mem::replace(&mut self.check, Check::None) == Check::Silent {
                    return Some(End::Missed);
                }
            }
        }
        None
    }

    /// How a broken or silent connection ends. One that never worked counts as one that could
    /// not be made: a server without room for it hangs up, and a dead one is silent.
    fn lost(&self) -> End {
        if self.works {
            return End::Lost;
        }
        End::Failed(StoreError::new(
            StoreErrorKind::Unavailable,
            "watching a key: the connection to Redis is lost",
        ))
    }
}

fn is_lost(error: &RedisError) -> bool {
    error.is_connection_dropped() || error.is_io_error()
}
