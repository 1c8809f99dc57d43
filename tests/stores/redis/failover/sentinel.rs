//! Sentinels that promote another primary.

use std::sync::Arc;
use std::time::{Duration, Instant};

use idem_harness::SentinelSetup;
use idem_runtime::store::redis::Durability::{Acknowledged, Replicated};
use idem_runtime::store::redis::{Durability, RedisStore};
use idem_tests::sentinel_url;

use crate::load::{Load, Traffic};
use crate::plan::{calls, keys};
use crate::recovery::Fault;
use crate::report::{Promise, judge};

/// Runs the load; after two fifths of it causes the fault.
async fn run(
    name: &str,
    durability: Durability,
    promise: Promise,
    fault: impl FnOnce(&SentinelSetup, &Traffic) -> Fault + Send + 'static,
) {
    let _seat = crate::seat().await;
    // A server delayed by a busy machine must not cause a failover.
    let setup = SentinelSetup::builder().down_after(Duration::from_secs(3));
    let setup = tokio::task::spawn_blocking(|| setup.start());
    let setup = Arc::new(setup.await.unwrap());
    let store = RedisStore::builder(sentinel_url(&setup)).durability(durability);
    let keys = (0..keys() as u64).collect();
    let load = Load::start(vec![keys], store).await;
    load.shared().answered(calls() * 2 / 5).await;
    let (members, traffic) = (Arc::clone(&setup), load.traffic());
    let fault = tokio::task::spawn_blocking(move || {
        let fault = fault(&members, &traffic);
        members.await_settled();
        fault
    });
    let fault = fault.await.unwrap();
    let shared = load.finish().await;
    judge(name, promise, fault, &shared, |_| true);
}

fn killed(setup: &SentinelSetup, _: &Traffic) -> Fault {
    let old = setup.kill_primary();
    let at = Instant::now();
    setup.await_new_primary(old);
    let served = Instant::now();
    old.restart();
    Fault { at, served }
}

fn stands_still(setup: &SentinelSetup, meanwhile: impl FnOnce()) -> Fault {
    let old = setup.primary();
    old.pause();
    let at = Instant::now();
    setup.await_new_primary(old);
    let served = Instant::now();
    meanwhile();
    old.resume();
    Fault { at, served }
}

/// For a moment the returning old primary acknowledges writes from clients still connected to it.
fn stopped(setup: &SentinelSetup, _: &Traffic) -> Fault {
    stands_still(setup, || ())
}

/// In the end no client uses the old primary any more.
fn stopped_for_long(setup: &SentinelSetup, traffic: &Traffic) -> Fault {
    stands_still(setup, || traffic.go_on(calls() / 5))
}

fn asked(setup: &SentinelSetup, _: &Traffic) -> Fault {
    let at = Instant::now();
    setup.failover();
    let served = Instant::now();
    Fault { at, served }
}

/// A fault after which no claim is granted before the group has settled.
fn settled(setup: &SentinelSetup, fault: Fault) -> Fault {
    setup.await_settled();
    let served = Instant::now();
    Fault { served, ..fault }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_is_killed() {
    run("sentinel, killed", Acknowledged, Promise::Equal, killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_stands_still_and_comes_back() {
    let name = "sentinel, stopped";
    run(name, Acknowledged, Promise::Equal, stopped_for_long).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_comes_back_at_once() {
    let name = "sentinel, stopped for a moment";
    run(name, Acknowledged, Promise::Forgetful, stopped).await;
}

/// Sentinels do not stop the old primary's writes while they promote another server: writes acknowledged meanwhile
/// are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_is_asked_for() {
    run("sentinel, asked", Acknowledged, Promise::Forgetful, asked).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_is_killed_whose_writes_wait_for_a_replica() {
    let name = "sentinel, replicated(1), killed";
    run(name, Replicated(1), Promise::Kept, killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_stands_still_whose_writes_wait_for_a_replica() {
    let name = "sentinel, replicated(1), stopped";
    run(name, Replicated(1), Promise::Kept, stopped).await;
}

/// With one replica promoted, only the other is left to confirm the old primary's writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_is_asked_for_and_writes_wait_for_all_replicas() {
    let name = "sentinel, replicated(2), asked";
    // No claim is granted until both others follow the new primary.
    let fault = |setup: &SentinelSetup, traffic: &Traffic| settled(setup, asked(setup, traffic));
    run(name, Replicated(2), Promise::Kept, fault).await;
}
