//! Group commit: the writes of several calls in one transaction.
//!
//! The transaction takes one write of the disk.
//!
//! A write that finds no other in progress is sent immediately, on a connection of its
//! [pool](crate::store::sql::pool), as without group commit. Otherwise it is queued, and the store's own thread takes
//! all writes that were queued while it wrote the previous batch. No caller receives a reply before the commit. The
//! thread does not belong to a caller, because a caller's thread that blocks or ends would delay all others.

mod gather;
mod transaction;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::{Instant, timeout_at};

use self::gather::GatherPause;
use self::transaction::{MAX_BATCH, Writer};
use crate::store::sql::queue::{NoPermit, PermitQueue, Priority, Turn};
use crate::store::sql::queued_call::QueuedCall;
use crate::store::sql::session::SqlClient;

/// How long a batch waits for a lone write to finish.
///
/// SQLite would wait for the file's lock anyway, but in steps of a millisecond and more.
const PATIENCE: Duration = Duration::from_millis(1);

/// The group commit of one store.
pub(crate) struct GroupCommit {
    queue: Arc<PermitQueue>,
    client: Arc<dyn SqlClient>,
    /// Started by the first write that is queued.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl GroupCommit {
    pub(crate) fn new(client: Arc<dyn SqlClient>) -> Self {
        Self {
            queue: PermitQueue::of_writes(),
            client,
            thread: Mutex::default(),
        }
    }

    /// Waits for the right to send a write alone, or for its outcome in a batch.
    ///
    /// [`Turn::Alone`]: it is no part of a batch, or that has failed.
    pub(in super::super) async fn take(
        &self,
        priority: Priority<'_>,
        patience: Duration,
        call: impl FnOnce() -> Option<QueuedCall>,
    ) -> Result<Turn, NoPermit> {
        let call = || self.has_thread().then(call).flatten();
        self.queue.take((priority, false), patience, call).await
    }

    /// Starts the thread, unless it runs. Without it each write is sent alone, which is slower.
    fn has_thread(&self) -> bool {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.as_ref().is_none_or(JoinHandle::is_finished) {
            let queued = Queued(Arc::clone(&self.queue));
            let client = Arc::clone(&self.client);
            let named = std::thread::Builder::new().name("idem-sqlite".to_owned());
            let started = named.spawn(move || {
                let runtime = Builder::new_current_thread().enable_time().build();
                if let Ok(runtime) = runtime {
                    runtime.block_on(write(&queued.0, client));
                }
            });
            *thread = started.ok();
        }
        thread.is_some()
    }
}

impl Drop for GroupCommit {
    fn drop(&mut self) {
        self.queue.close();
    }
}

debug_fields!(GroupCommit {});

/// The queue of the thread. If that fails, the callers of the queued writes are woken.
struct Queued(Arc<PermitQueue>);

impl Drop for Queued {
    fn drop(&mut self) {
        drop(self.0.take_all(usize::MAX));
    }
}

/// Writes what is queued, until the queue is closed.
async fn write(queue: &Arc<PermitQueue>, client: Arc<dyn SqlClient>) {
    let mut writer = Writer::new(client);
    let (mut pause, mut is_stuck) = (GatherPause::default(), false);
    loop {
        queue.woken().await;
        let until = Instant::now() + PATIENCE;
        while queue.used() > 0 && !is_stuck {
            // Its caller may be blocked, and then never ends its write.
            is_stuck = timeout_at(until, queue.woken()).await.is_err();
        }
        let permit = queue.overtaking();
        loop {
            let (batch, began) = (queue.take_all(MAX_BATCH), Instant::now());
            if batch.is_empty() {
                break;
            }
            let replies = batch.len();
            writer.write(batch).await;
            pause.after(queue, replies, began.elapsed()).await;
        }
        is_stuck &= queue.used() > 1;
        drop(permit);
        if queue.is_closed() {
            return;
        }
    }
}
