//! Count of the replayed calls of a task.

use std::cell::Cell;
use std::future::Future;

tokio::task_local! {
    static SEEN: Cell<ReplayCount>;
}

/// Calls of a watched task, and those replayed from their record.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplayCount {
    calls: u32,
    replayed: u32,
}

impl ReplayCount {
    /// Counts the calls that this future makes in its own task.
    pub(crate) async fn watch<F: Future>(future: F) -> F::Output {
        SEEN.scope(Cell::default(), future).await
    }

    /// Whether there were calls, and each was replayed from its record.
    pub(crate) fn are_all() -> bool {
        let seen = SEEN.try_with(Cell::get).unwrap_or_default();
        seen.calls > 0 && seen.calls == seen.replayed
    }

    pub(super) fn called() {
        count(|seen| seen.calls += 1);
    }

    /// Counts a call that was replayed from its record.
    pub(super) fn replayed() {
        count(|seen| seen.replayed += 1);
    }
}

/// Does nothing in a task that is not watched.
fn count(add: fn(&mut ReplayCount)) {
    let _ = SEEN.try_with(|cell| {
        let mut seen = cell.get();
        add(&mut seen);
        cell.set(seen);
    });
}
