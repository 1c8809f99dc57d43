//! One connection that many send on: what they send at the same time goes out together.
//!
//! A command of its own costs the client library a message, a timer and a channel; a pipeline costs these
//! once. So a command that nobody else's accompanies is sent at once, and while there is a crowd, whatever
//! was said since the last turn is sent as one pipeline. Nobody waits for a crowd to gather.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::sync::{Notify, oneshot};

use super::Making;
use crate::store::Admission;
use crate::store::pace::{Crowded, Pace, admits};

/// So many go out together at most: the first of them has its reply when the last one has.
const TOGETHER: usize = 64;

/// So many pipelines are under way at most. What else there is waits here, where what ends a claim overtakes
/// claims, and where no time-out of the client library counts.
const UNDER_WAY: usize = 8;

/// It ends when it is dropped, and the connection with it.
pub(super) struct Lane {
    connection: MultiplexedConnection,
    queue: Arc<Queue>,
}

struct Queue {
    waiting: Mutex<Waiting>,
    called: Notify,
    /// How much has been sent and has no reply yet: what was sent alone, and pipelines.
    under_way: AtomicUsize,
    /// How many went out together last.
    crowd: AtomicUsize,
}

struct Waiting {
    /// What ends or keeps a claim, or reads.
    endings: VecDeque<Waiter>,
    claims: VecDeque<Waiter>,
    /// Of claims.
    pace: Pace,
    /// Nobody sends them any more.
    closed: bool,
}

/// What somebody wants sent, one right behind the other, and where the replies go.
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
    /// Its driver runs on the runtime of whoever calls this, as does the connection's own.
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

    /// Sends a command, or two with nobody's between them. Dropped, they may still be executed.
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
            // Boxed: it is much larger than waiting for one's turn, which most do where it matters.
            return Box::pin(alone(self.connection.clone(), first, second)).await;
        }
        match self.queue(first, second, claims) {
            Some(told) => told.await.unwrap_or_else(|_| Err(ended())),
            None => Err(ended()),
        }
    }

    /// Where the replies will come from; `None`: nobody sends anything any more.
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
    /// Nothing more is sent. What waits is told so: it was not sent.
    pub(super) fn abandon(&self) {
        let waiters = self.queue.lock().close();
        drop(waiters);
        self.queue.called.notify_one();
    }

    /// Why a claim could not be sent in time, if it could not.
    pub(super) fn crowded(&self, admission: &Admission) -> Option<Crowded> {
        // As long as all that waits goes out together there is no queue.
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

    /// Takes all that waits, and lets nothing more in.
    fn close(&mut self) -> [VecDeque<Waiter>; 2] {
        self.closed = true;
        [mem::take(&mut self.endings), mem::take(&mut self.claims)]
    }

    /// What goes out together next.
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

/// Two commands for a connection with nobody else on it.
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

    /// What is to be sent now; `None` when nothing more will be.
    fn take(&self) -> Option<Vec<Waiter>> {
        let mut waiting = self.lock();
        if waiting.closed && waiting.len() == 0 {
            return None;
        }
        let batch = waiting.batch();
        // Nobody calls again where all is closed: the call for that may have been this one.
        if waiting.len() > 0 || waiting.closed {
            self.called.notify_one();
        }
        Some(batch)
    }
}

/// Something that has been sent.
struct UnderWay<'a>(&'a Queue);

impl<'a> UnderWay<'a> {
    /// Of a pipeline that was counted when it was taken.
    fn counted(queue: &'a Queue) -> Self {
        Self(queue)
    }

    /// Only if nothing else is.
    fn alone(queue: &'a Queue) -> Option<Self> {
        let begun = queue
            .under_way
            .compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
        // Not `then_some`: what is made is dropped, and counts.
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

/// Sends what waits. Dropped with its runtime, it leaves nobody waiting.
struct Driver(Arc<Queue>);

impl Driver {
    async fn drive(self, connection: MultiplexedConnection) {
        loop {
            self.0.called.notified().await;
            // Whoever is about to send something as well does so first.
            tokio::task::yield_now().await;
            // The end of one of them calls again.
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
        // Who has gone has not sent anything yet.
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
    // Whoever is told may be gone by now.
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

/// As when the connection had ended.
fn ended() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()
}

/// Fewer replies than commands.
fn cut_short() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()
}

#[cfg(test)]
mod tests;
