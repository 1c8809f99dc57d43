//! Detects steps of a server's clock by the monotonic clock.
//!
//! Leases and the lives of records are measured by the server's clock. A reply that has the server's time was written
//! between the moments at which its command was sent and at which the reply arrived, which bounds the difference of the
//! two clocks, whatever the round trip took. The next such reply bounds it again: if the two bounds do not meet, one of
//! the clocks has stepped, because a slow network or a paused server cannot cause that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::observers::Observers;
use crate::env::lock::Lock;
use crate::env::observer::EventKind;

/// How far apart bounds must be to count. A smaller step takes less from a lease of 750 ms or more than a missed
/// renewal does. A slewed clock stays below it between two replies of a busy store; chrony, whose limit is 8 %, exceeds
/// it where replies are more than 3 s apart, and then the lease really is that much shorter.
const TOLERANCE: i64 = 250_000;
/// The reciprocal of the drift that does not count as a step.
///
/// NTP slews each of the two clocks by up to 500 parts in a million, which includes the error of the crystal.
const DRIFT: i64 = 1_000;
/// How long nothing is compared after a reported step. An address behind which servers with several clocks reply in
/// turn is reported once in that time, and not with each reply.
const PAUSE: Duration = Duration::from_secs(1);

/// The clock of a server, as read from its replies.
#[derive(Debug)]
pub(super) struct ServerClock {
    known: Lock<Option<ClockBounds>>,
    observers: Arc<Observers>,
}

/// A server time, and the moments between which it was read.
#[derive(Clone, Copy, Debug)]
struct Reading {
    micros: i64,
    sent: Instant,
    received: Instant,
}

/// The bounds of the server's time at a moment, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClockBounds {
    least: i64,
    most: i64,
    at: Instant,
    /// Replies to commands sent before this are not compared.
    ///
    /// The server may have written them before the reply that set these bounds.
    from: Instant,
}

/// The step of the server's clock, in microseconds; negative for backwards.
type ClockStep = i64;

impl ServerClock {
    pub(super) fn new(observers: &Arc<Observers>) -> Arc<Self> {
        Arc::new(Self {
            known: Lock::default(),
            observers: Arc::clone(observers),
        })
    }

    /// Compares the server's time in a reply with the known bounds.
    ///
    /// The time is in microseconds. The command of the reply was sent at `sent`.
    pub(super) fn says(&self, micros: u64, sent: Instant) {
        let Ok(micros) = i64::try_from(micros) else {
            return;
        };
        let received = Instant::now();
        let reading = Reading {
            micros,
            sent,
            received,
        };
        let step = narrow(&mut self.known.lock(), reading);
        if let Some(step) = step {
            self.observers.notify(EventKind::ClockStepped {
                by: Duration::from_micros(step.unsigned_abs()),
                forward: step > 0,
            });
        }
    }
}

impl Reading {
    fn bounds(self) -> ClockBounds {
        let took = micros(self.received - self.sent);
        ClockBounds {
            least: self.micros,
            most: self.micros.saturating_add(took),
            at: self.received,
            from: self.received,
        }
    }
}

impl ClockBounds {
    /// The bounds at a later moment, if no clock steps until then.
    fn at(self, moment: Instant) -> Self {
        let passed = micros(moment - self.at);
        let drift = passed / DRIFT;
        Self {
            least: self.least.saturating_add(passed - drift),
            most: self.most.saturating_add(passed + drift),
            at: moment,
            ..self
        }
    }
}

