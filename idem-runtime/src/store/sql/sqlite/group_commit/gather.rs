//! The pause between two group commits, in which statements gather.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::transaction::MAX_BATCH;
use crate::store::sql::queue::PermitQueue;

/// The minimum number of replies that is worth a pause.
const FEW: usize = 4;

/// The number of commits without a pause after one that did not pay.
const IDLE: u32 = 16;

/// The longest pause, however slow the disk is.
const LONGEST: Duration = Duration::from_millis(2);

/// The pauses after the commits of a store.
///
/// A caller that received its reply often writes again immediately, because a claim is followed
/// by its answer, and one more commit for all of them costs less than two for a half each.
#[derive(Default)]
pub(super) struct GatherPause {
    /// The number of following commits without a pause.
    idle: u32,
}

impl GatherPause {
    /// The pause after a commit of `replies` statements, which took so long.
    ///
    /// It ends when as many statements have come, or half a commit is over. It pays if they enlarge the queue by more than
    /// the pause enlarges the time.
    pub(super) async fn after(&mut self, queue: &PermitQueue, replies: usize, commit: Duration) {
        if replies < FEW || self.idle > 0 {
            self.idle = self.idle.saturating_sub(1);
            return;
        }
        let (began, before) = (Instant::now(), queue.wake_from(MAX_BATCH));
        let until = began + (commit / 2).min(LONGEST);
        let wanted = (replies + before).min(MAX_BATCH);
        while queue.wake_from(wanted) < wanted {
            if timeout_at(until, queue.woken()).await.is_err() {
                break;
            }
        }
        let came = queue.wake_from(0).saturating_sub(before) as u128;
        if came * commit.as_nanos() < before as u128 * began.elapsed().as_nanos() {
            self.idle = IDLE;
        }
    }
}
