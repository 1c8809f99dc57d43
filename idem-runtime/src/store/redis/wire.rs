//! A shared connection: commands are encoded into one buffer, replies read in order.
//!
//! The client library allocates several times for a command, and hands it over to a task, through a channel, with a
//! timer. Here a lone command is written by its sender; queued commands are written together, by the sender of one of
//! them or by one task, which also reads the replies and has one timer for all of them.

mod driver;
mod frame;
mod queue;
mod slots;
mod state;

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use redis::RedisResult;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Sleep;

use self::driver::Driver;
pub(super) use self::frame::{Published, is_confirmation, pairs, text, text_pairs};
use self::queue::CommandQueue;
pub(super) use self::queue::{BatchCommand, BatchScript, Words, WriteCommand, decimal};
pub(super) use self::slots::Replies;
use self::slots::SlotId;
use self::state::{EndOnPanic, MAX_IN_FLIGHT, Shared, WireState, late};
use crate::env::lock::Lock;
use crate::store::Admission;
use crate::store::pace::{Crowded, admits};

/// Limits of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionLimits {
    pub(super) connect: Duration,
    pub(super) response: Duration,
    /// Longest text that a reply consists of: see [`Wire`].
    pub(super) text_bytes: usize,
}

/// A connection with a queue of commands; dropping it closes both.
///
/// A reply that is a text longer than `ConnectionLimits::text_bytes` is discarded while it arrives. The sender gets its
/// length, as a number, in its place.
pub(super) struct Wire(Arc<Shared>);

impl Wire {
    /// Starts the task on the calling runtime, that of the two halves.
    ///
    /// `messages`: the receiver of messages on the connection's channels.
    pub(super) fn new<R, W>(
        read: R,
        write: W,
        limits: ConnectionLimits,
        messages: Option<UnboundedSender<Published>>,
    ) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let shared = Arc::new(Shared {
            state: Lock::new(WireState::new(Box::new(write), limits.response)),
            is_crowded: AtomicBool::new(false),
            runtime: Handle::current().id(),
        });
        let driver = Driver::new(Arc::clone(&shared), read, limits.text_bytes, messages);
        tokio::spawn(driver.run());
        Self(shared)
    }

    /// Sends a command, or two without another between them. If dropped, they may still be executed.
    pub(super) async fn send(
        &self,
        first: &WriteCommand<'_>,
        second: Option<&WriteCommand<'_>>,
        claims: bool,
    ) -> RedisResult<Replies> {
        self.begin(first, second, claims)?.await
    }

    /// As [`send`](Self::send): the command is sent, or in the queue, when this returns.
    pub(super) fn begin(
        &self,
        first: &WriteCommand<'_>,
        second: Option<&WriteCommand<'_>>,
        claims: bool,
    ) -> RedisResult<PendingReplies> {
        let encode = |out: &mut Vec<u8>| {
            let mut words = Words::encoded(out);
            first(&mut words);
            if let Some(second) = second {
                second(&mut words);
            }
        };
        let replies = 1 + u8::from(second.is_some());
        self.begin_as(replies, claims, encode, |queue, slot| {
            queue.push(slot, replies, claims, encode);
        })
    }

    /// Whether a command would be queued.
    pub(super) fn is_busy(&self) -> bool {
        !self.0.lock().is_idle()
    }

    /// Sends a command in a batch with concurrent ones of its script.
    pub(super) fn begin_in_batch(&self, command: &BatchCommand<'_>) -> RedisResult<PendingReplies> {
        let encode = |out: &mut Vec<u8>| command.write(out);
        self.begin_as(1, false, encode, |queue, slot| {
            queue.batches.push(slot, command);
        })
    }

    /// Encodes a command for an idle connection, or queues it. Writes the commands that are due.
    fn begin_as(
        &self,
        replies: u8,
        claims: bool,
        encode: impl FnOnce(&mut Vec<u8>),
        enqueue: impl FnOnce(&mut CommandQueue, SlotId),
    ) -> RedisResult<PendingReplies> {
        let end_on_panic = EndOnPanic(&self.0);
        let mut state = self.0.lock();
        if let Some(error) = state.refusal() {
            mem::forget(end_on_panic);
            return Err(error);
        }
        let slot = state.slots.add();
        let output = if let Some(mut output) = state.take_idle_output() {
            encode(&mut output.bytes);
            state.push_lone(slot, replies);
            Some(output)
        } else {
            enqueue(&mut state.queue, slot);
            if claims && state.in_flight.len() >= MAX_IN_FLIGHT {
                self.0.is_crowded.store(true, Ordering::Relaxed);
            }
            state.flush_early(&self.0)
        };
        let is_first = output.is_none() && state.queue.len() == 1;
        let driver = is_first.then(|| state.driver.clone()).flatten();
        drop(state);
        if let Some(output) = output {
            self.0.write(output);
        } else if let Some(driver) = driver {
            driver.wake();
        }
        mem::forget(end_on_panic);
        Ok(PendingReplies {
            shared: Arc::clone(&self.0),
            slot: Some(slot),
            watchdog: None,
        })
    }

    /// Closes the queue. Queued commands fail; those in flight still get their replies.
    pub(super) fn close(&self) {
        self.0.close();
    }

    /// Queue of a claim that cannot be sent in time.
    pub(super) fn crowded(&self, admission: &Admission) -> Option<Crowded> {
        if !self.0.is_crowded.load(Ordering::Relaxed) {
            return None;
        }
        let state = self.0.lock();
        let (pace, claims) = (&state.queue.pace, state.queue.claims());
        admits(pace, claims, admission, Instant::now()).err()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A command without all of its replies.
pub(super) struct PendingReplies {
    shared: Arc<Shared>,
    slot: Option<SlotId>,
    /// `None` on the runtime of the task.
    watchdog: Option<Box<Watchdog>>,
}

/// The time limit of a sender on another runtime than the task.
struct Watchdog {
    timer: Pin<Box<Sleep>>,
    /// When the timer was set.
    since: Instant,
    /// Turns of the task when the timer was set. With another one since, the task has the time limit.
    turns: u64,
}

impl Future for PendingReplies {
    type Output = RedisResult<Replies>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let slot = self.slot.expect("not polled after its end");
        let mut state = self.shared.lock();
        // The replaced waker is dropped without the lock: its drop may run code of its executor.
        let (replies, _replaced) = state.slots.poll(slot, cx.waker());
        let (turns, response) = (state.turns, state.response);
        drop(state);
        if replies.is_pending() {
            ready!(self.poll_watchdog(turns, response, cx));
            self.leave();
            return Poll::Ready(Err(late()));
        }
        self.slot = None;
        replies
    }
}

