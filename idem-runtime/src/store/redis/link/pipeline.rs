//! A connection of the client library over TLS, shared by many senders, which pipelines their commands.
//!
//! Over TCP and Unix sockets the [wire](super::wire) takes its place. A single command costs the client library a
//! message, a timer and a channel; a pipeline costs these once. A lone command is sent immediately; queued commands are
//! flushed as one pipeline. No command waits for others to arrive.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::sync::{Notify, oneshot};

use super::command::WriteCommand;
use super::words::command_of;
use crate::store::Admission;
use crate::store::pace::{Crowded, Pace, admits};

/// Largest number of queued commands in a pipeline.
///
/// The first reply of a pipeline is delivered with the last one.
const MAX_BATCH: usize = 64;

/// Largest number of pipelines in flight.
///
/// Further commands stay in the queue, where completions overtake claims, and where no time-out of the client
/// library runs.
const MAX_IN_FLIGHT: usize = 8;

/// A connection with a queue of commands; dropping it closes both.
pub(super) struct PipelinedConnection {
    connection: MultiplexedConnection,
    queue: Arc<CommandQueue>,
}

/// The queue of a connection, shared with its flush task.
struct CommandQueue {
    commands: Mutex<QueuedCommands>,
    /// Wakes the flush task.
    wakeup: Notify,
    /// Lone commands and pipelines in flight.
    in_flight: AtomicUsize,
    /// Number of queued commands in the last pipeline.
    last_batch: AtomicUsize,
}

/// The commands of a queue, in the order in which they are flushed.
struct QueuedCommands {
    /// Completions, releases, renewals and reads.
    endings: VecDeque<QueuedCommand>,
    claims: VecDeque<QueuedCommand>,
    /// Pace at which claims leave the queue.
    pace: Pace,
    /// No further command is accepted.
    closed: bool,
}

/// One or two queued commands, and the channel for their replies.
struct QueuedCommand {
    first: Cmd,
    second: Option<Cmd>,
    reply: oneshot::Sender<RedisResult<Replies>>,
}

/// The reply to one command, or to each of two.
pub(super) struct Replies {
    pub(super) first: Value,
    pub(super) second: Option<Value>,
}

impl PipelinedConnection {
    /// Starts the flush task on the calling runtime, on which the connection's driver runs as well.
    pub(super) fn new(connection: MultiplexedConnection) -> Self {
        let queue = Arc::new(CommandQueue {
            commands: Mutex::new(QueuedCommands {
                endings: VecDeque::new(),
                claims: VecDeque::new(),
                pace: Pace::new(Instant::now()),
                closed: false,
            }),
            wakeup: Notify::new(),
            in_flight: AtomicUsize::new(0),
            last_batch: AtomicUsize::new(0),
        });
        let task = FlushTask(Arc::clone(&queue));
        tokio::spawn(task.run(connection.clone()));
        Self { connection, queue }
    }

    /// Sends a command, or two without another between them. If dropped, they may still be executed.
    pub(super) async fn send(
        &self,
        first: &WriteCommand<'_>,
        second: Option<&WriteCommand<'_>>,
        claims: bool,
    ) -> RedisResult<Replies> {
        let queue = &*self.queue;
        if queue.last_batch.load(Ordering::Relaxed) < 2
            && let Some(_in_flight) = InFlight::alone(queue)
        {
            // Boxed: it is much larger than the wait in the queue, which is the usual case under load.
            return Box::pin(alone(self.connection.clone(), first, second)).await;
        }
        match self.queue(first, second, claims) {
            Some(replies) => replies.await.unwrap_or_else(|_| Err(ended())),
            None => Err(ended()),
        }
    }

    /// Queues the commands, and returns the receiver of the replies; `None`: the queue is closed.
    fn queue(
        &self,
        first: &WriteCommand<'_>,
        second: Option<&WriteCommand<'_>>,
        claims: bool,
    ) -> Option<oneshot::Receiver<RedisResult<Replies>>> {
        let (reply, replies) = oneshot::channel();
        let command = QueuedCommand {
            first: command_of(first),
            second: second.map(command_of),
            reply,
        };
        let is_first = {
            let mut queued = self.queue.lock();
            if queued.closed {
                return None;
            }
            if claims {
                if queued.claims.is_empty() {
                    queued.pace.joined(0, Instant::now());
                }
                queued.claims.push_back(command);
            } else {
                queued.endings.push_back(command);
            }
            queued.len() == 1
        };
        if is_first {
            self.queue.wakeup.notify_one();
        }
        Some(replies)
    }

    /// Closes the queue. Queued commands fail as not sent.
    pub(super) fn close(&self) {
        let unsent = self.queue.lock().close();
        drop(unsent);
        self.queue.wakeup.notify_one();
    }

    /// Queue of a claim that cannot be sent in time.
    pub(super) fn crowded(&self, admission: &Admission) -> Option<Crowded> {
        // As long as one pipeline takes all queued commands, no claim waits for another pipeline.
        if self.queue.last_batch.load(Ordering::Relaxed) < MAX_BATCH {
            return None;
        }
        let queued = self.queue.lock();
        admits(&queued.pace, queued.claims.len(), admission, Instant::now()).err()
    }
}

impl QueuedCommands {
    fn len(&self) -> usize {
        self.endings.len() + self.claims.len()
    }

    /// Closes the queue, and takes all commands.
    fn close(&mut self) -> [VecDeque<QueuedCommand>; 2] {
        self.closed = true;
        [mem::take(&mut self.endings), mem::take(&mut self.claims)]
    }

