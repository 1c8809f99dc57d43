//! Estimates a claim's wait in a queue from earlier claims.

use std::time::{Duration, Instant};

use super::admission::Admission;

/// The minimum `retry_after` of a refused claim.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The pace at which claims leave a queue.
///
/// Pure: the caller owns the queue and passes the time in.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Mean time between two claims that left while others waited.
    interval: Duration,
    /// When the last claim left, or the first joined an empty queue.
    last: Instant,
    /// Since when the queue is not empty.
    busy_since: Option<Instant>,
}

impl Pace {
    /// The number of claims that the moving mean covers.
    const MEMORY: f64 = 32.0;

    pub(crate) fn new(now: Instant) -> Self {
        Self {
            interval: Duration::ZERO,
            last: now,
            busy_since: None,
        }
    }

    /// A claim joins a queue of `waiting` others.
    pub(crate) fn joined(&mut self, waiting: usize, now: Instant) {
        if waiting == 0 {
            self.last = now;
            self.busy_since = Some(now);
        }
    }

    /// `left` claims leave the queue together, and `waiting` stay.
    pub(crate) fn left(&mut self, left: usize, waiting: usize, now: Instant) {
        if left > 0 {
            let left = u32::try_from(left).unwrap_or(u32::MAX);
            let took = now.saturating_duration_since(self.last) / left;
            let share = (f64::from(left) / Self::MEMORY).min(1.0);
            self.interval = self.interval.mul_f64(1.0 - share) + took.mul_f64(share);
            self.last = now;
        }
        if waiting == 0 {
            self.busy_since = None;
        }
    }

    /// The wait of a claim that joins `waiting` others now. It grows while no claim leaves the queue.
    pub(crate) fn wait(&self, waiting: usize, now: Instant) -> Duration {
        if waiting == 0 {
            return Duration::ZERO;
        }
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        self.interval.saturating_mul(waiting) + now.saturating_duration_since(self.last)
    }

    /// The longest wait of a claim whose caller has this patience.
    ///
    /// A burst may use most of the patience, and leaves time for the statement. A queue that has not been empty for
    /// that long is no burst: more patience would add delay to each claim, and no throughput.
    pub(crate) fn bound(&self, patience: Duration, now: Instant) -> Duration {
        let stands = self
            .busy_since
            .is_some_and(|since| now.saturating_duration_since(since) >= patience);
        if stands {
            patience / 4
        } else {
            patience * 3 / 4
        }
    }
}

/// A queue that is longer than claims can wait.
#[derive(Debug)]
pub(crate) struct Crowded {
    pub(crate) waiting: usize,
    pub(crate) retry_after: Duration,
}

/// Whether a claim may join `waiting` others; if so, its longest wait.
pub(crate) fn admits(
    pace: &Pace,
    waiting: usize,
    admission: &Admission,
    now: Instant,
) -> Result<Duration, Crowded> {
    let (wait, bound) = (
        pace.wait(waiting, now),
        pace.bound(admission.patience(), now),
    );
    if wait > bound {
        return Err(crowded(wait, waiting));
    }
    Ok(bound)
}

pub(crate) fn crowded(wait: Duration, waiting: usize) -> Crowded {
    Crowded {
        waiting,
        retry_after: wait.max(RETRY_AFTER),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Pace;

    const MS: Duration = Duration::from_millis(1);
    const PATIENCE: Duration = Duration::from_secs(2);

    /// A queue of 1,000 that one claim leaves every millisecond.
    fn served(pace: &mut Pace, mut now: Instant) -> Instant {
        pace.joined(0, now);
        for _ in 0..1_000 {
            now += MS;
            pace.left(1, 1_000, now);
        }
        now
    }

    #[test]
    fn a_wait_is_the_length_of_the_queue_at_its_pace() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        assert_eq!(pace.wait(0, now), Duration::ZERO);
        let now = served(&mut pace, now);
        let around = |wait: Duration, millis| wait.abs_diff(MS * millis) <= MS;
        assert!(around(pace.wait(500, now), 500));
        assert!(
            around(pace.wait(500, now + MS * 300), 800),
            "it stands still"
        );
        let mut grouped = Pace::new(now);
        grouped.joined(0, now);
        grouped.left(512, 1_000, now + MS * 20);
        let wait = grouped.wait(1_000, now + MS * 20);
        assert!(around(wait, 39), "512 left at once, after 20 ms: {wait:?}");
    }

    #[test]
    fn a_pause_of_the_server_is_soon_forgotten() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        let now = served(&mut pace, now);
        let mut now = now + Duration::from_secs(10);
        assert!(pace.wait(1, now) > PATIENCE);
        for _ in 0..300 {
            now += MS;
            pace.left(1, 1_000, now);
        }
        assert!(pace.wait(100, now) < MS * 110, "{:?}", pace.wait(100, now));
    }

    #[test]
    fn a_standing_queue_is_kept_shorter_than_a_burst() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        assert_eq!(pace.bound(PATIENCE, now), MS * 1_500);
        pace.joined(0, now);
        assert_eq!(pace.bound(PATIENCE, now + PATIENCE / 2), MS * 1_500);
        assert_eq!(pace.bound(PATIENCE, now + PATIENCE), MS * 500);
        pace.left(1, 0, now + PATIENCE);
        assert_eq!(
            pace.bound(PATIENCE, now + PATIENCE),
            MS * 1_500,
            "it was empty"
        );
    }
}
