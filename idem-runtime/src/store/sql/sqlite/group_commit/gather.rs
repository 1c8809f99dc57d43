//! The pause between two group commits, in which statements gather.

use std::time::Duration;

use tokio::time::Instant;

use super::transaction::MAX_BATCH;

/// A pause after a commit.
///
/// A caller that received its reply often writes again immediately, because a claim is followed
/// by its answer, and one more commit for all of them costs less than two for a half each.
pub(super) struct GatherPause {
    pub(super) until: Instant,
    /// The number of queued statements that ends it; zero: no pause.
    wanted: usize,
    /// The queue length at its beginning, if it has begun and is not evaluated yet.
    before: Option<usize>,
    began: Instant,
    /// The duration of the last commit.
    commit: Duration,
    /// The number of following commits without a pause, after one that did not pay.
    idle: u32,
}

impl Default for GatherPause {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            until: now,
            wanted: 0,
            before: None,
            began: now,
            commit: Duration::ZERO,
            idle: 0,
        }
    }
}

impl GatherPause {
    /// The minimum number of replies that is worth a pause.
    const FEW: usize = 4;
    /// The number of commits without a pause after one that did not pay.
    const IDLE: u32 = 16;
    /// The longest pause, however slow the disk is.
    const LONGEST: Duration = Duration::from_millis(2);

    /// The pause after a commit of `replies` statements.
    pub(super) fn after(self, replies: usize, began: Instant, now: Instant) -> Self {
        let commit = now - began;
        let waits = replies >= Self::FEW && self.idle == 0;
        Self {
            until: if waits {
                now + (commit / 2).min(Self::LONGEST)
            } else {
                now
            },
            wanted: if waits { replies } else { 0 },
            before: None,
            began: now,
            commit,
            idle: self.idle.saturating_sub(1),
        }
    }

    /// The number of queued statements that it still waits for; zero: it is over.
    ///
    /// At its end it is evaluated: it pays if the new statements enlarge the queue by more than the pause enlarges the
    /// time.
    pub(super) fn awaits(&mut self, queued: usize, now: Instant) -> usize {
        if self.wanted == 0 {
            return 0;
        }
        let before = *self.before.get_or_insert_with(|| {
            self.wanted = (self.wanted + queued).min(MAX_BATCH);
            queued
        });
        if queued < self.wanted && now < self.until {
            return self.wanted;
        }
        let came = queued.saturating_sub(before) as u128;
        let took = (now - self.began).as_nanos();
        if came * self.commit.as_nanos() < before as u128 * took {
            self.idle = Self::IDLE;
        }
        self.wanted = 0;
        0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::GatherPause;

    const COMMIT: Duration = Duration::from_millis(2);

    fn after(pause: GatherPause, replies: usize, now: Instant) -> GatherPause {
        pause.after(replies, now - COMMIT, now)
    }

    #[test]
    fn it_ends_when_all_are_back_or_half_a_commit_is_over() {
        let now = Instant::now();
        let mut pause = after(GatherPause::default(), 10, now);
        assert_eq!([5, 14].map(|queued| pause.awaits(queued, now)), [15, 15]);
        assert_eq!(pause.awaits(15, now), 0, "all are back");
        let mut pause = after(pause, 10, now);
        let end = now + COMMIT / 2;
        assert_eq!(pause.awaits(0, now), 10);
        assert_eq!(pause.awaits(9, end - Duration::from_micros(1)), 10);
        assert_eq!(pause.awaits(9, end), 0, "time is over");
    }

    #[test]
    fn there_is_none_for_few_and_for_a_while_after_one_that_did_not_pay() {
        let now = Instant::now();
        let mut pause = after(GatherPause::default(), 3, now);
        assert_eq!(pause.awaits(0, now), 0);
        let mut pause = after(pause, 10, now);
        assert_eq!(pause.awaits(10, now), 20);
        assert_eq!(pause.awaits(11, now + COMMIT / 2), 0, "ten took two halves");
        for _ in 0..GatherPause::IDLE {
            pause = after(pause, 10, now);
            assert_eq!(pause.awaits(0, now), 0);
        }
        pause = after(pause, 10, now);
        assert_eq!(pause.awaits(0, now), 10);
    }
}
