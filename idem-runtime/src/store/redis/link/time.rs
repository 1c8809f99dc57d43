//! Estimate of the server's clock.

use std::time::Duration;

use crate::env::lock::Lock;
use crate::env::moment::Moment;

/// Age up to which a reading is extrapolated: in that time two clocks drift apart by a millisecond at most.
const FRESH: Duration = Duration::from_secs(10);
/// Longest wait for a reply with the time, and thus its age.
///
/// A local cache relies on less than a second.
const PROMPT: Duration = Duration::from_millis(500);
/// The time of the server at the other end of a connection.
///
/// The fence of a claim without a script is this time. It is behind the server's clock by the duration of a reply,
/// half a second at most, and grows with every read.
#[derive(Default)]
pub(super) struct ServerTime(Lock<ClockEstimate>);

#[derive(Default)]
struct ClockEstimate {
    reading: Option<ClockReading>,
    /// The last time that was returned.
    last: u64,
}

/// The server's time in a reply, in microseconds, and its arrival.
#[derive(Clone, Copy)]
struct ClockReading {
    micros: u64,
    at: Moment,
}

impl ClockEstimate {
    fn at(&self, now: Moment) -> Option<u64> {
        let reading = self.reading?;
        let passed = now.since(reading.at).filter(|passed| *passed < FRESH)?;
        Some(reading.micros + u64::try_from(passed.as_micros()).ok()?)
    }

    fn advance(&mut self, now: Moment) -> Option<u64> {
        let micros = self.at(now)?.max(self.last + 1);
        self.last = micros;
        Some(micros)
    }

    fn record(&mut self, micros: u64, now: Moment) {
        self.last = self.last.max(micros);
        // The fastest reply is closest to the truth.
        if self.at(now).is_none_or(|known| known < micros) {
            self.reading = Some(ClockReading { micros, at: now });
        }
    }
}

impl ServerTime {
    /// The server's time in microseconds, later than ever before. `None`: it is unknown.
    pub(super) fn now(&self) -> Option<u64> {
        self.0.lock().advance(Moment::now())
    }

    /// Records the server's time from a reply that `took` so long.
    pub(super) fn record(&self, micros: u64, took: Duration) {
        if took < PROMPT {
            self.0.lock().record(micros, Moment::now());
        }
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
    fn the_estimate_extrapolates_a_reading_and_always_grows() {
        let (mut estimate, start) = (ClockEstimate::default(), Moment::now());
        assert_eq!(estimate.advance(start), None);
        estimate.record(1_000, start);
        assert_eq!(estimate.advance(start), Some(1_001));
        assert_eq!(estimate.advance(start), Some(1_002));
        let later = after(start, Duration::from_millis(7));
        assert_eq!(estimate.advance(later), Some(8_000));
    }

    #[test]
    fn a_slow_reply_does_not_set_the_estimate_back() {
        let (mut estimate, start) = (ClockEstimate::default(), Moment::now());
        estimate.record(1_000_000, start);
        let later = after(start, Duration::from_millis(10));
        estimate.record(1_002_000, later);
        assert_eq!(estimate.at(later), Some(1_010_000));
        estimate.record(1_011_000, later);
        assert_eq!(estimate.at(later), Some(1_011_000));
        assert_eq!(estimate.advance(later), Some(1_011_001));
    }

    #[test]
    fn an_old_reading_or_one_before_a_suspension_is_discarded() {
        let (mut estimate, start) = (ClockEstimate::default(), Moment::now());
        estimate.record(1_000, start);
        assert_eq!(estimate.at(after(start, FRESH)), None);
        let slept = Moment {
            monotonic: start.monotonic + Duration::from_secs(1),
            calendar: start.calendar + Duration::from_secs(60 * 60),
        };
        assert_eq!(estimate.at(slept), None);
        let set_back = Moment {
            monotonic: start.monotonic + Duration::from_secs(1),
            calendar: start.calendar - Duration::from_secs(60),
        };
        assert_eq!(estimate.at(set_back), None);
        // Then the server's time counts, although it is behind the estimate.
        estimate.record(900, slept);
        assert_eq!(estimate.at(slept), Some(900));
        assert_eq!(
            estimate.advance(slept),
            Some(1_001),
            "later than ever before"
        );
    }
}
