//! The pause between two commits of a group.

use std::time::Duration;

use tokio::time::Instant;

use super::queued_statement::MAX_BATCH;

/// A pause after a commit. A caller that received its reply often writes again immediately, because a claim is followed
/// by its answer, and one more commit for all of them costs less than two for a half each.
pub(super) struct GatherPause {
    pub(super) until: Instant,
    /// The number of queued statements that ends it; zero: no pause.
    pub(super) wanted: usize,
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

    /// The pause after a commit of `told` statements.
    pub(super) fn after(self, told: usize, began: Instant, now: Instant) -> Self {
        let commit = now - began;
        let waits = told >= Self::FEW && self.idle == 0;
        Self {
            until: if waits {
                now + (commit / 2).min(Self::LONGEST)
            } else {
                now
            },
            wanted: if waits { told } else { 0 },
            before: None,
            began: now,
            commit,
            idle: self.idle.saturating_sub(1),
        }
    }

    /// Whether it continues with this queue length. At its end it is evaluated: it pays if the new statements enlarge
    /// the queue by more than the pause enlarges the time.
    pub(super) fn goes_on(&mut self, in_line: usize, now: Instant) -> bool {
        if self.wanted == 0 {
            return false;
        }
        let before = *self.before.get_or_insert_with(|| {
            self.wanted = (self.wanted + in_line).min(MAX_BATCH);
            in_line
        });
        if in_line < self.wanted && now < self.until {
            return true;
        }
        let came = in_line.saturating_sub(before) as u128;
        let took = (now - self.began).as_nanos();
        if came * self.commit.as_nanos() < before as u128 * took {
            self.idle = Self::IDLE;
        }
        self.wanted = 0;
        false
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::GatherPause;

    const COMMIT: Duration = Duration::from_millis(2);

    fn after(lull: GatherPause, told: usize, now: Instant) -> GatherPause {
        lull.after(told, now - COMMIT, now)
    }

    #[test]
    fn it_ends_when_all_are_back_or_half_a_commit_is_over() {
        let now = Instant::now();
        let mut lull = after(GatherPause::default(), 10, now);
        assert!(lull.goes_on(5, now) && lull.goes_on(14, now));
        assert!(!lull.goes_on(15, now), "all are back");
        let mut lull = after(lull, 10, now);
        let end = now + COMMIT / 2;
        assert!(lull.goes_on(0, now) && lull.goes_on(9, end - Duration::from_micros(1)));
        assert!(!lull.goes_on(9, end), "time is over");
    }

    #[test]
    fn there_is_none_for_few_and_for_a_while_after_one_that_did_not_pay() {
        let now = Instant::now();
        let mut lull = after(GatherPause::default(), 3, now);
        assert!(!lull.goes_on(0, now));
        let mut lull = after(lull, 10, now);
        assert!(lull.goes_on(10, now));
        assert!(!lull.goes_on(11, now + COMMIT / 2), "ten took two halves");
        for _ in 0..GatherPause::IDLE {
            lull = after(lull, 10, now);
            assert!(!lull.goes_on(0, now));
        }
        lull = after(lull, 10, now);
        assert!(lull.goes_on(0, now));
    }
}
