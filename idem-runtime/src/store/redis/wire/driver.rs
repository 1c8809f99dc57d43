//! The task of a connection: it reads replies, sends queued commands, and ends what takes too long.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use redis::{RedisResult, Value};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Sleep;

use super::frame::{self, Frame, Published, is_confirmation};
use super::queue::reply_at;
use super::slots::Wakers;
use super::state::{MAX_IN_FLIGHT, Shared, WireOutput, WireState, closed, ended};

/// First size of the reply buffer, and the largest size kept.
const BUFFER: usize = 16 * 1_024;
const KEPT: usize = 1 << 20;
/// Bytes after which replies are delivered although there may be more.
const TURN: usize = 256 * 1_024;

/// The task of a connection. When its runtime drops it, all commands fail.
pub(super) struct Driver<R> {
    shared: Arc<Shared>,
    read: R,
    buffer: Vec<u8>,
    filled: usize,
    /// Longest text of a reply that is kept.
    text_bytes: usize,
    /// Bytes to come of a text that is discarded.
    discarded: usize,
    replies: Vec<Value>,
    messages: Option<UnboundedSender<Published>>,
    wakers: Wakers,
    /// Ends no later than the first command in flight may take.
    timer: Pin<Box<Sleep>>,
    /// Senders that are about to queue a command have had their turn.
    yielded: bool,
}

impl<R: AsyncRead + Unpin> Driver<R> {
    pub(super) fn new(
        shared: Arc<Shared>,
        read: R,
        text_bytes: usize,
        messages: Option<UnboundedSender<Published>>,
    ) -> Self {
        Self {
            shared,
            read,
            buffer: vec![0; BUFFER],
            filled: 0,
            text_bytes,
            discarded: 0,
            replies: Vec::new(),
            messages,
            wakers: Wakers::default(),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            yielded: false,
        }
    }

