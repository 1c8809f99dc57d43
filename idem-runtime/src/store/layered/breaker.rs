//! A circuit breaker for the fast store.

use std::time::{Duration, Instant};

use crate::env::lock::Lock;

/// Failures in a row that open the breaker.
const FAILURES: u32 = 5;
const LONGEST: Duration = Duration::from_secs(30);

/// How a call treats the fast store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BreakerDecision {
    Query,
    Skip,
    /// Skip it, and start a probe for its return.
    Probe,
}

/// A change of the breaker, for observers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BreakerEvent {
    Opened,
    Closed,
}

#[derive(Debug)]
pub(super) struct Breaker {
    /// The first pause after opening.
    first: Duration,
    state: Lock<Circuit>,
}

#[derive(Debug)]
enum Circuit {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
        pause: Duration,
        probing: bool,
    },
}

impl Default for Circuit {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

impl Breaker {
    pub(super) fn new(first: Duration) -> Self {
        Self {
            first,
            state: Lock::default(),
        }
    }

    pub(super) fn admit(&self, now: Instant) -> BreakerDecision {
        match &mut *self.state.lock() {
            Circuit::Closed { .. } => BreakerDecision::Query,
            Circuit::Open { until, probing, .. } if now >= *until && !*probing => {
                *probing = true;
                BreakerDecision::Probe
            }
            Circuit::Open { .. } => BreakerDecision::Skip,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(*self.state.lock(), Circuit::Open { .. })
    }

    pub(super) fn succeeded(&self) {
        if let Circuit::Closed { failures } = &mut *self.state.lock() {
            *failures = 0;
        }
    }

    pub(super) fn failed(&self, now: Instant) -> Option<BreakerEvent> {
        let mut state = self.state.lock();
        let Circuit::Closed { failures } = &mut *state else {
            // A request from before it opened.
            return None;
        };
        *failures += 1;
        if *failures < FAILURES {
            return None;
        }
        *state = Circuit::Open {
            until: now + self.first,
            pause: self.first,
            probing: false,
        };
        Some(BreakerEvent::Opened)
    }

    /// Applies the result of a probe.
    pub(super) fn probed(&self, works: bool, now: Instant) -> Option<BreakerEvent> {
        let mut state = self.state.lock();
        let Circuit::Open {
            until,
            pause,
            probing,
        } = &mut *state
        else {
            return None;
        };
        if works {
            *state = Circuit::default();
            return Some(BreakerEvent::Closed);
        }
        *pause = (*pause * 2).min(LONGEST);
        *until = now + *pause;
        *probing = false;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(breaker: &Breaker, now: Instant) {
        for _ in 1..FAILURES {
            assert_eq!(breaker.failed(now), None);
        }
        assert_eq!(breaker.failed(now), Some(BreakerEvent::Opened));
    }

    #[test]
    fn it_opens_after_failures_in_a_row_only() {
        let (breaker, now) = (Breaker::new(Duration::from_secs(1)), Instant::now());
        for _ in 0..10 {
            for _ in 1..FAILURES {
                assert_eq!(breaker.failed(now), None);
            }
            breaker.succeeded();
        }
        assert_eq!(breaker.admit(now), BreakerDecision::Query);
        open(&breaker, now);
        assert_eq!(breaker.admit(now), BreakerDecision::Skip);
        assert_eq!(breaker.failed(now), None, "it opens once");
    }

    #[test]
    fn one_at_a_time_probes_and_pauses_double() {
        let (breaker, mut now) = (Breaker::new(Duration::from_secs(1)), Instant::now());
        open(&breaker, now);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            let pause = Duration::from_secs(seconds);
            let early = pause.saturating_sub(Duration::from_millis(1));
            assert_eq!(breaker.admit(now + early), BreakerDecision::Skip);
            now += pause;
            assert_eq!(breaker.admit(now), BreakerDecision::Probe);
            assert_eq!(breaker.admit(now), BreakerDecision::Skip, "one is enough");
            assert_eq!(breaker.probed(false, now), None);
        }
        now += LONGEST;
        assert_eq!(breaker.admit(now), BreakerDecision::Probe);
        assert_eq!(breaker.probed(true, now), Some(BreakerEvent::Closed));
        assert_eq!(breaker.admit(now), BreakerDecision::Query);
    }
}
