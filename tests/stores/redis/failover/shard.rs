//! Slots and shards of the keys' records.

use idem_harness::ClusterSetup;
use idem_runtime::__private::KeyBuilder;
use idem_runtime::key::Operation;
use idem_runtime::store::RecordKey;

pub(crate) const PREFIX: &str = "failover";
pub(crate) const OPERATION: &str = "failover.pay";
const SLOTS: u16 = 16_384;

/// The name of a key's record.
pub(crate) fn record(key: u64) -> String {
    let digest = KeyBuilder::new(OPERATION, 1024).key(&key).unwrap();
    RecordKey::new(PREFIX.into(), Operation::new(OPERATION), digest).name()
}

/// The slot of a key's record.
pub(crate) fn slot(key: u64) -> u16 {
    let record = record(key);
    let tag = record
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    let hashed = tag.map_or(record.as_str(), |(tag, _)| tag);
    crc16::State::<crc16::XMODEM>::calculate(hashed.as_bytes()) % SLOTS
}

/// Index of the first three nodes that has a slot at first.
pub(crate) fn shard(slot: u16) -> usize {
    let first = |shard: u32| u32::from(SLOTS) * shard / 3;
    (0..3)
        .rev()
        .find(|shard| u32::from(slot) >= first(*shard))
        .unwrap_or(0) as usize
}

/// Panics unless the cluster computes the same slots.
pub(crate) fn check(cluster: &ClusterSetup, keys: &[u64]) {
    for key in keys.iter().take(20) {
        let slot = slot(*key);
        assert_eq!(cluster.slot_of(record(*key)), slot);
        let node = &cluster.nodes()[shard(slot)];
        assert_eq!(cluster.node_of_slot(slot).port(), node.port());
    }
}
