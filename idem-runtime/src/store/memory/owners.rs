//! Owners of claims, without a system call for each of them.
//!
//! A claim is compared only with other claims of its key in these records. They are private to this process: a child of
//! a fork has a copy of them, and no other process sees the child's claims. So an owner need not differ from those of
//! any other process; it is a secret start and a number that is used once.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::record::Owner;

#[derive(Debug)]
pub(super) struct Owners {
    start: u128,
    used: AtomicU64,
}

impl Default for Owners {
    fn default() -> Self {
        Self {
            start: u128::from_be_bytes(*Owner::random().as_bytes()),
            used: AtomicU64::new(0),
        }
    }
}

impl Owners {
    pub(super) fn new_owner(&self) -> Owner {
        let number = self.used.fetch_add(1, Ordering::Relaxed);
        // Multiplied by an odd number, so that no two products are the same. The product changes the first bytes,
        // because a log shows those, and they spread the back-off of callers.
        let spread = u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64;
        Owner::from_bytes(self.start.wrapping_add(spread).to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_owner_comes_twice_and_a_log_tells_them_apart() {
        let owners = [Owners::default(), Owners::default()];
        let all: Vec<_> = (owners.iter())
            .flat_map(|owners| (0..1000).map(|_| owners.new_owner()))
            .collect();
        let whole: HashSet<_> = all.iter().map(Owner::as_bytes).collect();
        let shown: HashSet<_> = all.iter().map(|owner| &owner.as_bytes()[..4]).collect();
        assert_eq!(whole.len(), 2000);
        // Of two thousand random numbers of 32 bits hardly two are the same.
        assert!(shown.len() > 1990, "{}", shown.len());
    }
}
