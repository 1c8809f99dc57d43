//! The pause between two group commits, in which statements gather.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::transaction::MAX_BATCH;
use crate::store::sql::queue::PermitQueue;

/// The minimum number of replies that is worth a pause.
const FEW: usize = 4;

/// The commits without a pause, after a pause that did not pay.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::sql::dialect::StatementKind;
    use crate::store::sql::queue::Priority;
    use crate::store::sql::queued_call::QueuedCall;
    use crate::store::sql::statement::{BatchStatement, Statement};

    const COMMIT: Duration = Duration::from_millis(4);

    async fn write(queue: Arc<PermitQueue>) {
        let statement = || Statement::new(StatementKind::Execute, "", Vec::new());
        let mut one = statement();
        one.batch = Some(BatchStatement::new(statement(), 1 << 20));
        let call = || QueuedCall::new(&one, &[]);
        let turn = queue.take((Priority::Ending, false), Duration::MAX, call);
        drop(turn.await);
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_when_all_are_back_or_half_a_commit_is_over_and_rests_if_it_did_not_pay() {
        let (queue, mut pause) = (PermitQueue::of_writes(), GatherPause::default());
        let _permit = queue.overtaking();
        let began = Instant::now();
        pause.after(&queue, FEW - 1, COMMIT).await;
        assert!(began.elapsed().is_zero(), "few");
        for _ in 0..10 {
            tokio::spawn(write(Arc::clone(&queue)));
        }
        pause.after(&queue, 10, COMMIT).await;
        assert!(began.elapsed().is_zero(), "all are back");
        // None comes, and ten wait.
        pause.after(&queue, 10, COMMIT).await;
        let half = began.elapsed();
        assert!((COMMIT / 2..COMMIT).contains(&half), "{half:?}");
        for _ in 0..IDLE {
            pause.after(&queue, 10, COMMIT).await;
        }
        assert_eq!(began.elapsed(), half);
        pause.after(&queue, 10, COMMIT).await;
        assert!(began.elapsed() > half);
    }
}
