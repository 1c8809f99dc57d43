//! A connection shared by many senders, which batches their commands.
//!
//! A single command costs the client library a message, a timer and a channel; a pipeline costs these
//! once. A lone command is sent immediately; queued commands are flushed as one pipeline. No command waits
//! for others to arrive.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::sync::{Notify, oneshot};

use super::command::Making;
use crate::store::Admission;
use crate::store::pace::{Crowded, Pace, admits};

/// Largest number of waiters in a pipeline: its first reply arrives with its last.
const TOGETHER: usize = 64;

/// Largest number of pipelines in flight. Further commands are queued here, where completions overtake
/// claims, and where no time-out of the client library counts.
const UNDER_WAY: usize = 8;

/// A connection with a queue; dropping it ends both.
pub(super) struct Lane {
    connection: MultiplexedConnection,
    queue: Arc<Queue>,
}

struct Queue {
    waiting: Mutex<Waiting>,
    called: Notify,
    /// Lone commands and pipelines in flight.
    under_way: AtomicUsize,
    /// Size of the last batch.
    crowd: AtomicUsize,
}

struct Waiting {
    /// Completions, releases, renewals and reads.
    endings: VecDeque<Waiter>,
    claims: VecDeque<Waiter>,
    /// Pace at which claims leave the queue.
    pace: Pace,
    /// No command is accepted any more.
    closed: bool,
}

/// One or two queued commands, and the channel for their replies.
struct Waiter {
    first: Cmd,
    second: Option<Cmd>,
    tell: oneshot::Sender<RedisResult<Replies>>,
}

/// The reply to one command, or to each of two.
pub(super) struct Replies {
    pub(super) first: Value,
    pub(super) second: Option<Value>,
}

impl Lane {
    /// Its driver runs on the calling runtime, as does the connection's own.
    pub(super) fn new(connection: MultiplexedConnection) -> Self {
        let queue = Arc::new(Queue {
            waiting: Mutex::new(Waiting {
                endings: VecDeque::new(),
                claims: VecDeque::new(),
                pace: Pace::new(Instant::now()),
                closed: false,
            }),
            called: Notify::new(),
            under_way: AtomicUsize::new(0),
            crowd: AtomicUsize::new(0),
        });
        let driver = Driver(Arc::clone(&queue));
        tokio::spawn(driver.drive(connection.clone()));
        Self { connection, queue }
    }

    /// Sends a command, or two without another between them. If dropped, they may still be executed.
    pub(super) async fn send(
        &self,
        first: &Making<'_>,
        second: Option<&Making<'_>>,
        claims: bool,
    ) -> RedisResult<Replies> {
        let queue = &*self.queue;
        if queue.crowd.load(Ordering::Relaxed) < 2
            && let Some(_under_way) = UnderWay::alone(queue)
        {
            // Boxed: it is much larger than the wait in the queue, which is the usual case under load.
            return Box::pin(alone(self.connection.clone(), first, second)).await;
        }
        match self.queue(first, second, claims) {
            Some(told) => told.await.unwrap_or_else(|_| Err(ended())),
            None => Err(ended()),
        }
    }

    /// Queues the commands, and returns the receiver of the replies; `None`: the lane is closed.
    fn queue(
        &self,
        first: &Making<'_>,
        second: Option<&Making<'_>>,
        claims: bool,
    ) -> Option<oneshot::Receiver<RedisResult<Replies>>> {
        let (tell, told) = oneshot::channel();
        let waiter = Waiter {
            first: first(),
            second: second.map(|second| second()),
            tell,
        };
        let is_first = {
            let mut waiting = self.queue.lock();
            if waiting.closed {
                return None;
            }
            if claims {
                if waiting.claims.is_empty() {
                    waiting.pace.joined(0, Instant::now());
                }
                waiting.claims.push_back(waiter);
            } else {
                waiting.endings.push_back(waiter);
            }
            waiting.len() == 1
        };
        if is_first {
            self.queue.called.notify_one();
        }
        Some(told)
    }
}

impl Lane {
    /// Closes the lane. Queued commands fail as not sent.
    pub(super) fn abandon(&self) {
        let waiters = self.queue.lock().close();
        drop(waiters);
        self.queue.called.notify_one();
    }

    /// Why a claim cannot be sent in time, if so.
    pub(super) fn crowded(&self, admission: &Admission) -> Option<Crowded> {
        // As long as one batch takes all waiters there is no queue.
        if self.queue.crowd.load(Ordering::Relaxed) < TOGETHER {
            return None;
        }
        let waiting = self.queue.lock();
        admits(
            &waiting.pace,
            waiting.claims.len(),
            admission,
            Instant::now(),
        )
        .err()
    }
}

impl Waiting {
    fn len(&self) -> usize {
        self.endings.len() + self.claims.len()
    }

