//! Records of a shard, and their expiry.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;

use super::capacity::Usage;
use crate::env::digest_hasher::Spread;
use crate::identity::operation::RecordKey;

/// The bytes of a record besides its value: key, map entry, expiry check.
const OVERHEAD_BYTES: usize = 200;

/// The time of an expiry check, and the number of its record.
type Due = (Duration, u64);

/// The scheduled checks, the soonest first.
type Checks = BTreeMap<Due, RecordKey>;

/// A record, and when it expires.
pub(super) struct Slot {
    pub(super) bytes: Bytes,
    pub(super) expires: Duration,
    /// The scheduled check, due no later than the expiry.
    ///
    /// A longer life does not move it, so that completions and renewals leave it unchanged.
    check: Due,
}

/// The records of a shard. Each has one expiry check.
#[derive(Default)]
pub(super) struct Records {
    slots: HashMap<RecordKey, Slot, Spread>,
    checks: Checks,
    next_id: u64,
    /// The change of the usage since the last publication.
    pub(super) unpublished: Usage,
}

fn cost(bytes: &Bytes) -> isize {
    (bytes.len() + OVERHEAD_BYTES).cast_signed()
}

/// A record to replace.
pub(super) struct Occupied<'a> {
    pub(super) slot: &'a mut Slot,
    checks: &'a mut Checks,
    unpublished: &'a mut Usage,
}

impl Occupied<'_> {
    pub(super) fn replace(self, bytes: Bytes, expires: Duration) {
        let Slot { check, .. } = self.slot;
        if expires < check.0
            && let Some(key) = self.checks.remove(check)
        {
            check.0 = expires;
            self.checks.insert(*check, key);
        }
        self.unpublished.bytes += cost(&bytes) - cost(&self.slot.bytes);
        (self.slot.bytes, self.slot.expires) = (bytes, expires);
    }
}

impl Records {
    /// The record of a key, which may have expired.
    pub(super) fn get(&self, key: &RecordKey) -> Option<&Slot> {
        self.slots.get(key)
    }

    /// The record of a key, unless it has expired.
    pub(super) fn live(&mut self, key: &RecordKey, now: Duration) -> Option<Occupied<'_>> {
        let slot = self.slots.get_mut(key).filter(|slot| slot.expires > now)?;
        Some(Occupied {
            slot,
            checks: &mut self.checks,
            unpublished: &mut self.unpublished,
        })
    }

    /// The records that have not expired, in no order.
    pub(super) fn all_live(&self, now: Duration) -> impl Iterator<Item = (&RecordKey, &Slot)> {
        self.slots
            .iter()
            .filter(move |(_, slot)| slot.expires > now)
    }

    /// Stores a record, in place of the present one if there is one.
    pub(super) fn put(&mut self, key: &RecordKey, bytes: Bytes, expires: Duration) {
        match self.slots.entry(key.clone()) {
            Entry::Vacant(entry) => {
                self.next_id += 1;
                let check = (expires, self.next_id);
                self.checks.insert(check, key.clone());
                self.unpublished.entries += 1;
                self.unpublished.bytes += cost(&bytes);
                entry.insert(Slot {
                    bytes,
                    expires,
                    check,
                });
            }
            Entry::Occupied(mut entry) => Occupied {
                slot: entry.get_mut(),
                checks: &mut self.checks,
                unpublished: &mut self.unpublished,
            }
            .replace(bytes, expires),
        }
    }

    pub(super) fn remove(&mut self, key: &RecordKey) {
        if let Some(slot) = self.take(key) {
            self.checks.remove(&slot.check);
        }
    }

    /// Removes a record, and leaves its check.
    fn take(&mut self, key: &RecordKey) -> Option<Slot> {
        let slot = self.slots.remove(key)?;
        self.unpublished.entries -= 1;
        self.unpublished.bytes -= cost(&slot.bytes);
        Some(slot)
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
                _ => drop(self.take(&key)),
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
        assert_eq!(records.unpublished.entries, numbers.len().cast_signed());
        numbers
    }

    #[test]
    fn a_sweep_removes_the_soonest_records_in_any_order_of_arrival() {
        const SECOND: Duration = Duration::from_secs(1);
        let mut records = Records::default();
        for number in [3, 1, 4, 2, 6, 5] {
            records.put(&key(number), Bytes::new(), SECOND * number.into());
        }
        records.remove(&key(4));
        records.sweep(SECOND * 3, 2);
        assert_eq!(numbers(&records), [3, 5, 6]);
        records.sweep(SECOND * 3, 2);
        assert_eq!(numbers(&records), [5, 6]);
        // Expiries move in both directions.
        for (number, expires) in [(5, 8), (6, 4)] {
            let record = records.live(&key(number), SECOND * 3).unwrap();
            record.replace(Bytes::new(), SECOND * expires);
        }
        records.sweep(SECOND * 4, 1);
        assert_eq!(numbers(&records), [5]);
        records.sweep(SECOND * 7, 1);
        assert_eq!(numbers(&records), [5]);
        records.sweep(SECOND * 8, 1);
        assert!(numbers(&records).is_empty());
        assert_eq!(records.unpublished.bytes, 0);
    }
}
