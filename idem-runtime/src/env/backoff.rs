//! Pauses between retries: growing, bounded, and different for each owner.

use std::time::Duration;

use crate::record::Owner;

/// Back-off with jitter.
///
/// The owner's random bytes are the seed, so that callers do not retry in step.
pub(crate) struct Backoff {
    state: u64,
    retries: u32,
    polls: u32,
}

impl Backoff {
    pub(crate) fn new(owner: &Owner) -> Self {
        let seed = owner
            .as_bytes()
            .first_chunk()
            .expect("an owner has 16 bytes");
        Self {
            // Any number but zero, which the generator would never leave.
            state: u64::from_le_bytes(*seed) | 1,
            retries: 0,
            polls: 0,
        }
    }

    /// Before a retry of an unacknowledged request: 10 ms, doubling to 200 ms.
    pub(crate) fn retry(&mut self) -> Duration {
        self.doubling(10, 200)
    }

    /// Before a retry of a file's lock: 1 ms, doubling to 64 ms.
    #[cfg(feature = "_sql")]
    pub(crate) fn lock(&mut self) -> Duration {
        self.doubling(1, 64)
    }

    /// Before connecting again: 10 ms, doubling to 1 s.
    #[cfg(feature = "redis")]
    pub(crate) fn reconnect(&mut self) -> Duration {
        self.doubling(10, 1_000)
    }

    /// Before the next poll of a running call: 10 ms, growing by half to 500 ms.
    pub(crate) fn poll(&mut self) -> Duration {
        let step = Duration::from_millis(10)
            .mul_f64(1.5_f64.powi(self.polls.min(12).cast_signed()))
            .min(Duration::from_millis(500));
        self.polls += 1;
        self.jittered(step)
    }

    /// Before a poll beside notifications: 100 ms, doubling to 1 s.
    pub(crate) fn floor(&mut self) -> Duration {
        let step = Duration::from_millis(100 << self.polls.min(4)).min(Duration::from_secs(1));
        self.polls += 1;
        self.jittered(step)
    }

    fn doubling(&mut self, first_ms: u64, most_ms: u64) -> Duration {
        let step = (first_ms << self.retries.min(16)).min(most_ms);
        self.retries += 1;
        self.jittered(Duration::from_millis(step))
    }

    /// Between three quarters and five quarters of `step`.
    fn jittered(&mut self, step: Duration) -> Duration {
        // xorshift64 (Marsaglia, 2003): plenty for spreading callers out.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let part = u32::try_from(self.state % 512).expect("smaller than 512");
        step * (768 + part) / 1024
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_stay_within_their_bounds() {
        let mut backoff = Backoff::new(&Owner::from_bytes([1; 16]));
        let retries: Vec<_> = (0..20).map(|_| backoff.retry().as_millis()).collect();
        assert!((7..=13).contains(&retries[0]), "{retries:?}");
        assert!(
            retries[6..].iter().all(|ms| (150..=250).contains(ms)),
            "{retries:?}"
        );
        let polls: Vec<_> = (0..40).map(|_| backoff.poll().as_millis()).collect();
        assert!((7..=13).contains(&polls[0]), "{polls:?}");
        assert!(
            polls[12..].iter().all(|ms| (375..=625).contains(ms)),
            "{polls:?}"
        );
    }

    #[test]
    fn two_callers_do_not_pause_alike() {
        let pauses = |seed| {
            let mut backoff = Backoff::new(&Owner::from_bytes([seed; 16]));
            (0..8).map(|_| backoff.poll()).collect::<Vec<_>>()
        };
        assert_ne!(pauses(1), pauses(2));
    }
}
