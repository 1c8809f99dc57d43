//! A connection shared by many senders, which encodes their commands into one buffer and reads their replies in order.
//!
//! The client library allocates several times for a command, and hands it over to a task, through a channel, with a
//! timer. Here a lone command is written by its sender; queued commands are written together by one task, which also
//! reads the replies and has one timer for all of them.

mod driver;
mod frame;
mod queue;
mod slots;

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use redis::{RedisError, RedisResult};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{self, Handle};
use tokio::time::Sleep;

use self::driver::Driver;
use self::queue::Queue;
use self::slots::{SlotId, Slots};
use super::command::{Words, WriteCommand};
use super::pipeline::Replies;
use crate::store::Admission;
use crate::store::pace::{Crowded, admits};
use crate::store::redis::failure::breaks_connection;

/// Largest number of commands in flight.
///
/// Further commands stay in the queue, where completions overtake claims, and where no time limit of a reply runs.
const MAX_IN_FLIGHT: usize = 512;
/// Size up to which the empty buffer of commands is kept.
const KEPT: usize = 1 << 20;

/// A connection with a queue of commands; dropping it closes both.
pub(super) struct Wire(Arc<Shared>);

/// The state of a connection, shared with its task.
struct Shared {
    state: Mutex<State>,
    /// The last flush left claims in the queue.
    is_crowded: AtomicBool,
    /// The runtime of the task.
    runtime: runtime::Id,
}

struct State {
    /// `None` once the connection has ended.
    write: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Encoded commands in flight, from `written` on not yet written.
    out: Vec<u8>,
    written: usize,
    queue: Queue,
    slots: Slots,
    in_flight: VecDeque<SentCommand>,
    /// Number of commands of the last flush.
    last_batch: usize,
    /// Longest wait for a reply.
    response: Duration,
    /// The task's timer runs, and ends no later than the time limit of the first reply.
    is_timed: bool,
    /// A command was sent since the timer was set.
    was_active: bool,
    driver: Option<Waker>,
    /// Number of times that the task has run.
    turns: u64,
    /// No further command is accepted.
    closed: bool,
    /// The reason for which the connection has ended.
    failure: Option<RedisError>,
}

/// A command without a reply so far.
struct SentCommand {
    /// `None`: the sender has its error.
    slot: Option<SlotId>,
    /// Replies that have not arrived.
    replies: u8,
    sent: Instant,
}

