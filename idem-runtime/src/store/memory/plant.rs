//! Direct access to the bytes of a memory store, for tests.

use std::time::Duration;

use bytes::Bytes;

use super::MemoryStore;
use crate::identity::operation::RecordKey;

impl MemoryStore {
    /// Stores raw bytes under a key, for tests of unreadable records.
    pub fn plant(&self, key: &RecordKey, bytes: Bytes, life: Duration) {
        let now = self.0.clock.now();
        let mut shard = self.0.shard(key);
        let change = shard.put(key, bytes, now + life);
        self.0.count(&mut shard, change);
    }

    /// The raw bytes under a key, readable or not.
    #[must_use]
    pub fn peek(&self, key: &RecordKey) -> Option<Bytes> {
        let now = self.0.clock.now();
        let mut shard = self.0.shard(key);
        shard.alive(key, now).map(|slot| slot.bytes.clone())
    }
}
