//! Clusters in which a replica takes over.

use std::sync::Arc;
use std::time::Instant;

use idem_harness::ClusterSetup;
use idem_runtime::store::redis::{Durability, RedisStore};

use crate::load::{Load, Traffic};
use crate::plan::{calls, keys};
use crate::recovery::Fault;
use crate::report::{Promise, judge, unharmed};
use crate::shard::{check, shard, slot};

/// The shard whose primary fails.
const HIT: usize = 0;

/// Runs the load; after two fifths of it causes the fault on the first primary.
async fn run(
    name: &str,
    durability: Durability,
    promise: Promise,
    fault: impl FnOnce(&ClusterSetup, &Traffic) -> Fault + Send + 'static,
) {
    let _seat = crate::seat().await;
    // By default a cluster with unserved slots refuses commands for the other slots as well.
    let start = || {
        let nodes = ClusterSetup::builder();
        nodes
            .nodes(|node| node.arg("--cluster-require-full-coverage", "no"))
            .start()
    };
    let setup = Arc::new(tokio::task::spawn_blocking(start).await.unwrap());
    let mut shards = vec![Vec::new(); 3];
    for key in 0..keys() as u64 {
        shards[shard(slot(key))].push(key);
    }
    check(&setup, &shards[HIT]);
    let store = RedisStore::builder(setup.urls()[1].clone()).durability(durability);
    let load = Load::start(shards, store).await;
    load.shared().answered(calls() * 2 / 5).await;
    let (members, traffic) = (Arc::clone(&setup), load.traffic());
    let fault = tokio::task::spawn_blocking(move || {
        let fault = fault(&members, &traffic);
        members.await_settled();
        fault
    });
    let fault = fault.await.unwrap();
    let shared = load.finish().await;
    judge(name, promise, fault, &shared, |shard| shard == HIT);
    unharmed(name, fault, &shared, |shard| shard == HIT);
}

fn killed(setup: &ClusterSetup, _: &Traffic) -> Fault {
    let old = &setup.nodes()[HIT];
    old.kill();
    let at = Instant::now();
    setup.await_new_primary(0, old);
    let served = Instant::now();
    old.restart();
    Fault { at, served }
}

/// For a moment the returning old primary acknowledges writes from clients still connected to it.
fn stopped(setup: &ClusterSetup, _: &Traffic) -> Fault {
    let old = &setup.nodes()[HIT];
    old.pause();
    let at = Instant::now();
    setup.await_new_primary(0, old);
    let served = Instant::now();
    old.resume();
    Fault { at, served }
}

fn stopped_for_long(setup: &ClusterSetup, traffic: &Traffic) -> Fault {
    let old = &setup.nodes()[HIT];
    old.pause();
    let at = Instant::now();
    setup.await_new_primary(0, old);
    let served = Instant::now();
    // By then no client uses the old primary any more.
    traffic.go_on(calls() / 5);
    old.resume();
    Fault { at, served }
}

fn asked(setup: &ClusterSetup, _: &Traffic) -> Fault {
    let replica = setup.replica_of(&setup.nodes()[HIT]);
    let at = Instant::now();
    setup.failover(replica);
    let served = Instant::now();
    Fault { at, served }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_is_killed() {
    let name = "cluster, killed";
    run(name, Durability::Acknowledged, Promise::Equal, killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_stands_still_and_comes_back() {
    let name = "cluster, stopped";
    run(
        name,
        Durability::Acknowledged,
        Promise::Equal,
        stopped_for_long,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_comes_back_at_once() {
    let name = "cluster, stopped for a moment";
    run(name, Durability::Acknowledged, Promise::Forgetful, stopped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_is_asked_for() {
    let name = "cluster, asked";
    run(name, Durability::Acknowledged, Promise::Kept, asked).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_is_killed_whose_writes_wait_for_its_replica() {
    let name = "cluster, replicated(1), killed";
    run(
        name,
        Durability::Replicated(1),
        Promise::Kept,
        |setup, traffic| {
            let killed = killed(setup, traffic);
            // No claim is granted until the old primary is the replica of the new one.
            setup.await_settled();
            let served = Instant::now();
            Fault { served, ..killed }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_comes_back_at_once_whose_writes_wait_for_its_replica() {
    let name = "cluster, replicated(1), stopped for a moment";
    run(
        name,
        Durability::Replicated(1),
        Promise::Kept,
        |setup, traffic| {
            let stopped = stopped(setup, traffic);
            setup.await_settled();
            let served = Instant::now();
            Fault { served, ..stopped }
        },
    )
    .await;
}
