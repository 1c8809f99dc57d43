//! Estimate of the server's clock.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How long the server's time is derived from the local clock: two clocks part by a millisecond in that
/// time, at most.
const FRESH: Duration = Duration::from_secs(10);
/// Time limit of a reply that carries the time: it may be as old as that. A local cache relies on
/// less than a second.
const PROMPT: Duration = Duration::from_millis(500);
/// Largest difference between the calendar and the monotonic clock meanwhile. It is larger after the
/// machine has slept, or its calendar was set.
const STEADY: Duration = Duration::from_millis(50);

/// The time of the server at the other end of a connection.
///
/// A claim that is granted without a script has its fence from here. It is behind the server's clock by
/// the time that a reply takes, by half a second at most, and grows with every read.
#[derive(Default)]
pub(super) struct ServerTime(Mutex<Known>);

#[derive(Default)]
struct Known {
    said: Option<Said>,
    /// The last time that was returned.
    last: u64,
}

/// The server's time from a reply, in microseconds, and when the reply arrived.
#[derive(Clone, Copy)]
struct Said {
    micros: u64,
    at: Moment,
}

/// One moment by both clocks of this machine.
#[derive(Clone, Copy)]
struct Moment {
    monotonic: Instant,
    calendar: SystemTime,
}

impl Moment {
    fn now() -> Self {
        Self {
            monotonic: Instant::now(),
            calendar: SystemTime::now(),
        }
    }

    /// Time since `earlier`; `None` if the clocks disagree about it.
    fn since(self, earlier: Self) -> Option<Duration> {
        let passed = self.monotonic.duration_since(earlier.monotonic);
        let on_calendar = self.calendar.duration_since(earlier.calendar).ok()?;
        (passed.abs_diff(on_calendar) < STEADY).then_some(passed)
    }
}

impl Known {
    fn at(&self, now: Moment) -> Option<u64> {
        let said = self.said?;
        let passed = now.since(said.at).filter(|passed| *passed < FRESH)?;
        Some(said.micros + u64::try_from(passed.as_micros()).ok()?)
    }

    fn tell(&mut self, now: Moment) -> Option<u64> {
        let micros = self.at(now)?.max(self.last + 1);
        self.last = micros;
        Some(micros)
    }

    fn hear(&mut self, micros: u64, now: Moment) {
        self.last = self.last.max(micros);
        // The fastest reply is closest to the truth.
        if self.at(now).is_none_or(|known| known < micros) {
            self.said = Some(Said { micros, at: now });
        }
    }
}

impl ServerTime {
    /// The server's time in microseconds, later than ever before. `None`: it is unknown.
    pub(super) fn now(&self) -> Option<u64> {
        self.lock().tell(Moment::now())
    }

    /// Records the server's time from a reply that has just arrived, and `took` so long.
    pub(super) fn is(&self, micros: u64, took: Duration) {
        if took < PROMPT {
            self.lock().hear(micros, Moment::now());
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(moment: Moment, passed: Duration) -> Moment {
        Moment {
            monotonic: moment.monotonic + passed,
            calendar: moment.calendar + passed,
        }
    }

    #[test]
    fn it_goes_on_from_what_the_server_said_and_always_grows() {
        let (mut known, start) = (Known::default(), Moment::now());
        assert_eq!(known.tell(start), None);
        known.hear(1_000, start);
        assert_eq!(known.tell(start), Some(1_001));
        assert_eq!(known.tell(start), Some(1_002));
        let later = after(start, Duration::from_millis(7));
        assert_eq!(known.tell(later), Some(8_000));
    }

    #[test]
    fn a_reply_that_took_its_time_says_less() {
        let (mut known, start) = (Known::default(), Moment::now());
        known.hear(1_000_000, start);
        let later = after(start, Duration::from_millis(10));
        known.hear(1_002_000, later);
        assert_eq!(known.at(later), Some(1_010_000));
        known.hear(1_011_000, later);
        assert_eq!(known.at(later), Some(1_011_000));
        assert_eq!(known.tell(later), Some(1_011_001));
    }

    #[test]
    fn what_was_said_long_ago_or_before_a_sleep_counts_no_more() {
        let (mut known, start) = (Known::default(), Moment::now());
        known.hear(1_000, start);
        assert_eq!(known.at(after(start, FRESH)), None);
        let slept = Moment {
            monotonic: start.monotonic + Duration::from_secs(1),
            calendar: start.calendar + Duration::from_hours(1),
        };
        assert_eq!(known.at(slept), None);
        let set_back = Moment {
            monotonic: start.monotonic + Duration::from_secs(1),
            calendar: start.calendar - Duration::from_mins(1),
        };
        assert_eq!(known.at(set_back), None);
        // Then the server's time counts, although it is behind the estimate.
        known.hear(900, slept);
        assert_eq!(known.at(slept), Some(900));
        assert_eq!(known.tell(slept), Some(1_001), "later than ever before");
    }
}
