//! The state of a connection: its output, its queue, and the commands in flight.

use std::collections::VecDeque;
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use redis::RedisError;
use tokio::io::AsyncWrite;
use tokio::runtime::{self, Handle};

use super::queue::CommandQueue;
use super::slots::{ReplySlots, SlotId, Wakers};
use crate::env::lock::Lock;
use crate::store::redis::failure::breaks_connection;

/// Largest size of an empty buffer that is kept.
const KEPT: usize = 1 << 20;
/// Largest number of commands in flight.
///
/// Further commands stay in the queue, where completions overtake claims, and where no time limit of a reply runs.
pub(super) const MAX_IN_FLIGHT: usize = 512;
/// Least number of queued commands that a sender flushes.
pub(super) const EARLY_FLUSH: usize = 4;

/// The state of a connection, shared with its task.
pub(super) struct Shared {
    pub(super) state: Lock<WireState>,
    /// The last flush left claims in the queue.
    pub(super) is_crowded: AtomicBool,
    /// The runtime of the task.
    pub(super) runtime: runtime::Id,
}

pub(super) struct WireState {
    /// `None` while a task writes, and once the connection has ended.
    pub(super) output: Option<WireOutput>,
    /// The task, and no sender, flushes the queue when the output returns.
    pub(super) awaits_output: bool,
    pub(super) queue: CommandQueue,
    /// Least number of queued commands that a sender flushes; `usize::MAX`: the task alone flushes.
    pub(super) early_flush: usize,
    pub(super) slots: ReplySlots,
    pub(super) in_flight: VecDeque<SentCommand>,
    /// Number of commands of the last flush.
    pub(super) last_batch: usize,
    /// Longest wait for a reply.
    pub(super) response: Duration,
    /// The task's timer runs, no longer than the first reply's time limit.
    pub(super) is_timed: bool,
    /// A command was sent since the timer was set.
    pub(super) was_active: bool,
    pub(super) driver: Option<Waker>,
    /// The error of a sender's write.
    pub(super) write_error: Option<RedisError>,
    /// Number of times that the task has run.
    pub(super) turns: u64,
    phase: WirePhase,
}

/// How far a connection is.
enum WirePhase {
    Open,
    /// No further command is accepted; those in flight still get their replies.
    Closed,
    /// For this reason.
    Ended(RedisError),
}

/// A command without a reply so far.
pub(super) struct SentCommand {
    /// `None`: the sender has its error.
    pub(super) slot: Option<SlotId>,
    /// Replies that have not arrived.
    pub(super) replies: u8,
    /// Number of commands, from this one on, that have one reply together: 1 but for the first one of a batch.
    pub(super) batch: usize,
    pub(super) sent: Instant,
}

impl SentCommand {
    pub(super) fn new(slot: SlotId, replies: u8, sent: Instant) -> Self {
        Self {
            slot: Some(slot),
            replies,
            batch: 1,
            sent,
        }
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, WireState> {
        self.state.lock()
    }

    /// Writes from a sender. The task of the connection writes the rest that the socket refuses, and ends a connection
    /// whose write failed, after the replies that have arrived.
    ///
    /// If the connection has ended meanwhile, a command may reach the server after its sender has the error, as one
    /// from the buffer of the kernel may.
    pub(super) fn write(&self, mut output: WireOutput) {
        let outcome = output.write(&mut Context::from_waker(Waker::noop()));
        let is_written = outcome.is_ok() && output.is_empty();
        let mut state = self.lock();
        if let Err(error) = outcome {
            // A socket tells its error once, and then that it is closed.
            state.write_error = Some(error.into());
        }
        let wakes = !is_written || !state.is_timed || state.awaits_output;
        let driver = wakes.then(|| state.driver.clone()).flatten();
        // Dropped without the lock.
        let _ended = state.put_back(output);
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// Whether the caller is on the runtime of the task.
    fn is_on_runtime(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() == self.runtime)
    }

    pub(super) fn close(&self) {
        let mut wakers = Wakers::default();
        let mut state = self.lock();
        state.close();
        state.drop_queue(&closed(), &mut wakers);
        wakers.extend(state.driver.clone());
        drop(state);
    }

    /// Ends the connection from a sender.
    fn fail(&self, error: &RedisError) {
        let mut wakers = Wakers::default();
        let mut state = self.lock();
        let _output = state.fail(error, &mut wakers);
        wakers.extend(state.driver.clone());
        drop(state);
    }
}

/// Ends the connection if a sender panics before it is forgotten: the output may be lost.
pub(super) struct EndOnPanic<'a>(pub(super) &'a Shared);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        self.0.fail(&ended("a write panicked"));
    }
}

