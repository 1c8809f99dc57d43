//! Random bytes of owners.
//!
//! A request to the operating system costs as much as a tenth of a replay. A thread that makes one owner after the
//! other therefore draws the bytes for several at once.
//!
//! Bytes that wait for their use are the same in every copy of the process: a child by `fork`, or a machine that was
//! restored twice from one snapshot. They are used for [`FRESH`] only, about as long as a claim with an owner waits to
//! be sent, and such a claim is in every copy in any case.

use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Age up to which bytes are used.
const FRESH: Duration = Duration::from_micros(200);
/// The number of owners whose bytes are drawn at once.
const OWNERS: usize = 32;

/// Random bytes for further owners of a thread.
struct Supply {
    owners: [[u8; 16]; OWNERS],
    left: usize,
    /// When they were drawn.
    drawn: Instant,
    /// When the thread made an owner last.
    used: Instant,
}

impl Supply {
    fn new(now: Instant) -> Self {
        let mut supply = Self {
            owners: [[0; 16]; OWNERS],
            left: 0,
            drawn: now,
            used: now,
        };
        supply.draw(1, now);
        supply
    }

    fn next(&mut self, now: Instant) -> [u8; 16] {
        if self.left == 0 || now.duration_since(self.drawn) >= FRESH {
            let is_busy = now.duration_since(self.used) < FRESH / 4;
            self.draw(if is_busy { OWNERS } else { 1 }, now);
        }
        self.used = now;
        self.left -= 1;
        self.owners[self.left]
    }

    fn draw(&mut self, owners: usize, now: Instant) {
        let bytes = self.owners[..owners].as_flattened_mut();
        getrandom::fill(bytes).expect("the operating system gives random bytes");
        (self.left, self.drawn) = (owners, now);
    }
}

pub(super) fn bytes() -> [u8; 16] {
    thread_local! {
        static SUPPLY: RefCell<Option<Supply>> = const { RefCell::new(None) };
    }
    let now = Instant::now();
    let supplied = SUPPLY.try_with(|supply| {
        let mut supply = supply.borrow_mut();
        supply.get_or_insert_with(|| Supply::new(now)).next(now)
    });
    // A thread that is about to end has no supply any more.
    supplied.unwrap_or_else(|_| Supply::new(now).next(now))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    #[test]
    fn no_owner_is_given_twice() {
        let start = Instant::now();
        let mut supply = Supply::new(start);
        let steps = [0, 1, 10, 49, 50, 51, 199, 200, 201];
        let mut now = start;
        let mut seen = HashSet::new();
        for round in 0..10_000 {
            now += MICROSECOND * steps[round % 97 % steps.len()];
            assert!(seen.insert(supply.next(now)), "owner {round}");
        }
    }

    #[test]
    fn a_supply_is_for_threads_that_are_busy_and_is_not_used_when_old() {
        let start = Instant::now();
        let mut supply = Supply::new(start);
        supply.next(start);
        supply.next(start + MICROSECOND);
        assert_eq!(supply.left, OWNERS - 1);
        let next = supply.owners[supply.left - 1];
        assert_ne!(supply.next(start + MICROSECOND + FRESH), next);
        assert_eq!(supply.left, 0, "of a thread that is not busy");
        let late = start + MICROSECOND * 2 + FRESH;
        let copied = supply.next(late);
        assert_eq!(supply.left, OWNERS - 1);
        assert!(!supply.owners[..supply.left].contains(&copied));
    }

    #[test]
    fn threads_share_nothing() {
        let owners = || (0..100).map(|_| bytes()).collect::<Vec<_>>();
        let others = std::thread::spawn(owners).join().unwrap();
        let all: HashSet<_> = owners().into_iter().chain(others).collect();
        assert_eq!(all.len(), 200);
    }
}
