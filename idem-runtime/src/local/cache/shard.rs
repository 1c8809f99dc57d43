//! A part of the cache, under one lock.

use std::collections::HashMap;
use std::time::Duration;

use super::{Found, Life, LocalCacheStats, Permit};
use crate::env::digest_hasher::Spread;
use crate::identity::fingerprint::Fingerprint;
use crate::identity::key::KeyDigest;
use crate::identity::operation::{Operation, RecordKey};
use crate::record::Record;

/// What an entry costs besides its record.
const OVERHEAD_BYTES: usize = 200;

pub(super) struct Shard {
    places: HashMap<KeyDigest, usize, Spread>,
    /// In no order; each is looked at by the hand in turn.
    entries: Vec<Entry>,
    /// Where the next that is to go is looked for (CLOCK: one that was used since is passed over once).
    hand: usize,
    bytes: usize,
    most_entries: usize,
    most_bytes: usize,
    /// How often what is kept may have become wrong. A permit that is older is void.
    changes: u64,
    /// What others take back is heard, or never will be.
    open: bool,
    /// Resolutions by this engine that are on their way.
    taking: usize,
    hits: u64,
    misses: u64,
    evictions: u64,
    invalidations: u64,
}

struct Entry {
    key: KeyDigest,
    operation: Operation,
    record: Record,
    life: Life,
    /// Until when this answers.
    until: Duration,
    used: bool,
}

impl Entry {
    fn cost(&self) -> usize {
        cost(&self.record)
    }
}

fn cost(record: &Record) -> usize {
    record.as_bytes().len() + OVERHEAD_BYTES
}

impl Shard {
    pub(super) fn new(most_entries: usize, most_bytes: usize) -> Self {
        Self {
            places: HashMap::default(),
            entries: Vec::new(),
            hand: 0,
            bytes: 0,
            most_entries,
            most_bytes,
            changes: 0,
            open: false,
            taking: 0,
            hits: 0,
            misses: 0,
            evictions: 0,
            invalidations: 0,
        }
    }

    /// `dated`: what is found has to say exactly how old it is.
    pub(super) fn look(
        &mut self,
        key: &RecordKey,
        asked: Fingerprint,
        dated: bool,
        now: Duration,
    ) -> Found {
        if let Some(&place) = self.places.get(key.digest()) {
            let entry = &mut self.entries[place];
            // Another fingerprint is for the store to refuse.
            if now < entry.until
                && entry.operation == *key.operation()
                && (entry.life.dated || !dated)
                && entry.record.header.fingerprint.matches(asked)
            {
                entry.used = true;
                self.hits += 1;
                let Life { left, sent, .. } = entry.life;
                return Found::Answer {
                    record: entry.record.clone(),
                    left: left.saturating_sub(now.saturating_sub(sent)),
                };
            }
            if now >= entry.until {
                self.remove(place);
            }
        }
        self.misses += 1;
        Found::Nothing(self.permit())
    }

    pub(super) fn permit(&self) -> Option<Permit> {
        (self.open && self.taking == 0).then_some(Permit(self.changes))
    }

    /// Keeps a record that may be used until then.
    pub(super) fn keep(
        &mut self,
        Permit(changes): Permit,
        key: &RecordKey,
        record: &Record,
        life: Life,
        until: Duration,
    ) {
        let cost = cost(record);
        if !self.open || changes != self.changes || cost > self.most_bytes {
            return;
        }
        if let Some(&place) = self.places.get(key.digest()) {
            if self.entries[place].life.sent > life.sent {
                return;
            }
            self.remove(place);
        }
        while self.entries.len() >= self.most_entries || self.bytes + cost > self.most_bytes {
            self.evict();
        }
        self.places.insert(*key.digest(), self.entries.len());
        self.bytes += cost;
        self.entries.push(Entry {
            key: *key.digest(),
            operation: key.operation().clone(),
            record: record.clone(),
            life,
            until,
            used: false,
        });
    }

    /// Removes the entry that the hand comes to first and that was not used since it was there last.
    fn evict(&mut self) {
        loop {
            if self.hand >= self.entries.len() {
                self.hand = 0;
            }
            let Some(entry) = self.entries.get_mut(self.hand) else {
                return;
            };
            if !std::mem::take(&mut entry.used) {
                break;
            }
            self.hand += 1;
        }
        self.evictions += 1;
        self.remove(self.hand);
    }

    fn remove(&mut self, place: usize) {
        let gone = self.entries.swap_remove(place);
        self.bytes -= gone.cost();
        self.places.remove(&gone.key);
        if let Some(moved) = self.entries.get(place) {
            self.places.insert(moved.key, place);
        }
    }

    /// An answer was taken back.
    pub(super) fn forget(&mut self, key: &KeyDigest) {
        self.changes += 1;
        self.invalidations += 1;
        if let Some(&place) = self.places.get(key) {
            self.remove(place);
        }
    }

    /// This engine is about to take an answer back.
    pub(super) fn take(&mut self, key: &KeyDigest) {
        self.taking += 1;
        self.forget(key);
    }

    /// It has done so, or nobody will know.
    pub(super) fn taken(&mut self) {
        self.taking -= 1;
    }

    pub(super) fn open(&mut self) {
        self.close();
        self.open = true;
    }

    pub(super) fn close(&mut self) {
        self.open = false;
        self.changes += 1;
        self.places.clear();
        self.entries.clear();
        self.bytes = 0;
    }

    pub(super) fn count(&self, stats: &mut LocalCacheStats) {
        stats.entries += self.entries.len();
        stats.bytes += self.bytes;
        stats.hits += self.hits;
        stats.misses += self.misses;
        stats.evictions += self.evictions;
        stats.invalidations += self.invalidations;
        stats.is_open |= self.open;
    }
}
