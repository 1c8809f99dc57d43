//! Group commit: the statements of several calls in one transaction.
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
use crate::store::sql::permits::Rank;
use crate::store::sql::pool::Outcome;
use crate::store::sql::sqlite::group_commit::batch::Writer;
use crate::store::sql::sqlite::group_commit::gather::Lull;
use crate::store::sql::sqlite::group_commit::queued_statement::Job;
use crate::store::sql::statement::Statement;

/// How long a batch waits for a lone statement to finish. SQLite would wait for the file's lock anyway, but in steps of
/// a millisecond and more.
const PATIENCE: Duration = Duration::from_millis(1);

/// The maximum number of statements of a transaction: other writers of the file wait for it.
pub(in crate::store::sql) const MOST: usize = 512;

/// The queue of one store.
pub struct Group(Arc<Shared>);

pub(in crate::store::sql) struct Shared {
    options: SqliteConnectOptions,
    state: Mutex<State>,
    wake: Notify,
}

struct State {
    /// Statements that end or keep a claim. They are written first.
    endings: Vec<Job>,
    claims: Vec<Job>,
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

impl Default for State {
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

impl State {
    fn in_line(&self) -> usize {
        self.endings.len() + self.claims.len()
    }

    /// The next batch.
    fn take(&mut self) -> Vec<Job> {
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
pub(crate) enum Way<'g> {
    /// Alone; statements that arrive while the turn is held are queued.
    Alone(Turn<'g>),
    /// In a batch.
    Together(oneshot::Receiver<Outcome>),
    /// Alone, because there is no thread.
    Beside,
    /// A claim that could not be written in time.
    Refused(Crowded),
}

impl Group {
    pub(in crate::store::sql) fn new(options: SqliteConnectOptions) -> Self {
        Self(Arc::new(Shared {
            options,
            state: Mutex::default(),
            wake: Notify::new(),
        }))
    }

    /// Lets a statement go alone, or queues it.
    pub(crate) fn enter(
        &self,
        what: &'static str,
        rank: Rank<'_>,
        statement: &Statement,
        arguments: &[Argument<'_>],
    ) -> Way<'_> {
        let mut state = self.0.lock();
        if state.alone.is_none() && !state.writing && state.in_line() == 0 {
            state.turns += 1;
            state.alone = Some(state.turns);
            return Way::Alone(Turn {
                number: state.turns,
                shared: &self.0,
            });
        }
        if !state.thread {
            // Without another thread it works as well, but slower.
            if self.0.start().is_err() {
                return Way::Beside;
            }
            state.thread = true;
        }
        if let Rank::Claim(admission) = rank {
            let (waiting, now) = (state.claims.len(), std::time::Instant::now());
            state.pace.joined(waiting, now);
            if let Err(crowded) = admits(&state.pace, waiting, admission, now) {
                return Way::Refused(crowded);
            }
        }
        let (job, told) = Job::new(what, statement, arguments);
        match rank {
            Rank::Ending => state.endings.push(job),
            _ => state.claims.push(job),
        }
        let enough = state.in_line() >= state.wanted;
        drop(state);
        if enough {
            self.0.wake.notify_one();
        }
        Way::Together(told)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.wake.notify_one();
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").finish_non_exhaustive()
    }
}

/// Held while a lone statement is in progress.
pub(crate) struct Turn<'g> {
    number: u64,
    shared: &'g Shared,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if state.alone == Some(self.number) {
            state.alone = None;
        }
        let waiting = state.in_line() > 0;
        drop(state);
        if waiting {
            self.shared.wake.notify_one();
        }
    }
}

/// The next step of the thread.
enum Next {
    Write(Vec<Job>),
    Sleep,
    /// Until this turn is over.
    Wait(u64),
    /// For further statements of the callers that have just received their replies.
    Gather,
    End,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("idem-sqlite".to_owned());
        thread.spawn(move || {
            // If this thread ends or fails, the next statement starts another.
            let gone = Gone(Arc::clone(&shared));
            let runtime = Builder::new_current_thread().enable_time().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(shared.write());
            }
            drop(gone);
        })?;
        Ok(())
    }

    async fn write(&self) {
        let mut writer = Writer::new(self.options.clone());
        // The turn to wait for, and the time limit.
        let mut waits = (0, Instant::now());
        let mut lull = Lull::default();
        loop {
            match self.next(waits, &mut lull) {
                Next::Write(jobs) => {
                    let (told, began) = (jobs.len(), Instant::now());
                    writer.write(jobs).await;
                    lull = lull.after(told, began, Instant::now());
                }
                Next::Gather => {
                    let _ = timeout_at(lull.until, self.wake.notified()).await;
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

    fn next(&self, (turn, until): (u64, Instant), lull: &mut Lull) -> Next {
        let mut state = self.lock();
        if lull.goes_on(state.in_line(), Instant::now()) && !state.closed {
            state.wanted = lull.wanted;
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
struct Gone(Arc<Shared>);

impl Drop for Gone {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        (state.thread, state.writing) = (false, false);
        state.wanted = 0;
        state.endings.clear();
        state.claims.clear();
    }
}