impl Wire {
    /// Starts the task on the calling runtime, where the halves of the connection must have been made.
    pub(super) fn new<R, W>(read: R, write: W, response: Duration) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                write: Some(Box::new(write)),
                out: Vec::new(),
                written: 0,
                queue: Queue::new(Instant::now()),
                slots: Slots::default(),
                in_flight: VecDeque::new(),
                last_batch: 0,
                response,
                is_timed: false,
                was_active: false,
                driver: None,
                turns: 0,
                closed: false,
                failure: None,
            }),
            is_crowded: AtomicBool::new(false),
            runtime: Handle::current().id(),
        });
        tokio::spawn(Driver::new(Arc::clone(&shared), read).run());
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
    ) -> RedisResult<PendingReplies<'_>> {
        let encode = |out: &mut Vec<u8>| {
            let mut words = Words::encoded(out);
            first(&mut words);
            if let Some(second) = second {
                second(&mut words);
            }
        };
        let replies = 1 + u8::from(second.is_some());
        let mut state = self.0.lock();
        if state.closed {
            return Err(state.failure.clone().unwrap_or_else(ended));
        }
        let slot = state.slots.add();
        let wakes = if state.is_idle() {
            encode(&mut state.out);
            state.in_flight.push_back(SentCommand {
                slot: Some(slot),
                replies,
                sent: Instant::now(),
            });
            state.was_active = true;
            // Its error is found by the task.
            let is_written = state.write_now();
            !(is_written && state.is_timed)
        } else {
            state.queue.push(slot, replies, claims, encode);
            if claims && state.in_flight.len() >= MAX_IN_FLIGHT {
                self.0.is_crowded.store(true, Ordering::Relaxed);
            }
            state.queue.len() == 1
        };
        let driver = wakes.then(|| state.driver.clone()).flatten();
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
        Ok(PendingReplies {
            shared: &self.0,
            slot: Some(slot),
            watchdog: None,
        })
    }

    /// Closes the queue. Queued commands fail as not sent; those in flight still get their replies.
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

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        let mut wakers = Vec::new();
        let mut state = self.lock();
        state.closed = true;
        state.drop_queue(&mut wakers);
        wakers.extend(state.driver.clone());
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl State {
    /// Whether a command can be sent without the task. After a burst the next one is expected to have company.
    fn is_idle(&self) -> bool {
        self.last_batch < 2
            && self.in_flight.is_empty()
            && self.queue.len() == 0
            && self.out.is_empty()
    }

    fn may_flush(&self) -> bool {
        self.queue.len() > 0 && self.in_flight.len() < MAX_IN_FLIGHT
    }

    /// Moves queued commands to the buffer.
    fn flush(&mut self, shared: &Shared, now: Instant) {
        let before = self.in_flight.len();
        // Places of abandoned commands stay free for the next ones: the task is woken for the first queued command only.
        while self.may_flush() {
            let Self {
                queue,
                slots,
                in_flight,
                out,
                ..
            } = self;
            let most = MAX_IN_FLIGHT - in_flight.len();
            queue.take(most, now, out, |command| {
                let is_kept = !slots.free_abandoned(command.slot);
                if is_kept {
                    in_flight.push_back(SentCommand {
                        slot: Some(command.slot),
                        replies: command.replies,
                        sent: now,
                    });
                }
                is_kept
            });
        }
        self.last_batch = self.in_flight.len() - before;
        self.was_active = true;
        shared
            .is_crowded
            .store(self.queue.claims() > 0, Ordering::Relaxed);
    }

    /// Writes from the sender's task. Whether all bytes are written; the task writes the others.
    fn write_now(&mut self) -> bool {
        let driver = self.driver.clone();
        let waker = driver.as_ref().unwrap_or(Waker::noop());
        self.write(&mut Context::from_waker(waker)).is_ok() && self.out.is_empty()
    }

    /// Writes as much as the socket takes.
    fn write(&mut self, cx: &mut Context<'_>) -> RedisResult<()> {
        let Some(write) = &mut self.write else {
            return Err(ended());
        };
        while self.written < self.out.len() {
            let bytes = &self.out[self.written..];
            match Pin::new(&mut *write).poll_write(cx, bytes) {
                Poll::Pending => {
                    // On a busy connection all bytes may never be written at once.
                    if self.written > self.out.len() / 2 {
                        self.out.drain(..self.written);
                        self.written = 0;
                    }
                    return Ok(());
                }
                Poll::Ready(Ok(0)) => return Err(ended()),
                Poll::Ready(Ok(written)) => self.written += written,
                Poll::Ready(Err(error)) => return Err(error.into()),
            }
        }
        self.out.clear();
        self.out.shrink_to(KEPT);
        self.written = 0;
        Ok(())
    }

    /// Whether a sender waits for a reply.
    fn has_senders(&self) -> bool {
        let mut slots = self.in_flight.iter().filter_map(|sent| sent.slot);
        slots.any(|slot| !self.slots.has_left(slot))
    }

    /// Whether no place in flight will be free: every command there has waited for its whole time.
    fn is_stuck(&self) -> bool {
        let newest = self.in_flight.back();
        self.in_flight.len() >= MAX_IN_FLIGHT && newest.is_some_and(|sent| sent.slot.is_none())
    }

    /// Ends the commands in flight without a reply in time. When the next one is due, if there is one, or was lately.
    fn expire(&mut self, now: Instant, wakers: &mut Vec<Waker>) -> Option<Instant> {
        for sent in &mut self.in_flight {
            if sent.slot.is_none() {
                continue;
            }
            let due = sent.sent.checked_add(self.response)?;
            if now < due {
                self.was_active = false;
                return Some(due);
            }
            if let Some(slot) = sent.slot.take() {
                wakers.extend(self.slots.end(slot, Err(late())));
            }
        }
        // Without a command in flight the timer goes on for once, so that the next lone one need not wake the task.
        std::mem::take(&mut self.was_active)
            .then(|| now.checked_add(self.response))
            .flatten()
    }

    /// Ends the connection with the error of the commands in flight.
    fn fail(&mut self, error: &RedisError, wakers: &mut Vec<Waker>) {
        self.closed = true;
        self.write = None;
        // The owner replaces a connection whose errors break it. With another one it would return this error for ever.
        let error = if breaks_connection(error) {
            error.clone()
        } else {
            ended()
        };
        self.failure.get_or_insert_with(|| error.clone());
        for sent in self.in_flight.drain(..) {
            if let Some(slot) = sent.slot {
                wakers.extend(self.slots.end(slot, Err(error.clone())));
            }
        }
        self.drop_queue(wakers);
    }

    fn drop_queue(&mut self, wakers: &mut Vec<Waker>) {
        for command in self.queue.clear() {
            wakers.extend(self.slots.end(command.slot, Err(ended())));
        }
    }
}

/// A command without all of its replies.
pub(super) struct PendingReplies<'a> {
    shared: &'a Shared,
    slot: Option<SlotId>,
    /// `None` on the runtime of the task.
    watchdog: Option<Box<Watchdog>>,
}

/// The time limit of a sender on another runtime than the task, which may exist and not be driven.
struct Watchdog {
    timer: Pin<Box<Sleep>>,
    /// Turns of the task when the timer was set. With another one since, the task has the time limit.
    turns: u64,
}

impl Future for PendingReplies<'_> {
    type Output = RedisResult<Replies>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let slot = self.slot.expect("not polled after its end");
        let mut state = self.shared.lock();
        // What is replaced is dropped without the lock: the drop of a waker may run code of its executor.
        let (replies, _replaced) = state.slots.poll(slot, cx.waker());
        let (turns, response) = (state.turns, state.response);
        drop(state);
        if replies.is_pending() {
            ready!(self.poll_watchdog(turns, response, cx));
            return Poll::Ready(Err(late()));
        }
        self.slot = None;
        replies
    }
}

impl PendingReplies<'_> {
    /// Ends when the task has not run for as long as a reply may take.
    fn poll_watchdog(&mut self, turns: u64, response: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let set = || Watchdog {
            timer: Box::pin(tokio::time::sleep(response)),
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

impl Drop for PendingReplies<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            // Dropped without the lock, as above.
            let _left = self.shared.lock().slots.abandon(slot);
        }
    }
}

/// The error of a command without a reply in time.
fn late() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

/// The error of an ended connection.
fn ended() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

#[cfg(test)]
mod tests;
