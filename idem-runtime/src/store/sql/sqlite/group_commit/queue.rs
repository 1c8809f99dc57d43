//! The queue of the statements that wait for the writer thread.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::gather::GatherPause;
use super::queued_statement::{MAX_BATCH, QueuedStatement};
use crate::store::pace::Pace;
use crate::store::sql::session::SqlClient;

/// The queued statements of one store, and the state of the thread that writes them.
pub(super) struct WriteQueue {
    pub(super) client: Arc<dyn SqlClient>,
    state: Mutex<WriteQueueState>,
    pub(super) wake: Notify,
}

pub(super) struct WriteQueueState {
    /// Statements that end or keep a claim. They are written first.
    pub(super) endings: Vec<QueuedStatement>,
    pub(super) claims: Vec<QueuedStatement>,
    pub(super) pace: Pace,
    /// The number of the lone write that is in progress.
    pub(super) alone: Option<u64>,
    lone_writes: u64,
    /// The thread writes, or waits for further statements of the callers that it has replied to.
    pub(super) writing: bool,
    /// The number of queued statements that wakes the thread while it gathers.
    pub(super) wanted: usize,
    pub(super) thread: bool,
    pub(super) closed: bool,
}

impl Default for WriteQueueState {
    fn default() -> Self {
        Self {
            endings: Vec::new(),
            claims: Vec::new(),
            pace: Pace::new(std::time::Instant::now()),
            alone: None,
            lone_writes: 0,
            writing: false,
            wanted: 0,
            thread: false,
            closed: false,
        }
    }
}

impl WriteQueueState {
    pub(super) fn queued(&self) -> usize {
        self.endings.len() + self.claims.len()
    }

    /// The next batch.
    fn take(&mut self) -> Vec<QueuedStatement> {
        let rest = self.endings.split_off(self.endings.len().min(MAX_BATCH));
        let mut batch = std::mem::replace(&mut self.endings, rest);
        let claims = self.claims.len().min(MAX_BATCH - batch.len());
        batch.extend(self.claims.drain(..claims));
        let waiting = self.claims.len();
        self.pace.left(claims, waiting, std::time::Instant::now());
        batch
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
        let waiting = state.queued() > 0;
        drop(state);
        if waiting {
            self.queue.wake.notify_one();
        }
    }
}

/// The next step of the writer thread.
pub(super) enum Next {
    Write(Vec<QueuedStatement>),
    Sleep,
    /// Wait for the end of this lone write.
    AwaitLone(u64),
    /// Wait for further statements of the callers that have just received their replies.
    Gather,
    End,
}

impl WriteQueue {
    pub(super) fn new(client: Arc<dyn SqlClient>) -> Arc<Self> {
        Arc::new(Self {
            client,
            state: Mutex::default(),
            wake: Notify::new(),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, WriteQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a lone write, if no other write is in progress or queued.
    pub(super) fn lone_write(&self, state: &mut WriteQueueState) -> Option<LoneWrite<'_>> {
        if state.alone.is_some() || state.writing || state.queued() > 0 {
            return None;
        }
        state.lone_writes += 1;
        state.alone = Some(state.lone_writes);
        Some(LoneWrite {
            number: state.lone_writes,
            queue: self,
        })
    }

    /// Determines the next step of the thread.
    ///
    /// It waits for the lone write `lone` until `until`.
    pub(super) fn next(&self, (lone, until): (u64, Instant), pause: &mut GatherPause) -> Next {
        let mut state = self.lock();
        if pause.continues(state.queued(), Instant::now()) && !state.closed {
            state.wanted = pause.wanted;
            return Next::Gather;
        }
        state.wanted = 0;
        state.writing = false;
        if state.queued() == 0 {
            return if state.closed { Next::End } else { Next::Sleep };
        }
        match state.alone {
            // Its caller may be blocked, and then never ends its write.
            Some(alone) if alone != lone || Instant::now() < until => Next::AwaitLone(alone),
            _ => {
                state.writing = true;
                Next::Write(state.take())
            }
        }
    }
}
