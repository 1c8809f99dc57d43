//! A part of the cache, under one lock.

use std::collections::HashMap;
use std::time::Duration;

use super::stats::LocalCacheStats;
use crate::env::digest_hasher::Spread;
use crate::identity::fingerprint::Fingerprint;
use crate::identity::key::KeyDigest;
use crate::identity::operation::{Operation, RecordKey};
use crate::record::Record;

/// The cost of an entry besides its record.
const OVERHEAD_BYTES: usize = 200;

/// The right to cache the reply to a later operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permit(u64);

/// The life of a record, as the store reported it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    /// How long it is still kept, from `sent` on.
    pub(crate) left: Duration,
    /// When the operation was sent that returned this.
    pub(crate) sent: Duration,
    /// Whether `left` is exact; if not, the record is older than it seems, or nearly so.
    pub(crate) dated: bool,
}

/// The result of a lookup.
pub(crate) enum Found {
    Answer {
        record: Record,
        left: Duration,
    },
    /// `None`: nothing may be cached for now.
    Nothing(Option<Permit>),
}

pub(super) struct CacheShard {
    places: HashMap<KeyDigest, usize, Spread>,
    /// In no order; the hand visits each in turn.
    entries: Vec<CachedAnswer>,
    /// The start of the search for the next entry to evict.
    ///
    /// CLOCK: an entry that was used since is skipped once.
    hand: usize,
    bytes: usize,
    most_entries: usize,
    most_bytes: usize,
    /// How often the cached answers may have become stale. An older permit is void.
    changes: u64,
    /// Notifications of withdrawals by other engines arrive, or never will.
    open: bool,
    /// Resolutions by this engine that are in flight.
    taking: usize,
    hits: u64,
    misses: u64,
    evictions: u64,
    invalidations: u64,
}

struct CachedAnswer {
    key: KeyDigest,
    operation: Operation,
    record: Record,
    life: Life,
    /// When this entry expires.
    until: Duration,
    used: bool,
}

impl CachedAnswer {
    fn cost(&self) -> usize {
        cost(&self.record)
    }
}

fn cost(record: &Record) -> usize {
    record.as_bytes().len() + OVERHEAD_BYTES
}

impl CacheShard {
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

    /// `dated`: the age of the answer must be exact.
    pub(super) fn get(
        &mut self,
        key: &RecordKey,
        fingerprint: Fingerprint,
        dated: bool,
        now: Duration,
    ) -> Found {
        if let Some(&place) = self.places.get(key.digest()) {
            let entry = &mut self.entries[place];
            // The store has to refuse another fingerprint.
            if now < entry.until
                && entry.operation == *key.operation()
                && (entry.life.dated || !dated)
                && entry.record.header.fingerprint.matches(fingerprint)
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

    /// Caches a record that may be used until `until`.
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
        self.entries.push(CachedAnswer {
            key: *key.digest(),
            operation: key.operation().clone(),
            record: record.clone(),
            life,
            until,
            used: false,
        });
    }

    /// Evicts the next entry unused since the hand's last visit.
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

    /// Drops a withdrawn answer.
    pub(super) fn forget(&mut self, key: &KeyDigest) {
        self.changes += 1;
        self.invalidations += 1;
        if let Some(&place) = self.places.get(key) {
            self.remove(place);
        }
    }

    /// Closes the shard while this engine withdraws an answer.
    pub(super) fn take(&mut self, key: &KeyDigest) {
        self.taking += 1;
        self.forget(key);
    }

    /// The withdrawal has ended, or its result will never be known.
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
