//! A circuit breaker for the fast store.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Failures in a row that open the breaker.
const FAILURES: u32 = 5;
const LONGEST: Duration = Duration::from_secs(30);

/// How a call treats the fast store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Ask,
    Skip,
    /// Skip it as well, and start a probe for its return.
    Probe,
}

/// A change of the breaker, to notify observers of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Opened,
    Closed,
}

#[derive(Debug)]
pub(super) struct Breaker {
    /// The first pause after opening.
    first: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
        pause: Duration,
        probing: bool,
    },
}

impl Default for State {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

impl Breaker {
    pub(super) fn new(first: Duration) -> Self {
        Self {
            first,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn admit(&self, now: Instant) -> Admission {
        match &mut *self.lock() {
            State::Closed { .. } => Admission::Ask,
            State::Open { until, probing, .. } if now >= *until && !*probing => {
                *probing = true;
                Admission::Probe
            }
            State::Open { .. } => Admission::Skip,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(*self.lock(), State::Open { .. })
    }

    pub(super) fn succeeded(&self) {
        if let State::Closed { failures } = &mut *self.lock() {
            *failures = 0;
        }
    }

    pub(super) fn failed(&self, now: Instant) -> Option<Turn> {
        let mut state = self.lock();
        let State::Closed { failures } = &mut *state else {
            // A request from before it opened.
            return None;
        };
        *failures += 1;
        if *failures < FAILURES {
            return None;
        }
        *state = State::Open {
            until: now + self.first,
            pause: self.first,
            probing: false,
        };
        Some(Turn::Opened)
    }

    /// Applies the result of a probe.
    pub(super) fn probed(&self, works: bool, now: Instant) -> Option<Turn> {
        let mut state = self.lock();
        let State::Open {
            until,
            pause,
            probing,
        } = &mut *state
        else {
            return None;
        };
        if works {
            *state = State::default();
            return Some(Turn::Closed);
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
        assert_eq!(breaker.failed(now), Some(Turn::Opened));
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
        assert_eq!(breaker.admit(now), Admission::Ask);
        open(&breaker, now);
        assert_eq!(breaker.admit(now), Admission::Skip);
        assert_eq!(breaker.failed(now), None, "told once");
    }

    #[test]
    fn one_at_a_time_probes_and_pauses_double() {
        let (breaker, mut now) = (Breaker::new(Duration::from_secs(1)), Instant::now());
        open(&breaker, now);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            let pause = Duration::from_secs(seconds);
            let early = pause.saturating_sub(Duration::from_millis(1));
            assert_eq!(breaker.admit(now + early), Admission::Skip);
            now += pause;
            assert_eq!(breaker.admit(now), Admission::Probe);
            assert_eq!(breaker.admit(now), Admission::Skip, "one is enough");
            assert_eq!(breaker.probed(false, now), None);
        }
        now += LONGEST;
        assert_eq!(breaker.admit(now), Admission::Probe);
        assert_eq!(breaker.probed(true, now), Some(Turn::Closed));
        assert_eq!(breaker.admit(now), Admission::Ask);
    }
}
