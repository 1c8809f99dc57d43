//! One part of a memory store: its records, and their expiry checks.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use bytes::Bytes;

use super::looks::{Look, Looks};
use super::used::Change;
use crate::env::digest_hasher::Spread;
use crate::identity::operation::RecordKey;

/// The bytes of a record besides its value: key, map entry, expiry entry.
const OVERHEAD_BYTES: usize = 200;

#[derive(Default)]
pub(super) struct Shard {
    records: HashMap<RecordKey, Slot, Spread>,
    looks: Looks,
    next_id: u64,
    /// Changes that are not published yet.
    pub(super) untold: Change,
}

pub(super) struct Slot {
    pub(super) bytes: Bytes,
    pub(super) expires: Duration,
    /// The check that is due no later than the expiry.
    ///
    /// Other checks of this key are outdated.
    look: (Duration, u64),
}

impl Slot {
    fn cost(&self) -> usize {
        self.bytes.len() + OVERHEAD_BYTES
    }

    /// The change when it is added.
    fn added(&self) -> Change {
        Change {
            entries: 1,
            bytes: self.cost().cast_signed(),
        }
    }

    /// The change when it is removed.
    fn removed(&self) -> Change {
        Change {
            entries: -1,
            bytes: -self.cost().cast_signed(),
        }
    }

    /// Replaces this record.
    pub(super) fn replace(&mut self, bytes: Bytes, expires: Duration) -> Change {
        let mut change = Change::default();
        change.bytes -= self.cost().cast_signed();
        (self.bytes, self.expires) = (bytes, expires);
        change.bytes += self.cost().cast_signed();
        change
    }

    /// Whether it expires before its next check.
    pub(super) fn is_due_sooner(&self) -> bool {
        self.expires < self.look.0
    }
}

impl Shard {
    /// The record of a key, which may have expired.
    pub(super) fn get(&self, key: &RecordKey) -> Option<&Slot> {
        self.records.get(key)
    }

    /// The record of a key, unless it has expired.
    pub(super) fn alive(&mut self, key: &RecordKey, now: Duration) -> Option<&mut Slot> {
        self.records.get_mut(key).filter(|slot| slot.expires > now)
    }

    /// The records that have not expired, in no order.
    pub(super) fn all_alive(&self, now: Duration) -> impl Iterator<Item = (&RecordKey, &Slot)> {
        self.records
            .iter()
            .filter(move |(_, slot)| slot.expires > now)
    }

    /// Stores a record, in place of the present one if there is one.
    pub(super) fn put(&mut self, key: &RecordKey, bytes: Bytes, expires: Duration) -> Change {
        match self.records.entry(key.clone()) {
            Entry::Vacant(entry) => {
                self.next_id += 1;
                let slot = entry.insert(Slot {
                    bytes,
                    expires,
                    look: (expires, self.next_id),
                });
                let change = slot.added();
                self.look(key, expires);
                change
            }
            Entry::Occupied(entry) => {
                let slot = entry.into_mut();
                let change = slot.replace(bytes, expires);
                if slot.is_due_sooner() {
                    self.look_sooner(key);
                }
                change
            }
        }
    }

    /// Schedules an earlier check, for a record that expires before its next one.
    pub(super) fn look_sooner(&mut self, key: &RecordKey) {
        if let Some(slot) = self.records.get_mut(key) {
            self.next_id += 1;
            let at = slot.expires;
            slot.look = (at, self.next_id);
            self.look(key, at);
        }
    }

    /// Schedules a check with the last id.
    fn look(&mut self, key: &RecordKey, at: Duration) {
        let (id, key) = (self.next_id, key.clone());
        self.looks.push(Look { at, id, key });
        // Remove checks of records that were deleted early.
        if self.looks.len() > 2 * self.records.len() + 64 {
            let records = &self.records;
            self.looks
                .retain(|look| (records.get(&look.key)).is_some_and(|slot| slot.look.1 == look.id));
        }
    }

    pub(super) fn remove(&mut self, key: &RecordKey) -> Change {
        let slot = self.records.remove(key);
        slot.map_or_else(Change::default, |slot| slot.removed())
    }

    /// Drops expired records, after at most `most` checks.
    pub(super) fn sweep(&mut self, now: Duration, most: usize) -> Change {
        let mut change = Change::default();
        for _ in 0..most {
            let Some(look) = self.looks.pop_due(now) else {
                break;
            };
            let Some(slot) = self.records.get_mut(&look.key) else {
                continue;
            };
            if slot.look.1 != look.id {
                continue;
            }
            if slot.expires <= now {
                change.add(slot.removed());
                self.records.remove(&look.key);
            } else {
                slot.look.0 = slot.expires;
                self.looks.push(Look {
                    at: slot.expires,
                    ..look
                });
            }
        }
        change
    }
}
