//! Duration of a fault's effect on calls.

use std::time::{Duration, Instant};

use crate::journal::Ended;

/// Calls up to this duration count as normal, even on a busy machine.
const QUICK: Duration = Duration::from_millis(500);
/// Calls of which a hundredth may be slow.
const WINDOW: usize = 100;
/// The effect is over after so many normal calls in a row. Later slow calls come from a suspended machine, not from
/// the fault.
const ENOUGH: usize = 5 * WINDOW;

/// A fault, from the servers' view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) at: Instant,
    /// When the servers could serve the keys again.
    pub(crate) served: Instant,
}

/// Times since the fault, of calls on affected keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recovery {
    /// When the first call that began after the fault had its answer.
    pub(crate) first: Duration,
    /// When 99 of any 100 ending calls were normal again, for long enough.
    pub(crate) normal: Duration,
    /// Longest duration that counts as normal.
    pub(crate) quick: Duration,
}

impl Recovery {
    pub(crate) fn of(fault: Fault, ended: &[Ended], hit: impl Fn(usize) -> bool) -> Self {
        let mut ended: Vec<_> = ended.iter().filter(|call| hit(call.shard)).collect();
        ended.sort_by_key(|call| call.end());
        let (before, after) = ended.split_at(ended.partition_point(|call| call.end() < fault.at));
        let mut times: Vec<_> = before.iter().map(|call| call.took).collect();
        times.sort_unstable();
        let usual = times.get(times.len() * 99 / 100).copied();
        let quick = QUICK.max(usual.unwrap_or_default() * 2);
        let later = after.iter().filter(|call| call.began >= fault.at);
        let first = later.filter(|call| !call.refused).map(|call| call.end());
        let first = first.min().expect("a call is answered after the fault");
        let is_slow = |call: &&&Ended| call.refused || call.took > quick;
        let sick = |calls: &[&Ended]| calls.iter().filter(is_slow).count() * 100 > WINDOW;
        // Start behind the last slow call so far.
        let (mut start, mut longest) = (0, 0);
        for (at, window) in after.windows(WINDOW).enumerate() {
            if sick(window) {
                let slow = window.iter().rposition(|call| is_slow(&call));
                start = start.max(slow.map_or(0, |slow| at + slow + 1));
            }
            longest = longest.max((at + WINDOW).saturating_sub(start));
            if longest >= ENOUGH {
                break;
            }
        }
        assert!(
            longest >= ENOUGH,
            "calls are not as quick as before the fault: {longest} in a row at most are"
        );
        Self {
            first: first - fault.at,
            normal: match start {
                0 => Duration::ZERO,
                start => after[start - 1].end() - fault.at,
            },
            quick,
        }
    }
}

/// The slowest call in progress between two moments, and the number of refused ones.
pub(crate) fn slowest(
    ended: &[Ended],
    (from, to): (Instant, Instant),
    on: impl Fn(usize) -> bool,
) -> (Duration, usize) {
    let meanwhile = ended.iter().filter(|call| on(call.shard));
    let meanwhile = meanwhile.filter(|call| call.began < to && call.end() > from);
    let refused = meanwhile.clone().filter(|call| call.refused).count();
    let slowest = meanwhile.map(|call| call.took).max();
    (slowest.unwrap_or_default(), refused)
}
