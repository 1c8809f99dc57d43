//! Clusters in which a replica takes over.

use std::sync::Arc;
use std::time::Instant;

use idem_harness::ClusterSetup;
use idem_runtime::store::redis::Durability::{Acknowledged, Replicated};
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

fn stands_still(setup: &ClusterSetup, meanwhile: impl FnOnce()) -> Fault {
    let old = &setup.nodes()[HIT];
    old.pause();
    let at = Instant::now();
    setup.await_new_primary(0, old);
    let served = Instant::now();
    meanwhile();
    old.resume();
    Fault { at, served }
}

/// For a moment the returning old primary acknowledges writes from clients still connected to it.
fn stopped(setup: &ClusterSetup, _: &Traffic) -> Fault {
    stands_still(setup, || ())
}

/// In the end no client uses the old primary any more.
fn stopped_for_long(setup: &ClusterSetup, traffic: &Traffic) -> Fault {
    stands_still(setup, || traffic.go_on(calls() / 5))
}

fn asked(setup: &ClusterSetup, _: &Traffic) -> Fault {
    let replica = setup.replica_of(&setup.nodes()[HIT]);
    let at = Instant::now();
    setup.failover(replica);
    let served = Instant::now();
    Fault { at, served }
}

/// A fault after which no claim is granted before the group has settled.
fn settled(setup: &ClusterSetup, fault: Fault) -> Fault {
    setup.await_settled();
    let served = Instant::now();
    Fault { served, ..fault }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_is_killed() {
    run("cluster, killed", Acknowledged, Promise::Equal, killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_stands_still_and_comes_back() {
    let name = "cluster, stopped";
    run(name, Acknowledged, Promise::Equal, stopped_for_long).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_comes_back_at_once() {
    let name = "cluster, stopped for a moment";
    run(name, Acknowledged, Promise::Forgetful, stopped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_is_asked_for() {
    run("cluster, asked", Acknowledged, Promise::Kept, asked).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_is_killed_whose_writes_wait_for_its_replica() {
    let name = "cluster, replicated(1), killed";
    let fault = |setup: &ClusterSetup, traffic: &Traffic| settled(setup, killed(setup, traffic));
    run(name, Replicated(1), Promise::Kept, fault).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_comes_back_at_once_whose_writes_wait_for_its_replica() {
    let name = "cluster, replicated(1), stopped for a moment";
    let fault = |setup: &ClusterSetup, traffic: &Traffic| settled(setup, stopped(setup, traffic));
    run(name, Replicated(1), Promise::Kept, fault).await;
}
