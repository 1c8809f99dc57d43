//! A store whose errors outlasted the patience of a claim.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// While it lasts, a claim is sent once: after a server that refuses connections has kept one caller waiting for
/// `claim_deadline`, it need not do that to every other one.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// In microseconds of the clock; 0 for none.
    until: AtomicU64,
}

impl Outage {
    pub(crate) fn lasts(&self, now: Duration) -> bool {
        u128::from(self.until.load(Ordering::Relaxed)) > now.as_micros()
    }

    /// A claim got an error at `now`, and is not sent again. Claims that follow within `patience` are not, either.
    pub(crate) fn goes_on(&self, now: Duration, patience: Duration) {
        let until = (now + patience).as_micros();
        let until = u64::try_from(until).unwrap_or(u64::MAX);
        self.until.store(until, Ordering::Relaxed);
    }

    /// A claim has a reply.
    pub(crate) fn ends(&self) {
        // Nearly always: every call writes to no line that every call reads.
        if self.until.load(Ordering::Relaxed) != 0 {
            self.until.store(0, Ordering::Relaxed);
        }
    }
}
