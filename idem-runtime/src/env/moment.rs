//! A moment by two clocks, which shows a suspension of the machine.

use std::time::{Duration, Instant, SystemTime};

/// Largest difference between the progress of the two clocks.
///
/// It is larger after the machine was suspended, or its calendar was set.
const STEADY: Duration = Duration::from_millis(50);

/// A moment by both clocks of this machine.
///
/// The monotonic clock stops during a suspension (Linux, macOS), and the calendar does not. A virtual machine that is
/// paused with both of its clocks is not noticed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) monotonic: Instant,
    pub(crate) calendar: SystemTime,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self {
            monotonic: Instant::now(),
            calendar: SystemTime::now(),
        }
    }

    /// Time since `earlier`; `None` if the clocks disagree about it.
    pub(crate) fn since(self, earlier: Self) -> Option<Duration> {
        let passed = self.monotonic.duration_since(earlier.monotonic);
        let on_calendar = self.calendar.duration_since(earlier.calendar).ok()?;
        (passed.abs_diff(on_calendar) < STEADY).then_some(passed)
    }

    /// Whether less than `limit` has passed since `earlier`, by both clocks.
    pub(crate) fn is_within(self, limit: Duration, earlier: Self) -> bool {
        // A suspension shorter than `STEADY` shows on the calendar alone.
        self.since(earlier).is_some_and(|passed| passed < limit)
            && (self.calendar.duration_since(earlier.calendar)).is_ok_and(|passed| passed < limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_passes_when_it_has_passed_on_one_of_the_clocks() {
        let (start, limit) = (Moment::now(), Duration::from_secs(1));
        let after = |monotonic, calendar| Moment {
            monotonic: start.monotonic + Duration::from_millis(monotonic),
            calendar: start.calendar + Duration::from_millis(calendar),
        };
        for (monotonic, calendar, within) in [
            (0, 0, true),
            (999, 999, true),
            (1_000, 999, false),
            (999, 1_000, false),
            (500, 10_500, false),
            (500, 449, false),
        ] {
            let now = after(monotonic, calendar);
            assert_eq!(
                now.is_within(limit, start),
                within,
                "{monotonic}, {calendar}"
            );
        }
        let set_back = Moment {
            calendar: start.calendar - Duration::from_millis(1),
            ..start
        };
        assert!(!set_back.is_within(limit, start));
    }
}
