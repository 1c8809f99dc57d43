//! Records of a shard, and their expiry.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::capacity::Capacity;
use crate::env::digest_hasher::Spread;
use crate::env::striped::Padded;
use crate::identity::operation::RecordKey;

/// The bytes of a record besides its value: key, map entry, expiry check.
const OVERHEAD_BYTES: usize = 200;

/// The scheduled checks by time and record number, the soonest first.
type Checks = BTreeMap<(Duration, u64), RecordKey>;

/// A record, and when it expires.
pub(super) struct Slot {
    pub(super) bytes: Bytes,
    pub(super) expires: Duration,
    /// The scheduled check, due no later than the expiry.
    ///
    /// A longer life does not move it, so that completions and renewals leave it unchanged.
    check: (Duration, u64),
}

impl Slot {
    fn cost(&self) -> isize {
        (self.bytes.len() + OVERHEAD_BYTES).cast_signed()
    }
}

/// The records of a shard. Each has one expiry check.
pub(super) struct Records {
    slots: HashMap<RecordKey, Slot, Spread>,
    checks: Checks,
    next_id: u64,
    capacity: Arc<Padded<Capacity>>,
}

impl Records {
    pub(super) fn new(capacity: &Arc<Padded<Capacity>>) -> Self {
        Self {
            slots: HashMap::default(),
            checks: Checks::new(),
            next_id: 0,
            capacity: Arc::clone(capacity),
        }
    }

    /// The record of a key, which may have expired.
    pub(super) fn get(&self, key: &RecordKey) -> Option<&Slot> {
        self.slots.get(key)
    }

    /// The record of a key, unless it has expired.
    pub(super) fn live(&mut self, key: &RecordKey, now: Duration) -> Option<&mut Slot> {
        self.slots.get_mut(key).filter(|slot| slot.expires > now)
    }

    /// The records that have not expired, in no order.
    pub(super) fn all_live(&self, now: Duration) -> impl Iterator<Item = (&RecordKey, &Slot)> {
        (self.slots.iter()).filter(move |(_, slot)| slot.expires > now)
    }

    /// Stores a record, in place of the present one if any.
    pub(super) fn put(&mut self, key: &RecordKey, bytes: Bytes, expires: Duration) {
        if let Some(slot) = self.slots.get_mut(key) {
            let cost = slot.cost();
            (slot.bytes, slot.expires) = (bytes, expires);
            self.capacity.add(0, slot.cost() - cost);
            if expires < slot.check.0
                && let Some(key) = self.checks.remove(&slot.check)
            {
                slot.check.0 = expires;
                self.checks.insert(slot.check, key);
            }
            return;
        }
        self.next_id += 1;
        let check = (expires, self.next_id);
        let slot = Slot {
            bytes,
            expires,
            check,
        };
        self.capacity.add(1, slot.cost());
        self.checks.insert(check, key.clone());
        self.slots.insert(key.clone(), slot);
    }

    pub(super) fn remove(&mut self, key: &RecordKey) {
        if let Some(slot) = self.slots.remove(key) {
            self.capacity.add(-1, -slot.cost());
            self.checks.remove(&slot.check);
        }
    }

    /// Removes expired records, by at most `most` checks.
    pub(super) fn sweep(&mut self, now: Duration, most: usize) {
        for _ in 0..most {
            let due = self.checks.first_entry().filter(|due| due.key().0 <= now);
            let Some(due) = due else { return };
            let key = due.remove();
            match self.slots.get_mut(&key) {
                Some(slot) if slot.expires > now => {
                    slot.check.0 = slot.expires;
                    self.checks.insert(slot.check, key);
                }
                _ => self.remove(&key),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::key::KeyDigest;
    use crate::identity::operation::Operation;

    fn key(number: u8) -> RecordKey {
        let digest = KeyDigest::from_bytes([number; 32]);
        RecordKey::new("shop".into(), Operation::new("pay"), digest)
    }

    fn numbers(records: &Records) -> Vec<u8> {
        let mut numbers: Vec<_> = (records.slots.keys())
            .map(|key| key.digest().as_bytes()[0])
            .collect();
        numbers.sort_unstable();
        assert_eq!(records.checks.len(), numbers.len());
        let used = [numbers.len(), OVERHEAD_BYTES * numbers.len()];
        assert_eq!(records.capacity.used(), used);
        numbers
    }

    #[test]
    fn a_sweep_removes_the_soonest_records_in_any_order_of_arrival() {
        let second = Duration::from_secs;
        let mut records = Records::new(&Arc::new(Padded(Capacity::new(6, 0))));
        for number in [3, 1, 4, 2, 6, 5] {
            records.put(&key(number), Bytes::new(), second(number.into()));
        }
        records.remove(&key(4));
        records.sweep(second(3), 2);
        assert_eq!(numbers(&records), [3, 5, 6]);
        records.sweep(second(3), 2);
        assert_eq!(numbers(&records), [5, 6]);
        // Expiries move in both directions.
        records.put(&key(5), Bytes::new(), second(8));
        records.put(&key(6), Bytes::new(), second(4));
        for (now, left) in [(4, &[5][..]), (7, &[5]), (8, &[])] {
            records.sweep(second(now), 1);
            assert_eq!(numbers(&records), left, "after {now} s");
        }
    }
}
