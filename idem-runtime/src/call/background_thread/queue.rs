//! The queue of the leases that wait for their renewal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::call::lease::{GONE, Lease, OUTSIDE};

/// Leases by the time of their renewal, in nanoseconds of the clock, and an id.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) leases: BTreeMap<(u64, u64), Arc<Lease>>,
    pub(super) next_id: u64,
    /// The number of registered leases, with those that are being renewed and are not in `leases`.
    pub(super) registered: usize,
}

impl Queue {
    /// Removes the leases whose renewal is due.
    pub(super) fn take_due(&mut self, now: u64, due: &mut Vec<Arc<Lease>>) {
        while let Some(entry) = self.leases.first_entry()
            && entry.key().0 <= now
        {
            let lease = entry.remove();
            lease.slot.due.store(OUTSIDE, Ordering::Relaxed);
            due.push(lease);
        }
    }
}

/// A moment of the clock in nanoseconds.
pub(super) fn nanos(time: Duration) -> u64 {
    // 584 years; a lease is given up long before.
    u64::try_from(time.as_nanos()).map_or(GONE - 1, |nanos| nanos.min(GONE - 1))
}
