//! One part of a memory store: its records, and when they expire.

use std::cmp::Ordering;
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
    /// The record of a key that has not expired.
    pub(super) fn alive(&mut self, key: &RecordKey, now: Duration) -> Option<&mut Slot> {
        self.records.get_mut(key).filter(|slot| slot.expires > now)
    }

    /// Puts a record in the place of whatever stands there.
    pub(super) fn put(&mut self, key: &RecordKey, bytes: Bytes, expires: Duration) -> Change {
        let mut change = Change::default();
        if let Some(slot) = self.records.get_mut(key) {
            change.remove(slot);
            (slot.bytes, slot.expires) = (bytes, expires);
            change.add(slot);
            self.expires(key, expires);
            return change;
        }
        let slot = Slot {
            bytes,
            expires,
            look: self.look(key, expires),
        };
        change.add(&slot);
        self.records.insert(key.clone(), slot);
        change
    }

    /// A record is to expire at this moment.
    fn expires(&mut self, key: &RecordKey, expires: Duration) {
        let sooner = (self.records.get(key)).is_some_and(|slot| expires < slot.look.0);
        if sooner {
            let look = self.look(key, expires);
            if let Some(slot) = self.records.get_mut(key) {
                slot.look = look;
            }
        }
    }

    fn look(&mut self, key: &RecordKey, at: Duration) -> (Duration, u64) {
        self.next_id += 1;
        let id = self.next_id;
        let key = key.clone();
        self.looks.push(Look { at, id, key });
        // Looks of records that went before their time.
        if self.looks.len() > 2 * self.records.len() + 64 {
            let records = &self.records;
            self.looks.retain(|look| {
                look.id == id || (records.get(&look.key)).is_some_and(|slot| slot.look.1 == look.id)
            });
        }
        (at, id)
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