    /// Takes the commands of the next pipeline.
    fn batch(&mut self) -> Vec<QueuedCommand> {
        let endings = self.endings.len().min(MAX_BATCH);
        let claims = self.claims.len().min(MAX_BATCH - endings);
        let mut batch = Vec::with_capacity(endings + claims);
        batch.extend(self.endings.drain(..endings));
        if claims > 0 {
            batch.extend(self.claims.drain(..claims));
            self.pace.left(claims, self.claims.len(), Instant::now());
        }
        batch
    }
}

/// Sends a command, or two, on an otherwise idle connection.
async fn alone(
    mut connection: MultiplexedConnection,
    first: &WriteCommand<'_>,
    second: Option<&WriteCommand<'_>>,
) -> RedisResult<Replies> {
    if let Some(second) = second {
        let both = both(first, second);
        let replies = connection.send_packed_commands(&both, 0, 2).await?;
        return Replies::of_both(replies);
    }
    let first = connection.send_packed_command(&command_of(first)).await?;
    Ok(Replies {
        first,
        second: None,
    })
}

impl Drop for PipelinedConnection {
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        self.queue.wakeup.notify_one();
    }
}

/// A pipeline of two commands, for an otherwise idle connection.
fn both(first: &WriteCommand<'_>, second: &WriteCommand<'_>) -> Pipeline {
    let mut both = Pipeline::with_capacity(2);
    both.add_command(command_of(first))
        .add_command(command_of(second));
    both
}

impl Replies {
    fn of_both(replies: Vec<Value>) -> RedisResult<Self> {
        Self::take(&mut replies.into_iter(), true)
    }

    fn take(replies: &mut impl Iterator<Item = Value>, both: bool) -> RedisResult<Self> {
        let first = replies.next().ok_or_else(cut_short)?;
        let second = if both {
            Some(replies.next().ok_or_else(cut_short)?)
        } else {
            None
        };
        Ok(Self { first, second })
    }
}

impl CommandQueue {
    fn lock(&self) -> MutexGuard<'_, QueuedCommands> {
        // Nothing panics while it is held.
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the commands of the next pipeline; `None` when the queue is closed and empty.
    fn take(&self) -> Option<Vec<QueuedCommand>> {
        let mut queued = self.lock();
        if queued.closed && queued.len() == 0 {
            return None;
        }
        let batch = queued.batch();
        // This notification may have been the one of `close`, which sends no other.
        if queued.len() > 0 || queued.closed {
            self.wakeup.notify_one();
        }
        Some(batch)
    }
}

/// Counter guard of a lone command or a pipeline in flight.
struct InFlight<'a>(&'a CommandQueue);

impl<'a> InFlight<'a> {
    /// For a pipeline that the flush task has counted already.
    fn counted(queue: &'a CommandQueue) -> Self {
        Self(queue)
    }

    /// Only if nothing else is in flight.
    fn alone(queue: &'a CommandQueue) -> Option<Self> {
        let begun = queue
            .in_flight
            .compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
        // Not `then_some`: it would construct the guard in any case, and its drop decrements the count.
        begun.is_ok().then(|| Self(queue))
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        // The flush task may wait for a free slot.
        if self.0.in_flight.fetch_sub(1, Ordering::AcqRel) >= MAX_IN_FLIGHT {
            self.0.wakeup.notify_one();
        }
    }
}

/// Flushes the queue as pipelines. When its runtime drops it, all queued commands fail.
struct FlushTask(Arc<CommandQueue>);

impl FlushTask {
    async fn run(self, connection: MultiplexedConnection) {
        loop {
            self.0.wakeup.notified().await;
            // Tasks that are about to send a command join this pipeline.
            tokio::task::yield_now().await;
            // The end of a pipeline wakes this task again.
            if self.0.in_flight.load(Ordering::Acquire) >= MAX_IN_FLIGHT {
                continue;
            }
            let Some(batch) = self.0.take() else {
                return;
            };
            self.0.last_batch.store(batch.len(), Ordering::Relaxed);
            if !batch.is_empty() {
                self.0.in_flight.fetch_add(1, Ordering::AcqRel);
                tokio::spawn(flush(Arc::clone(&self.0), connection.clone(), batch));
            }
        }
    }
}

impl Drop for FlushTask {
    fn drop(&mut self) {
        let unsent = self.0.lock().close();
        drop(unsent);
    }
}

/// Sends a pipeline, and delivers its replies.
async fn flush(
    queue: Arc<CommandQueue>,
    mut connection: MultiplexedConnection,
    batch: Vec<QueuedCommand>,
) {
    let _in_flight = InFlight::counted(&queue);
    let mut commands = Pipeline::with_capacity(batch.len());
    let mut receivers = Vec::with_capacity(batch.len());
    for QueuedCommand {
        first,
        second,
        reply,
    } in batch
    {
        // The sender has cancelled the command, which was not sent yet.
        if reply.is_closed() {
            continue;
        }
        receivers.push((reply, second.is_some()));
        commands.add_command(first);
        if let Some(second) = second {
            commands.add_command(second);
        }
    }
    if receivers.is_empty() {
        return;
    }
    let count = commands.len();
    let replies = connection.send_packed_commands(&commands, 0, count).await;
    // The receiver may be gone by now.
    match replies {
        Ok(replies) => {
            let mut replies = replies.into_iter();
            for (reply, both) in receivers {
                let _ = reply.send(Replies::take(&mut replies, both));
            }
        }
        Err(error) => {
            for (reply, _) in receivers {
                let _ = reply.send(Err(error.clone()));
            }
        }
    }
}

/// The error of an ended connection.
fn ended() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()
}

/// The error of a pipeline with fewer replies than commands.
fn cut_short() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()
}

#[cfg(test)]
mod tests;
