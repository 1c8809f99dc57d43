//! GroupCommit commit: the statements of several calls in one transaction.
//!
//! The transaction takes one write of the disk.
//!
//! A statement that finds no other in progress is sent immediately, on a connection of its [lane](crate::store::sql::pool), as
//! without group commit. Otherwise it is queued, and the store's own thread takes all statements that were queued while
//! it wrote the previous batch. No caller receives a reply before the commit. The thread does not belong to a caller,
//! because a caller's thread that blocks or ends would delay all others.

#![allow(
    unnameable_types,
    reason = "a part of the backends, which nobody else implements"
)]

mod batch;
mod gather;
mod message;
pub(in crate::store::sql) mod multi_row;
mod queued_statement;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use tokio::runtime::Builder;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::store::pace::{Crowded, Pace, admits};
use crate::store::sql::backend::Argument;
use crate::store::sql::permits::Priority;
use crate::store::sql::pool::StatementOutcome;
use crate::store::sql::sqlite::group_commit::batch::BatchWriter;
use crate::store::sql::sqlite::group_commit::gather::GatherPause;
use crate::store::sql::sqlite::group_commit::queued_statement::QueuedStatement;
use crate::store::sql::statement::Statement;

/// How long a batch waits for a lone statement to finish. SQLite would wait for the file's lock anyway, but in steps of
/// a millisecond and more.
const PATIENCE: Duration = Duration::from_millis(1);

/// The maximum number of statements of a transaction: other writers of the file wait for it.
pub(in crate::store::sql) const MOST: usize = 512;

/// The queue of one store.
pub struct GroupCommit(Arc<WriteQueue>);

pub(in crate::store::sql) struct WriteQueue {
    options: SqliteConnectOptions,
    state: Mutex<WriteQueueState>,
    wake: Notify,
}

struct WriteQueueState {
    /// Statements that end or keep a claim. They are written first.
    endings: Vec<QueuedStatement>,
    claims: Vec<QueuedStatement>,
    pace: Pace,
    /// The lone statement, if it is still in progress.
    alone: Option<u64>,
    turns: u64,
    /// The thread writes, or waits for further statements of the callers that it has replied to.
    writing: bool,
    /// How many queued statements wake the thread, while it waits for them.
    wanted: usize,
    thread: bool,
    closed: bool,
}

impl Default for WriteQueueState {
    fn default() -> Self {
        Self {
            endings: Vec::new(),
            claims: Vec::new(),
            pace: Pace::new(std::time::Instant::now()),
            alone: None,
            turns: 0,
            writing: false,
            wanted: 0,
            thread: false,
            closed: false,
        }
    }
}

impl WriteQueueState {
    fn in_line(&self) -> usize {
        self.endings.len() + self.claims.len()
    }

    /// The next batch.
    fn take(&mut self) -> Vec<QueuedStatement> {
        let rest = self.endings.split_off(self.endings.len().min(MOST));
        let mut batch = std::mem::replace(&mut self.endings, rest);
        let claims = self.claims.len().min(MOST - batch.len());
        batch.extend(self.claims.drain(..claims));
        let waiting = self.claims.len();
        self.pace.left(claims, waiting, std::time::Instant::now());
        batch
    }
}

/// How a statement is sent.
pub(crate) enum WritePath<'g> {
    /// Alone; statements that arrive while the turn is held are queued.
    Alone(LoneWrite<'g>),
    /// In a batch.
    Queued(oneshot::Receiver<StatementOutcome>),
    /// Alone, because there is no thread.
    Unqueued,
    /// A claim that could not be written in time.
    Refused(Crowded),
}

impl GroupCommit {
    pub(in crate::store::sql) fn new(options: SqliteConnectOptions) -> Self {
        Self(Arc::new(WriteQueue {
            options,
            state: Mutex::default(),
            wake: Notify::new(),
        }))
    }

