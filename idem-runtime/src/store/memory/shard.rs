//! One part of a memory store: its records, and when they expire.

use std::cmp::Ordering;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use bytes::Bytes;

use crate::operation::RecordKey;
use crate::spread::Spread;

/// What a record costs besides its bytes: key, map entry, expiry entry.
const OVERHEAD_BYTES: usize = 200;

#[derive(Default)]
pub(super) struct Shard {
    records: HashMap<RecordKey, Slot, Spread>,
    looks: BinaryHeap<Look>,
    next_id: u64,
}

pub(super) struct Slot {
    pub(super) bytes: Bytes,
    pub(super) expires: Duration,
    /// The look that is due at the latest when this expires; others of this key are of old.
    look: (Duration, u64),
}

impl Slot {
    fn cost(&self) -> usize {
        self.bytes.len() + OVERHEAD_BYTES
    }

    /// Puts a record in the place of this one.
    pub(super) fn replace(&mut self, bytes: Bytes, expires: Duration) -> Change {
        let mut change = Change::default();
        change.remove(self);
        (self.bytes, self.expires) = (bytes, expires);
        change.add(self);
        change
    }

    /// Whether it expires before anybody would look.
    pub(super) fn is_due_sooner(&self) -> bool {
        self.expires < self.look.0
    }
}

/// When to look whether a record has expired. It stays where it is when the record is to live longer, so
/// that a completion, and every renewal, leaves the heap alone.
struct Look {
    at: Duration,
    id: u64,
    key: RecordKey,
}

/// How many entries and bytes more or less a shard has than before.
#[derive(Clone, Copy, Default)]
pub(super) struct Change {
    pub(super) entries: isize,
    pub(super) bytes: isize,
}

impl Change {
    fn add(&mut self, slot: &Slot) {
        self.entries += 1;
        self.bytes += slot.cost().cast_signed();
    }

    fn remove(&mut self, slot: &Slot) {
        self.entries -= 1;
        self.bytes -= slot.cost().cast_signed();
    }
}

impl Shard {
    /// The record of a key, which may have expired.
    pub(super) fn get(&self, key: &RecordKey) -> Option<&Slot> {
        self.records.get(key)
    }

    /// The record of a key that has not expired.
    pub(super) fn alive(&mut self, key: &RecordKey, now: Duration) -> Option<&mut Slot> {
        self.records.get_mut(key).filter(|slot| slot.expires > now)
    }

    /// Puts a record in the place of whatever stands there.
    pub(super) fn put(&mut self, key: &RecordKey, bytes: Bytes, expires: Duration) -> Change {
        match self.records.entry(key.clone()) {
            Entry::Vacant(entry) => {
                self.next_id += 1;
                let slot = entry.insert(Slot {
                    bytes,
                    expires,
                    look: (expires, self.next_id),
                });
                let mut change = Change::default();
                change.add(slot);
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

    /// The record of this key expires before anybody would look.
    pub(super) fn look_sooner(&mut self, key: &RecordKey) {
        if let Some(slot) = self.records.get_mut(key) {
            self.next_id += 1;
            let at = slot.expires;
            slot.look = (at, self.next_id);
            self.look(key, at);
        }
    }

    /// Looks then, which has the last id.
    fn look(&mut self, key: &RecordKey, at: Duration) {
        let (id, key) = (self.next_id, key.clone());
        self.looks.push(Look { at, id, key });
        // Looks of records that went before their time.
        if self.looks.len() > 2 * self.records.len() + 64 {
            let records = &self.records;
            self.looks
                .retain(|look| (records.get(&look.key)).is_some_and(|slot| slot.look.1 == look.id));
        }
    }

    pub(super) fn remove(&mut self, key: &RecordKey) -> Change {
        let mut change = Change::default();
        if let Some(slot) = self.records.remove(key) {
            change.remove(&slot);
        }
        change
    }

    /// Drops what has expired, after at most so many looks.
    pub(super) fn sweep(&mut self, now: Duration, most: usize) -> Change {
        let mut change = Change::default();
        for _ in 0..most {
            if self.looks.peek().is_none_or(|look| look.at > now) {
                break;
            }
            let Some(look) = self.looks.pop() else { break };
            let Some(slot) = self.records.get_mut(&look.key) else {
                continue;
            };
            if slot.look.1 != look.id {
                continue;
            }
            if slot.expires <= now {
                change.remove(slot);
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

/// The soonest first, in a heap that gives the greatest first.
impl Ord for Look {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.id).cmp(&(self.at, self.id))
    }
}

impl PartialOrd for Look {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Look {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Look {}
