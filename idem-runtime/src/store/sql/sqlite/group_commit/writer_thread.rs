//! The thread that writes the queued statements of a store.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::{Instant, timeout_at};

use super::batch::BatchWriter;
use super::gather::GatherPause;
use super::queue::{Next, WriteQueue};

/// How long a batch waits for a lone statement to finish.
///
/// SQLite would wait for the file's lock anyway, but in steps of
/// a millisecond and more.
const PATIENCE: Duration = Duration::from_millis(1);

/// Starts the thread.
pub(super) fn start(queue: &Arc<WriteQueue>) -> std::io::Result<()> {
    let queue = Arc::clone(queue);
    let thread = std::thread::Builder::new().name("idem-sqlite".to_owned());
    thread.spawn(move || {
        // If this thread ends or fails, the next statement starts another.
        let ended = ThreadEnded(Arc::clone(&queue));
        let runtime = Builder::new_current_thread().enable_time().build();
        if let Ok(runtime) = runtime {
            runtime.block_on(write(&queue));
        }
        drop(ended);
    })?;
    Ok(())
}

/// Writes batches until the queue is closed.
async fn write(queue: &WriteQueue) {
    let mut writer = BatchWriter::new(Arc::clone(&queue.client));
    // The lone write to wait for, and the time limit.
    let mut waits = (0, Instant::now());
    let mut pause = GatherPause::default();
    loop {
        match queue.next(waits, &mut pause) {
            Next::Write(statements) => {
                let (replies, began) = (statements.len(), Instant::now());
                writer.write(statements).await;
                pause = pause.after(replies, began, Instant::now());
            }
            Next::Gather => {
                let _ = timeout_at(pause.until, queue.wake.notified()).await;
            }
            Next::Sleep => queue.wake.notified().await,
            Next::AwaitLone(lone) => {
                if waits.0 != lone {
                    waits = (lone, Instant::now() + PATIENCE);
                }
                let _ = timeout_at(waits.1, queue.wake.notified()).await;
            }
            Next::End => return,
        }
    }
}

/// Marks the thread as ended. Dropping the queued statements wakes their callers.
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