impl PendingReplies {
    /// How long the command has been in flight, or queued without task. `None`: the task runs and it is queued,
    /// or it has its replies.
    pub(super) fn waited(&self) -> Option<Duration> {
        let slot = self.slot?;
        let state = self.shared.lock();
        let mut in_flight = state.in_flight.iter();
        if let Some(sent) = in_flight.find(|sent| sent.slot == Some(slot)) {
            return Some(sent.sent.elapsed());
        }
        let watchdog = self.watchdog.as_ref()?;
        let is_queued = !state.slots.has_replied(slot);
        (is_queued && watchdog.turns == state.turns).then(|| watchdog.since.elapsed())
    }

    /// The sender leaves its place.
    fn leave(&mut self) {
        if let Some(slot) = self.slot.take() {
            // Dropped without the lock, as above.
            let _left = self.shared.lock().slots.abandon(slot);
        }
    }

    /// Ends when the task has not run for a reply's time limit.
    fn poll_watchdog(&mut self, turns: u64, response: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let set = || Watchdog {
            timer: Box::pin(tokio::time::sleep(response)),
            since: Instant::now(),
            turns,
        };
        let watchdog = match &mut self.watchdog {
            Some(watchdog) => watchdog,
            // Without a runtime there is no timer.
            None if Handle::try_current().map_or(true, |here| here.id() == self.shared.runtime) => {
                return Poll::Pending;
            }
            none => none.insert(Box::new(set())),
        };
        loop {
            ready!(watchdog.timer.as_mut().poll(cx));
            if watchdog.turns == turns {
                return Poll::Ready(());
            }
            **watchdog = set();
        }
    }
}

impl Drop for PendingReplies {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests;