    /// Lets a statement go alone, or queues it.
    pub(crate) fn enter(
        &self,
        what: &'static str,
        priority: Priority<'_>,
        statement: &Statement,
        arguments: &[Argument<'_>],
    ) -> WritePath<'_> {
        let mut state = self.0.lock();
        if state.alone.is_none() && !state.writing && state.in_line() == 0 {
            state.turns += 1;
            state.alone = Some(state.turns);
            return WritePath::Alone(LoneWrite {
                number: state.turns,
                queue: &self.0,
            });
        }
        if !state.thread {
            // Without another thread it works as well, but slower.
            if self.0.start().is_err() {
                return WritePath::Unqueued;
            }
            state.thread = true;
        }
        if let Priority::Claim(admission) = priority {
            let (waiting, now) = (state.claims.len(), std::time::Instant::now());
            state.pace.joined(waiting, now);
            if let Err(crowded) = admits(&state.pace, waiting, admission, now) {
                return WritePath::Refused(crowded);
            }
        }
        let (job, told) = QueuedStatement::new(what, statement, arguments);
        match priority {
            Priority::Ending => state.endings.push(job),
            _ => state.claims.push(job),
        }
        let enough = state.in_line() >= state.wanted;
        drop(state);
        if enough {
            self.0.wake.notify_one();
        }
        WritePath::Queued(told)
    }
}

impl Drop for GroupCommit {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.wake.notify_one();
    }
}

impl fmt::Debug for GroupCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCommit").finish_non_exhaustive()
    }
}

/// Held while a lone statement is in progress.
pub(crate) struct LoneWrite<'g> {
    number: u64,
    queue: &'g WriteQueue,
}

impl Drop for LoneWrite<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        if state.alone == Some(self.number) {
            state.alone = None;
        }
        let waiting = state.in_line() > 0;
        drop(state);
        if waiting {
            self.queue.wake.notify_one();
        }
    }
}

/// The next step of the thread.
enum Next {
    Write(Vec<QueuedStatement>),
    Sleep,
    /// Until this turn is over.
    Wait(u64),
    /// For further statements of the callers that have just received their replies.
    Gather,
    End,
}

impl WriteQueue {
    fn lock(&self) -> MutexGuard<'_, WriteQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let queue = Arc::clone(self);
        let thread = std::thread::Builder::new().name("idem-sqlite".to_owned());
        thread.spawn(move || {
            // If this thread ends or fails, the next statement starts another.
            let gone = ThreadEnded(Arc::clone(&queue));
            let runtime = Builder::new_current_thread().enable_time().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(queue.write());
            }
            drop(gone);
        })?;
        Ok(())
    }

    async fn write(&self) {
        let mut writer = BatchWriter::new(self.options.clone());
        // The turn to wait for, and the time limit.
        let mut waits = (0, Instant::now());
        let mut pause = GatherPause::default();
        loop {
            match self.next(waits, &mut pause) {
                Next::Write(jobs) => {
                    let (told, began) = (jobs.len(), Instant::now());
                    writer.write(jobs).await;
                    pause = pause.after(told, began, Instant::now());
                }
                Next::Gather => {
                    let _ = timeout_at(pause.until, self.wake.notified()).await;
                }
                Next::Sleep => self.wake.notified().await,
                Next::Wait(turn) => {
                    if waits.0 != turn {
                        waits = (turn, Instant::now() + PATIENCE);
                    }
                    let _ = timeout_at(waits.1, self.wake.notified()).await;
                }
                Next::End => return,
            }
        }
    }

    fn next(&self, (turn, until): (u64, Instant), pause: &mut GatherPause) -> Next {
        let mut state = self.lock();
        if pause.goes_on(state.in_line(), Instant::now()) && !state.closed {
            state.wanted = pause.wanted;
            return Next::Gather;
        }
        state.wanted = 0;
        state.writing = false;
        if state.in_line() == 0 {
            return if state.closed { Next::End } else { Next::Sleep };
        }
        match state.alone {
            // Its caller may be blocked, and then never ends its turn.
            Some(alone) if alone != turn || Instant::now() < until => Next::Wait(alone),
            _ => {
                state.writing = true;
                Next::Write(state.take())
            }
        }
    }
}

/// Marks the thread as ended. Dropping the queued jobs notifies their callers.
struct ThreadEnded(Arc<WriteQueue>);

impl Drop for ThreadEnded {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        (state.thread, state.writing) = (false, false);
        state.wanted = 0;
        state.endings.clear();
        state.claims.clear();
    }
}
