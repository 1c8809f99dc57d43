//! Notifications of keys while their node is replaced, dies or comes back.

use idem_harness::ClusterSetup;
use idem_tests::shop::patiently;

use crate::client::{Client, hearers, told, untold};
use crate::setup::{Behind, Keys, until_answered};
use crate::waiting::{notified_or_redirected, two};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_are_notified_after_a_failover_by_hand() {
    let cluster = ClusterSetup::start();
    let keys = Keys::new(&cluster, "handed-over");
    let old = cluster.node_of_slot(keys.slot);
    let (mine, other) = two(&cluster, Some(old.port())).await;
    let claim = other.take(&keys.key(1)).await;
    let mut watch = mine.watch(&keys.key(1)).await;
    tokio::task::block_in_place(|| cluster.failover(cluster.replica_of(old)));
    let finish = async {
        other.complete(&keys.key(1), &claim).await;
    };
    patiently("the completion", finish).await;
    // From any node that is notified. The first notification may be that the watch has lapsed.
    notified_or_redirected(&mine, &mut watch, &keys, 1).await;
    for _ in 0..5 {
        while !untold(&mut watch) {}
        cluster.cli(keys.key(1).name(), &["DEL", &keys.key(1).name()]);
        other.pass(&keys.key(1)).await;
        while notified_or_redirected(&mine, &mut watch, &keys, 1).await {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_are_notified_when_a_replica_takes_over() {
    let cluster = ClusterSetup::start();
    let keys = Keys::new(&cluster, "inherited");
    let old = cluster.node_of_slot(keys.slot);
    let (mine, other) = two(&cluster, Some(old.port())).await;
    let mut watch = mine.watch(&keys.key(1)).await;
    old.kill();
    told(&mut watch).await;
    let new = tokio::task::block_in_place(|| cluster.await_new_primary(keys.slot, old));
    let mut watch = mine.watch_in_the_end(&keys.key(1)).await;
    assert_eq!(hearers(&mut new.connect(), "SHARDNUMSUB", &keys.key(1)), 1);
    until_answered(&*other.0, &keys.key(1)).await;
    other.pass(&keys.key(1)).await;
    while notified_or_redirected(&mine, &mut watch, &keys, 1).await {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_watchers_of_a_silent_node_are_woken() {
    let behind = Behind::a_proxy().await;
    let Behind { proxy, keys, .. } = &behind;
    let urls = behind.other_urls();
    let mine = Client::hasty(&urls[0]).await;
    let other_keys = Keys::on(
        &behind.cluster,
        behind.cluster.node_of_slot(16_000),
        "other",
    );
    let mut watch = mine.watch_in_the_end(&keys.key(1)).await;
    let mut beside = mine.watch_in_the_end(&other_keys.key(1)).await;
    proxy.black_hole(true);
    // Silence is the only sign that no notification will arrive.
    tokio::task::block_in_place(|| proxy.wait_until(|seen| seen.swallowed_bytes > 0));
    patiently("the end of the silent watch", watch.changed()).await;
    assert!(watch.has_lapsed());
    let error = mine.try_watch(&keys.key(2)).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(untold(&mut beside), "its node is not silent");
    Client::of(&urls[1]).await.pass(&other_keys.key(1)).await;
    told(&mut beside).await;
    proxy.black_hole(false);
    let mut watch = mine.watch_in_the_end(&keys.key(1)).await;
    while !untold(&mut watch) {}
    Client::of(&urls[1]).await.pass(&keys.key(1)).await;
    while notified_or_redirected(&mine, &mut watch, keys, 1).await {}
}