/// Narrows the known bounds. A step is at least as large as the return value, because the bounds are that far apart.
fn narrow(known: &mut Option<ClockBounds>, reading: Reading) -> Option<ClockStep> {
    let read = reading.bounds();
    let Some(before) = *known else {
        *known = Some(read);
        return None;
    };
    if reading.sent < before.from || reading.received < before.at {
        return None;
    }
    let expected = before.at(reading.received);
    let (least, most) = (read.least.max(expected.least), read.most.min(expected.most));
    if least <= most {
        *known = Some(ClockBounds {
            least,
            most,
            ..read
        });
        return None;
    }
    let apart = least.saturating_sub(most);
    if apart < TOLERANCE {
        *known = Some(read);
        return None;
    }
    *known = Some(ClockBounds {
        from: reading.received + PAUSE,
        ..read
    });
    let forward = read.least > expected.most;
    Some(if forward { apart } else { -apart })
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: i64 = 1_700_000_000_000_000;

    /// A server whose clock agrees with the local one until a step.
    struct StepCase {
        began: Instant,
        step: i64,
        known: Option<ClockBounds>,
    }

    impl StepCase {
        fn new() -> Self {
            Self {
                began: Instant::now(),
                step: 0,
                known: None,
            }
        }

        /// Sent, read and received at these milliseconds after the beginning.
        fn narrow(&mut self, sent: u64, read: u64, received: u64) -> Option<ClockStep> {
            let after = |millis| self.began + Duration::from_millis(millis);
            let micros = START + i64::try_from(read).unwrap() * 1_000 + self.step;
            let reading = Reading {
                micros,
                sent: after(sent),
                received: after(received),
            };
            narrow(&mut self.known, reading)
        }
    }

    #[test]
    fn a_step_is_as_far_as_the_bounds_are_apart() {
        for step in [31_000_000, -31_000_000, 300_000, -300_000] {
            let mut case = StepCase::new();
            assert_eq!(case.narrow(0, 1, 2), None);
            case.step = step;
            let told = case.narrow(1_000, 1_001, 1_002).unwrap();
            assert_eq!(told.signum(), step.signum());
            assert!(told.abs() <= step.abs(), "{told} of {step}");
            assert!((step - told).abs() < 5_000, "{told} of {step}");
            assert_eq!(case.narrow(3_000, 3_001, 3_002), None, "it is told once");
        }
    }

    #[test]
    fn neither_slow_replies_nor_a_server_that_stands_still_are_a_step() {
        let mut case = StepCase::new();
        let replies = [
            (0, 1, 2),
            (10, 11, 5_000),
            (5_010, 9_999, 10_000),
            (10_001, 10_002, 10_003),
            (10_010, 12_000, 15_000),
        ];
        for (sent, read, received) in replies {
            assert_eq!(case.narrow(sent, read, received), None, "{received}");
        }
        // The known bounds are as narrow as before these replies.
        case.step = 400_000;
        assert!(case.narrow(15_001, 15_002, 15_003).is_some());
    }

    #[test]
    fn a_reply_that_was_overtaken_is_not_compared() {
        let mut case = StepCase::new();
        assert_eq!(case.narrow(0, 1, 2), None);
        case.step = 31_000_000;
        assert!(case.narrow(100, 101, 102).is_some());
        // Written before the step, and delayed on the way.
        case.step = 0;
        assert_eq!(case.narrow(50, 51, 2_000), None);
        case.step = 31_000_000;
        assert_eq!(case.narrow(2_001, 2_002, 2_003), None);
    }

    #[test]
    fn clocks_that_are_slewed_apart_have_not_stepped() {
        let mut case = StepCase::new();
        let mut moment = 0;
        for gap in [10, 1_000, 10_000, 600_000, 86_400_000] {
            assert_eq!(case.narrow(moment, moment, moment + 1), None);
            moment += gap;
            // Both clocks by as much as NTP permits, in opposite directions.
            case.step += i64::try_from(gap).unwrap();
            assert_eq!(case.narrow(moment, moment, moment + 1), None, "{gap}");
        }
        // A quick slew, in small pieces: chrony's limit.
        for _ in 0..10_000 {
            moment += 10;
            case.step += 833;
            assert_eq!(case.narrow(moment, moment, moment + 1), None);
        }
    }

    #[test]
    fn servers_that_answer_in_turn_with_two_clocks_are_told_of_once_a_second() {
        let mut case = StepCase::new();
        let mut told = 0;
        for moment in 0..2_500_u64 {
            case.step = if moment % 2 == 0 { 0 } else { 5_000_000 };
            told += usize::from(
                case.narrow(moment * 2, moment * 2, moment * 2 + 1)
                    .is_some(),
            );
        }
        assert!((3..=5).contains(&told), "{told} in 5 s");
    }

    #[test]
    fn times_that_make_no_sense_do_no_harm() {
        let mut known = None;
        let now = Instant::now();
        for micros in [0, i64::MAX, 0, i64::MAX - 1] {
            let reading = Reading {
                micros,
                sent: now,
                received: now + Duration::from_secs(1),
            };
            narrow(&mut known, reading);
        }
    }
}