    /// Runs until the connection is closed or lost.
    pub(super) async fn run(mut self) {
        std::future::poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let read = self.poll_read(cx);
        let may_have_more = read.is_ready();
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        match &mut state.driver {
            Some(driver) => driver.clone_from(cx.waker()),
            None => state.driver = Some(cx.waker().clone()),
        }
        state.turns += 1;
        let mut outcome = self.deliver(&mut state);
        // The server's replies come first: a write fails because the server has closed the connection.
        if outcome.is_ok()
            && let Poll::Ready(Err(error)) = read
        {
            outcome = Err(error);
        }
        if outcome.is_ok()
            && !may_have_more
            && let Some(error) = state.write_error.take()
        {
            outcome = Err(error);
        }
        if outcome.is_ok()
            && state.write_error.is_none()
            && let Some(mut output) = self.flush(&mut state, cx)
        {
            drop(state);
            let written = output.write(cx);
            state = shared.lock();
            if let Err(error) = written {
                // The next turn takes it, after the replies that can be read by then.
                state.write_error = Some(error.into());
                cx.waker().wake_by_ref();
            }
            state.put_back(output);
        }
        if outcome.is_ok() {
            self.expire(&mut state, cx);
            if state.is_stuck() {
                outcome = Err(ended(format!(
                    "{MAX_IN_FLIGHT} commands have no reply in time"
                )));
            }
        }
        if outcome.is_ok() && state.is_closed() && !state.has_senders() {
            outcome = Err(closed());
        }
        let has_ended = outcome.is_err();
        let _output = match outcome {
            Ok(()) => None,
            Err(error) => state.fail(&error, &mut self.wakers),
        };
        drop(state);
        self.wakers.wake();
        if has_ended {
            return Poll::Ready(());
        }
        if may_have_more {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Reads until there is nothing more, or for long enough.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<RedisResult<()>> {
        let mut turn = 0;
        while turn < TURN {
            if self.filled == self.buffer.len() {
                self.buffer.resize(self.filled * 2, 0);
            }
            let mut buffer = ReadBuf::new(&mut self.buffer[self.filled..]);
            match Pin::new(&mut self.read).poll_read(cx, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Ready(Ok(())) => {}
            }
            let read = buffer.filled().len();
            if read == 0 {
                return Poll::Ready(Err(ended("the server has closed it")));
            }
            self.filled += read;
            turn += read;
            if let Err(error) = self.parse() {
                return Poll::Ready(Err(error));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes the complete replies out of the buffer.
    fn parse(&mut self) -> RedisResult<()> {
        let mut at = 0;
        while at < self.filled {
            if self.discarded > 0 {
                let arrived = self.discarded.min(self.filled - at);
                self.discarded -= arrived;
                at += arrived;
                continue;
            }
            let bytes = &self.buffer[at..self.filled];
            match frame::first(bytes)? {
                Frame::Partial => {
                    let Some((length, frame)) = frame::text_frame(bytes)? else {
                        break;
                    };
                    if length <= self.text_bytes {
                        break;
                    }
                    let length = i64::try_from(length).unwrap_or(i64::MAX);
                    self.replies.push(Value::Int(length));
                    self.discarded = frame;
                }
                Frame::Reply(value, length) => {
                    let reply = match &self.messages {
                        Some(messages) => Published::deliver(value, messages),
                        None => Some(value),
                    };
                    self.replies.extend(reply);
                    at += length;
                }
                Frame::Push(length) => {
                    if let Some(messages) = &self.messages {
                        let (push, _) = frame::value(&bytes[..length])?;
                        let other = Published::deliver(push, messages);
                        // In the newer protocol the reply to a subscription is a push as well.
                        self.replies.extend(other.filter(is_confirmation));
                    }
                    at += length;
                }
            }
        }
        // A long reply arrives in many parts, which stay where they are.
        if at > 0 {
            self.buffer.copy_within(at..self.filled, 0);
            self.filled -= at;
        }
        if self.filled == 0 && self.buffer.len() > KEPT {
            self.buffer = vec![0; BUFFER];
        }
        Ok(())
    }

    fn deliver(&mut self, state: &mut WireState) -> RedisResult<()> {
        for value in self.replies.drain(..) {
            let Some(command) = state.in_flight.front_mut() else {
                // The last words of a server that closes the connection, such as "max number of clients reached".
                return Err(match value {
                    Value::ServerError(error) => error.into(),
                    _ => ended("a reply to no command"),
                });
            };
            let batch = command.batch;
            if batch > 1 {
                for (at, command) in state.in_flight.drain(..batch).enumerate() {
                    let Some(slot) = command.slot else { continue };
                    let value = reply_at(&value, at + 1, batch);
                    self.wakers.extend(state.slots.reply(slot, value, true));
                }
                continue;
            }
            command.replies -= 1;
            let (slot, last) = (command.slot, command.replies == 0);
            if last {
                state.in_flight.pop_front();
            }
            if let Some(slot) = slot {
                self.wakers.extend(state.slots.reply(slot, value, last));
            }
        }
        Ok(())
    }

    /// Flushes the queue, and takes the output for a write.
    fn flush(&mut self, state: &mut WireState, cx: &mut Context<'_>) -> Option<WireOutput> {
        let yielded = std::mem::take(&mut self.yielded);
        let mut output = state.output.take();
        state.awaits_output = false;
        if state.may_flush() {
            match &mut output {
                Some(output) if yielded => {
                    state.flush(&mut output.bytes, &self.shared, Instant::now());
                }
                // A sender writes, and wakes the task.
                None if yielded => {
                    self.yielded = true;
                    state.awaits_output = true;
                }
                // Senders that are about to queue a command join this batch.
                _ => {
                    self.yielded = true;
                    cx.waker().wake_by_ref();
                }
            }
        }
        state.output = output.take_if(|output| output.is_empty());
        output
    }

    /// Ends the wait for replies that have not arrived in time. They may still come.
    fn expire(&mut self, state: &mut WireState, cx: &mut Context<'_>) {
        loop {
            if state.is_timed && self.timer.as_mut().poll(cx).is_pending() {
                return;
            }
            let now = Instant::now();
            let Some(next) = state.expire(now, &mut self.wakers) else {
                state.is_timed = false;
                return;
            };
            state.is_timed = true;
            // Tokio's clock may be paused, and ahead of the one by which commands end: a time of that one has passed
            // already, and the timer would end at every poll.
            let left = next.saturating_duration_since(now);
            self.timer
                .as_mut()
                .reset(tokio::time::Instant::now() + left);
        }
    }
}

impl<R> Drop for Driver<R> {
    fn drop(&mut self) {
        let error = ended("its task has ended, with its runtime or by a panic");
        // Dropped without the lock; the wakers are the last ones.
        let _output = self.shared.lock().fail(&error, &mut self.wakers);
    }
}
