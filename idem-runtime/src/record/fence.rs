//! Fencing tokens.

/// The fencing token of a claim.
///
/// It grows with every claim of a key: microseconds of the store's clock, or the last fence plus one where that is
/// more. 56 bits are stored; microseconds stay below the 53 bits that Lua and JSON hold exactly until the year 2255.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Fence(u64);

impl Fence {
    const BITS: u32 = 56;

    /// A fence as a store reads it back; only the low 56 bits count.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number & ((1 << Self::BITS) - 1))
    }

    /// The number, for downstream systems that refuse lower ones.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The fence of the next claim.
    #[must_use]
    pub(crate) fn next(self, now_us: u64) -> Self {
        Self::new(now_us.max(self.0 + 1))
    }
}
