//! Reproducible random numbers.

use std::env;
use std::time::SystemTime;

/// Pseudo-random numbers from a seed (`SplitMix64`: Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed in `IDEM_TEST_SEED`, or a new one, printed on standard error.
    pub fn from_env() -> (u64, Self) {
        let given = env::var("IDEM_TEST_SEED").ok();
        let seed = given.map_or_else(
            || {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                u64::from(now.unwrap_or_default().subsec_nanos())
            },
            |text| text.parse().expect("IDEM_TEST_SEED is a number"),
        );
        eprintln!("IDEM_TEST_SEED={seed}");
        (seed, Self(seed))
    }

    /// The next number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// True with this probability, in per cent.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
