//! Pseudo-random numbers, the same in every run.

/// A small generator (`SplitMix64`): good enough to spread a log, and the same on every machine.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number from `low` up to and without `high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low)
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}

/// A number that depends only on its arguments: faults are drawn by it, so that they strike
/// the same step of the same payment in any order of the tasks.
pub(crate) fn draw(seed: u64, step: &str, id: &str, nth: u32) -> u64 {
    let mut hash = mix(seed ^ 0x1de3_707e);
    for byte in step.bytes().chain([0]).chain(id.bytes()) {
        hash = mix(hash ^ u64::from(byte));
    }
    mix(hash ^ u64::from(nth) << 32)
}

fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
