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

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// Whether the thread takes queued writes. The first queued write starts it.
    serves: Arc<AtomicBool>,
}

impl GroupCommit {
    pub(crate) fn new(client: Arc<dyn SqlClient>) -> Self {
        Self {
            queue: PermitQueue::of_writes(),
            client,
            serves: Arc::default(),
        }
    }

    /// Waits for the right to send a write, or its batch's outcome.
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
    ///
    /// Runs under the lock of the queue, so that the thread, before it ends, takes each write that was queued for it.
    fn has_thread(&self) -> bool {
        if self.serves.swap(true, Ordering::SeqCst) {
            return true;
        }
        let (queue, client) = (Arc::clone(&self.queue), Arc::clone(&self.client));
        let serves = Arc::clone(&self.serves);
        let named = std::thread::Builder::new().name("idem-sqlite".to_owned());
        let started = named.spawn(move || {
            // Made here, because the closure is dropped under the lock if no thread can be started.
            let guard = ThreadGuard { queue, serves };
            let runtime = Builder::new_current_thread().enable_time().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(write(&guard.queue, client));
            }
        });
        if started.is_err() {
            self.serves.store(false, Ordering::SeqCst);
        }
        started.is_ok()
    }
}

impl Drop for GroupCommit {
    fn drop(&mut self) {
        self.queue.close();
    }
}

debug_fields!(GroupCommit {});

/// Drop guard of the thread that wakes the callers of queued writes.
struct ThreadGuard {
    queue: Arc<PermitQueue>,
    serves: Arc<AtomicBool>,
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        self.serves.store(false, Ordering::SeqCst);
        drop(self.queue.take_all(usize::MAX));
    }
}

/// Writes the queued calls, until the queue is closed.
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

#[cfg(test)]
mod tests {
    use idem_harness::in_own_process;

    use super::*;
    use crate::env::credentials::Credentials;
    use crate::store::sql::session::{SqlFuture, SqlSession};

    struct Unreachable;

    impl SqlClient for Unreachable {
        fn connect(&self, _: Option<Credentials>) -> SqlFuture<'_, Box<dyn SqlSession>> {
            unreachable!("no write is sent")
        }
    }

    #[test]
    fn a_write_is_sent_alone_where_no_thread_can_be_started() {
        let body = || {
            let runtime = Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(async {
                let group_commit = GroupCommit::new(Arc::new(Unreachable));
                let take = || group_commit.take(Priority::Ending, Duration::MAX, || None);
                let Ok(Turn::Permit(lone, _)) = take().await else {
                    panic!("a first write is sent immediately");
                };
                assert!(matches!(take().await, Ok(Turn::Alone)));
                drop(lone);
                assert!(matches!(take().await, Ok(Turn::Permit(..))));
            });
        };
        // No machine has memory for this stack of a thread.
        let stack = ("RUST_MIN_STACK", "70368744177664");
        in_own_process(|process| process.env(stack.0, stack.1), body);
    }
}
