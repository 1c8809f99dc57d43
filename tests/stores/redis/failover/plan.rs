//! Keys, order of their calls, and effects of their bodies.

use std::collections::VecDeque;
use std::time::Duration;

use idem_tests::bounds::bound;
use idem_tests::seeded::Seeded;

/// How often each key is called.
const TIMES: usize = 5;

/// Keys of a run; each is called `TIMES` times.
pub(crate) fn keys() -> usize {
    bound(500, 2_000)
}

pub(crate) fn calls() -> usize {
    keys() * TIMES
}

/// Pause of a caller after each call. In an ordinary run there are a quarter of the calls in the same time.
pub(crate) fn pause(seeded: &mut Seeded) -> Duration {
    Duration::from_millis(10 + seeded.below(30)) * bound(4, 1)
}

/// The act of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Returns an answer.
    Succeed,
    /// Ends with a business error, which is an answer.
    Decline,
    /// Ends with a system error the first time.
    Stumble,
}

/// The act of the body of a key, and its duration.
pub(crate) fn act(key: u64) -> (Act, Duration) {
    let act = match key % 10 {
        0 => Act::Decline,
        1 | 2 => Act::Stumble,
        _ => Act::Succeed,
    };
    let millis = if key.is_multiple_of(7) { 150 } else { key % 5 };
    (act, Duration::from_millis(millis))
}

/// The calls of some keys in their order: of each key two at once, one soon, and others later.
pub(crate) fn order(keys: &[u64], seeded: &mut Seeded) -> VecDeque<u64> {
    let end = (keys.len() * 10) as u64;
    let mut calls = Vec::with_capacity(keys.len() * TIMES);
    for (begin, key) in (0..).step_by(10).zip(keys) {
        calls.push((begin, *key));
        calls.push((begin, *key));
        calls.push((begin + 10 + seeded.below(100), *key));
        calls.push((begin + seeded.below(end / 4), *key));
        calls.push((begin + seeded.below(end - begin), *key));
    }
    calls.sort_by_key(|(at, _)| *at);
    calls.into_iter().map(|(_, key)| key).collect()
}