impl WireState {
    /// Of a connection that is written through this half.
    pub(super) fn new(write: Box<dyn AsyncWrite + Send + Unpin>, response: Duration) -> Self {
        Self {
            output: Some(WireOutput::new(write)),
            awaits_output: false,
            queue: CommandQueue::new(Instant::now()),
            early_flush: match available_parallelism() {
                Ok(processors) if processors.get() > 1 => EARLY_FLUSH,
                // No server runs meanwhile on the only processor, and each further write is only a cost.
                _ => usize::MAX,
            },
            slots: ReplySlots::default(),
            in_flight: VecDeque::new(),
            last_batch: 0,
            response,
            is_timed: false,
            was_active: false,
            driver: None,
            write_error: None,
            turns: 0,
            phase: WirePhase::Open,
        }
    }

    fn close(&mut self) {
        if matches!(self.phase, WirePhase::Open) {
            self.phase = WirePhase::Closed;
        }
    }

    /// Whether no further command is accepted.
    pub(super) fn is_closed(&self) -> bool {
        !matches!(self.phase, WirePhase::Open)
    }

    /// The error of a further command.
    pub(super) fn refusal(&self) -> Option<RedisError> {
        match &self.phase {
            WirePhase::Open => None,
            WirePhase::Closed => Some(closed()),
            WirePhase::Ended(error) => Some(error.clone()),
        }
    }

    /// Whether a command can be sent without the task. After a burst the next one is expected to have company.
    pub(super) fn is_idle(&self) -> bool {
        self.last_batch < 2
            && self.in_flight.is_empty()
            && self.queue.len() == 0
            && self.is_written()
    }

    /// Whether all commands in flight are written.
    fn is_written(&self) -> bool {
        self.output.as_ref().is_some_and(WireOutput::is_empty)
    }

    /// Takes the output for a lone command.
    pub(super) fn take_idle_output(&mut self) -> Option<WireOutput> {
        if self.is_idle() {
            self.output.take()
        } else {
            None
        }
    }

    /// Adds a lone command that its sender writes.
    pub(super) fn push_lone(&mut self, slot: SlotId, replies: u8) {
        let sent = SentCommand::new(slot, replies, Instant::now());
        self.in_flight.push_back(sent);
        self.was_active = true;
    }

    pub(super) fn may_flush(&self) -> bool {
        self.queue.len() > 0 && self.in_flight.len() < MAX_IN_FLIGHT
    }

    /// Whether a sender flushes the commands that are in no batch.
    ///
    /// The task would flush them once all senders have had their turn, and meanwhile an idle server would wait. The
    /// more commands a server has, the more share a write. Batches are left to the task, because a larger one costs the
    /// server less.
    fn is_flush_due(&self) -> bool {
        let due = self.early_flush.max(self.in_flight.len() / 2);
        let queued = self.queue.len();
        queued - self.queue.batches.len() >= due
            && self.is_written()
            && !self.awaits_output
            // No claim takes the place of a completion.
            && self.in_flight.len() + queued <= MAX_IN_FLIGHT
    }

    /// Takes the output with the commands that a sender flushes.
    ///
    /// A sender of another runtime flushes none: the one of the task may exist and not be driven, and then commands are
    /// executed whose senders have no reply.
    pub(super) fn flush_early(&mut self, shared: &Shared) -> Option<WireOutput> {
        if !self.is_flush_due() || !shared.is_on_runtime() {
            return None;
        }
        let mut output = self.output.take()?;
        self.flush_singles(&mut output.bytes, shared, Instant::now());
        Some(output)
    }

