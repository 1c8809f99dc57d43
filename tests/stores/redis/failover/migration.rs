//! Slots that move to another node and back.

use std::collections::HashMap;
use std::sync::Arc;

use idem_harness::ClusterSetup;
use idem_runtime::OnRunning;
use idem_runtime::store::redis::RedisStore;
use idem_tests::shop::{PATIENCE, patient, persistent};

use crate::load::{Load, Traffic};
use crate::plan;
use crate::report::{Promise, conclude};
use crate::shard::{check, shard, slot};

const SLOTS: usize = 100;
/// Slots in migration at once.
const BATCH: usize = 20;
/// Calls that are answered in each state of a migration.
const CALLS: usize = 100;

/// Slots with many keys, and all called keys.
fn crowded() -> (Vec<u16>, Vec<u64>) {
    let mut by_slot: HashMap<u16, Vec<u64>> = HashMap::new();
    for key in 0..plan::keys() as u64 * 10 {
        by_slot.entry(slot(key)).or_default().push(key);
    }
    let mut slots: Vec<_> = by_slot.iter().collect();
    slots.sort_by_key(|(slot, keys)| (usize::MAX - keys.len(), **slot));
    let keys = slots.iter().flat_map(|(_, keys)| keys.iter().copied());
    let keys = keys.take(plan::keys()).collect();
    let slots = slots.iter().take(SLOTS).map(|(slot, _)| **slot);
    (slots.collect(), keys)
}

/// Moves each slot by so many nodes, during calls.
fn migrate(setup: &ClusterSetup, slots: &[u16], by: usize, traffic: &Traffic) {
    for batch in slots.chunks(BATCH) {
        let moving = batch.iter().map(|slot| {
            let node = setup.node_of_slot(*slot).port();
            let mut nodes = setup.nodes()[..3].iter();
            let from = nodes
                .position(|candidate| candidate.port() == node)
                .unwrap();
            setup.begin_migration(*slot, &setup.nodes()[(from + by) % 3])
        });
        let moving: Vec<_> = moving.collect();
        traffic.go_on(CALLS);
        for slot in &moving {
            slot.move_keys(3);
        }
        traffic.go_on(CALLS);
        // One by one, because nodes that take slots at the same time assign the same epoch.
        for slot in moving {
            slot.finish();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_cost_no_call_an_error() {
    let _seat = crate::seat().await;
    let setup = Arc::new(
        tokio::task::spawn_blocking(ClusterSetup::start)
            .await
            .unwrap(),
    );
    let (slots, keys) = crowded();
    check(&setup, &keys);
    let mut shards = vec![Vec::new(); 2];
    for key in &keys {
        shards[usize::from(!slots.contains(&slot(*key)))].push(*key);
    }
    assert!(slots.iter().any(|slot| shard(*slot) != shard(slots[0])));
    // No server fails, so a refusal is an error, however busy the machine is.
    let store = patient(RedisStore::builder(setup.urls()[0].clone()));
    let settings = |engine| persistent(engine).on_running(OnRunning::Wait(PATIENCE));
    let load = Load::start(shards, store, settings).await;
    let (traffic, members) = (load.traffic(), Arc::clone(&setup));
    let nemesis = tokio::task::spawn_blocking(move || {
        migrate(&members, &slots, 1, &traffic);
        migrate(&members, &slots, 2, &traffic);
    });
    nemesis.await.unwrap();
    let shared = load.finish().await;
    conclude("slots move", Promise::Kept, &shared, None);
    assert_eq!(shared.journal.refused().len(), 0);
}
