//! A slot in migration from one cluster node to another.

use crate::{ClusterSetup, RedisServer, Reply};

/// A slot that is being moved, see [`ClusterSetup::begin_migration`].
///
/// Until [`finish`](SlotMigration::finish) the source answers for the keys that it still has and
/// redirects clients to the target with `ASK` for all others. Dropped without that, the slot stays
/// half-way.
#[derive(Debug)]
#[must_use = "the slot stays half-way until `finish`"]
pub struct SlotMigration<'a> {
    cluster: &'a ClusterSetup,
    slot: u16,
    source: &'a RedisServer,
    target: &'a RedisServer,
}

impl<'a> SlotMigration<'a> {
    pub(crate) fn begin(
        cluster: &'a ClusterSetup,
        slot: u16,
        source: &'a RedisServer,
        target: &'a RedisServer,
    ) -> Self {
        // The target first: it must import before the source redirects the first client.
        ClusterSetup::set_slot(target, slot, "IMPORTING", source);
        ClusterSetup::set_slot(source, slot, "MIGRATING", target);
        Self {
            cluster,
            slot,
            source,
            target,
        }
    }

    /// The node that has the slot.
    pub fn source(&self) -> &'a RedisServer {
        self.source
    }

    /// The node that the slot moves to.
    pub fn target(&self) -> &'a RedisServer {
        self.target
    }

    /// Moves up to `count` keys in any order. Returns the number of keys found.
    pub fn move_keys(&self, count: usize) -> usize {
        let (slot, count) = (self.slot.to_string(), count.to_string());
        let list = ["CLUSTER", "GETKEYSINSLOT", &slot, &count];
        let Reply::Array(keys) = self.source.reply(&list) else {
            panic!("the source has no list of the keys in slot {slot}");
        };
        let keys: Vec<_> = keys.iter().filter_map(Reply::as_bytes).collect();
        if !keys.is_empty() {
            self.migrate(&keys);
        }
        keys.len()
    }

    /// Moves one key, if the source has it.
    pub fn move_key(&self, key: impl AsRef<[u8]>) {
        self.migrate(&[key.as_ref()]);
    }

    /// Moves all remaining keys and makes the target the owner. Waits until every node has the new map.
    pub fn finish(self) {
        while self.move_keys(100) > 0 {}
        self.cluster.hand_over(self.slot, self.source, self.target);
    }

    fn migrate(&self, keys: &[&[u8]]) {
        let port = self.target.port().to_string();
        let (user, secret) = self.cluster.credentials();
        let words = [
            "MIGRATE",
            "127.0.0.1",
            &port,
            "",
            "0",
            "20000",
            "AUTH2",
            user,
            secret,
            "KEYS",
        ];
        let words = words.iter().map(|word| word.as_bytes());
        let command: Vec<_> = words.chain(keys.iter().copied()).collect();
        let reply = self.source.reply(&command);
        if let Some(error) = reply.as_error() {
            panic!("keys of slot {} do not move: {error}", self.slot);
        }
    }
}