    /// Moves queued commands to `out`. The places of abandoned ones are for the next ones, because the task is woken
    /// for the first queued command only.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>, shared: &Shared, now: Instant) {
        let before = self.in_flight.len();
        while self.may_flush() {
            if self.queue.batches.len() == 0 {
                self.move_singles(out, now);
            } else {
                self.move_batch(out, now);
            }
        }
        self.end_flush(before, shared);
    }

    /// Moves the queued commands that are in no batch to `out`.
    pub(super) fn flush_singles(&mut self, out: &mut Vec<u8>, shared: &Shared, now: Instant) {
        let before = self.in_flight.len();
        self.move_singles(out, now);
        self.end_flush(before, shared);
    }

    fn move_singles(&mut self, out: &mut Vec<u8>, now: Instant) {
        let (slots, in_flight) = (&mut self.slots, &mut self.in_flight);
        let most = MAX_IN_FLIGHT - in_flight.len();
        self.queue.take(most, now, out, |command| {
            keep(slots, in_flight, command.slot, command.replies, now)
        });
    }

    fn move_batch(&mut self, out: &mut Vec<u8>, now: Instant) {
        let (slots, in_flight) = (&mut self.slots, &mut self.in_flight);
        let sent = in_flight.len();
        let batches = &mut self.queue.batches;
        let batch = batches.take(MAX_IN_FLIGHT - sent, out, |slot| {
            keep(slots, in_flight, slot, 1, now)
        });
        if let Some(first) = in_flight.get_mut(sent) {
            first.batch = batch;
        }
    }

    fn end_flush(&mut self, before: usize, shared: &Shared) {
        self.last_batch = self.in_flight.len() - before;
        self.was_active = true;
        shared
            .is_crowded
            .store(self.queue.claims() > 0, Ordering::Relaxed);
    }

    /// Takes the output back, unless the connection has ended.
    pub(super) fn put_back(&mut self, output: WireOutput) -> Option<WireOutput> {
        if matches!(self.phase, WirePhase::Ended(_)) {
            return Some(output);
        }
        self.output.replace(output)
    }

    /// Whether a sender waits for a reply.
    pub(super) fn has_senders(&self) -> bool {
        let mut slots = self.in_flight.iter().filter_map(|sent| sent.slot);
        slots.any(|slot| !self.slots.has_left(slot))
    }

    /// Whether no place in flight will be free: every command there has waited for its whole time.
    pub(super) fn is_stuck(&self) -> bool {
        let newest = self.in_flight.back();
        self.in_flight.len() >= MAX_IN_FLIGHT && newest.is_some_and(|sent| sent.slot.is_none())
    }

    /// Ends the commands in flight without a reply in time. When the next one is due, if there is one, or was lately.
    pub(super) fn expire(&mut self, now: Instant, wakers: &mut Wakers) -> Option<Instant> {
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

    /// Ends the connection with the error of the commands in flight. The returned output is dropped without the lock.
    #[must_use]
    pub(super) fn fail(&mut self, error: &RedisError, wakers: &mut Wakers) -> Option<WireOutput> {
        // The owner replaces a connection whose errors break it. With another one it would return this error for ever.
        let error = if breaks_connection(error) {
            error.clone()
        } else {
            ended(error.clone())
        };
        if !matches!(self.phase, WirePhase::Ended(_)) {
            self.phase = WirePhase::Ended(error.clone());
        }
        for sent in self.in_flight.drain(..) {
            if let Some(slot) = sent.slot {
                wakers.extend(self.slots.end(slot, Err(error.clone())));
            }
        }
        self.drop_queue(&error, wakers);
        self.output.take()
    }

    fn drop_queue(&mut self, error: &RedisError, wakers: &mut Wakers) {
        for slot in self.queue.clear() {
            wakers.extend(self.slots.end(slot, Err(error.clone())));
        }
    }
}

/// The write half of a connection, and the bytes for it.
///
/// One task at a time takes it out of the state and writes without the lock, because a write takes longer than all that
/// is done under the lock. If it panics, the connection has ended.
pub(super) struct WireOutput {
    half: Box<dyn AsyncWrite + Send + Unpin>,
    /// Commands in flight, from `written` on not yet written.
    pub(super) bytes: Vec<u8>,
    written: usize,
    /// All written bytes have been flushed: TLS keeps bytes that the socket refuses.
    is_flushed: bool,
}

impl WireOutput {
    pub(super) fn new(half: Box<dyn AsyncWrite + Send + Unpin>) -> Self {
        Self {
            half,
            bytes: Vec::new(),
            written: 0,
            is_flushed: true,
        }
    }

    /// Whether all bytes are written and flushed.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.is_flushed
    }

    /// Writes as much as the socket takes.
    pub(super) fn write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.written < self.bytes.len() {
            let bytes = &self.bytes[self.written..];
            match Pin::new(&mut self.half).poll_write(cx, bytes) {
                Poll::Pending => {
                    // On a busy connection all bytes may never be written at once.
                    if self.written > self.bytes.len() / 2 {
                        self.bytes.drain(..self.written);
                        self.written = 0;
                    }
                    return Ok(());
                }
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::BrokenPipe.into()),
                Poll::Ready(Ok(written)) => self.written += written,
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        if !self.bytes.is_empty() {
            self.is_flushed = false;
            self.bytes.clear();
            self.bytes.shrink_to(KEPT);
            self.written = 0;
        }
        if !self.is_flushed
            && let Poll::Ready(flushed) = Pin::new(&mut self.half).poll_flush(cx)
        {
            flushed?;
            self.is_flushed = true;
        }
        Ok(())
    }
}

/// Whether a command is sent: it is not abandoned.
fn keep(
    slots: &mut ReplySlots,
    in_flight: &mut VecDeque<SentCommand>,
    slot: SlotId,
    replies: u8,
    now: Instant,
) -> bool {
    let is_kept = !slots.free_abandoned(slot);
    if is_kept {
        in_flight.push_back(SentCommand::new(slot, replies, now));
    }
    is_kept
}

/// The error of a command without a reply in time.
pub(super) fn late() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

/// The error of a connection that has ended for this reason.
pub(super) fn ended(reason: impl Into<Box<dyn Error + Send + Sync>>) -> RedisError {
    io::Error::new(io::ErrorKind::BrokenPipe, reason).into()
}

/// The error of a connection that its owner has closed.
pub(super) fn closed() -> RedisError {
    ended("idem closed it")
}