    /// Takes all waiters, and closes the queue.
    fn close(&mut self) -> [VecDeque<Waiter>; 2] {
        self.closed = true;
        [mem::take(&mut self.endings), mem::take(&mut self.claims)]
    }

    /// Takes the next batch.
    fn batch(&mut self) -> Vec<Waiter> {
        let endings = self.endings.len().min(TOGETHER);
        let claims = self.claims.len().min(TOGETHER - endings);
        let mut batch = Vec::with_capacity(endings + claims);
        batch.extend(self.endings.drain(..endings));
        if claims > 0 {
            batch.extend(self.claims.drain(..claims));
            self.pace.left(claims, self.claims.len(), Instant::now());
        }
        batch
    }
}

async fn alone(
    mut connection: MultiplexedConnection,
    first: &Making<'_>,
    second: Option<&Making<'_>>,
) -> RedisResult<Replies> {
    if let Some(second) = second {
        let both = both(first, second);
        let replies = connection.send_packed_commands(&both, 0, 2).await?;
        return Replies::of_both(replies);
    }
    let first = connection.send_packed_command(&first()).await?;
    Ok(Replies {
        first,
        second: None,
    })
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        self.queue.called.notify_one();
    }
}

/// A pipeline of two commands, for an otherwise idle connection.
fn both(first: &Making<'_>, second: &Making<'_>) -> Pipeline {
    let mut both = Pipeline::with_capacity(2);
    both.add_command(first()).add_command(second());
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

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while it is held.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next batch; `None` when the queue is closed and empty.
    fn take(&self) -> Option<Vec<Waiter>> {
        let mut waiting = self.lock();
        if waiting.closed && waiting.len() == 0 {
            return None;
        }
        let batch = waiting.batch();
        // No further notification comes once the queue is closed: this may have been the one for that.
        if waiting.len() > 0 || waiting.closed {
            self.called.notify_one();
        }
        Some(batch)
    }
}

/// Counts a lone command or a pipeline in flight.
struct UnderWay<'a>(&'a Queue);

impl<'a> UnderWay<'a> {
    /// For a pipeline that was counted when it was taken.
    fn counted(queue: &'a Queue) -> Self {
        Self(queue)
    }

    /// Only if nothing else is in flight.
    fn alone(queue: &'a Queue) -> Option<Self> {
        let begun = queue
            .under_way
            .compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
        // Not `then_some`: it would construct the guard in any case, and its drop decrements the count.
        begun.is_ok().then(|| Self(queue))
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        // The driver may wait for this.
        if self.0.under_way.fetch_sub(1, Ordering::AcqRel) >= UNDER_WAY {
            self.0.called.notify_one();
        }
    }
}

/// Sends the queued batches. When its runtime drops it, all waiters fail.
struct Driver(Arc<Queue>);

impl Driver {
    async fn drive(self, connection: MultiplexedConnection) {
        loop {
            self.0.called.notified().await;
            // Other tasks that are about to send a command do so first.
            tokio::task::yield_now().await;
            // The end of a pipeline notifies again.
            if self.0.under_way.load(Ordering::Acquire) >= UNDER_WAY {
                continue;
            }
            let Some(waiters) = self.0.take() else {
                return;
            };
            self.0.crowd.store(waiters.len(), Ordering::Relaxed);
            if !waiters.is_empty() {
                self.0.under_way.fetch_add(1, Ordering::AcqRel);
                tokio::spawn(exchange(Arc::clone(&self.0), connection.clone(), waiters));
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let waiters = self.0.lock().close();
        drop(waiters);
    }
}

async fn exchange(queue: Arc<Queue>, mut connection: MultiplexedConnection, waiters: Vec<Waiter>) {
    let _under_way = UnderWay::counted(&queue);
    let mut commands = Pipeline::with_capacity(waiters.len());
    let mut told = Vec::with_capacity(waiters.len());
    for Waiter {
        first,
        second,
        tell,
    } in waiters
    {
        // A command whose sender is gone was not sent yet, and is skipped.
        if tell.is_closed() {
            continue;
        }
        told.push((tell, second.is_some()));
        commands.add_command(first);
        if let Some(second) = second {
            commands.add_command(second);
        }
    }
    if told.is_empty() {
        return;
    }
    let count = commands.len();
    let replies = connection.send_packed_commands(&commands, 0, count).await;
    // The receiver may be gone by now.
    match replies {
        Ok(replies) => {
            let mut replies = replies.into_iter();
            for (tell, both) in told {
                let _ = tell.send(Replies::take(&mut replies, both));
            }
        }
        Err(error) => {
            for (tell, _) in told {
                let _ = tell.send(Err(error.clone()));
            }
        }
    }
}

/// The error of an ended connection.
fn ended() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()
}

/// Fewer replies than commands.
fn cut_short() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()
}

#[cfg(test)]
mod tests;
