//! Notifications of keys on a cluster's nodes, also of moving slots. No call reads here: each watch is notified by the
//! server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idem_harness::{ClusterSetup, RedisServer};
use idem_runtime::clock::ManualClock;
use idem_runtime::store::author::Watch;
use idem_runtime::{Engine, Error, OnRunning};
use idem_tests::shop::{patiently, until};
use tokio::sync::oneshot;

use crate::client::{Client, hearers, store, told, untold};
use crate::setup::{Keys, other_than, primaries, shared};

/// Two processes, which know two nodes that are not on this port.
pub(crate) async fn two(cluster: &ClusterSetup, but: Option<u16>) -> (Client, Client) {
    let nodes = cluster.nodes().iter();
    let others = nodes.filter(|node| Some(node.port()) != but);
    let urls: Vec<_> = others.map(RedisServer::url).collect();
    (Client::of(&urls[0]).await, Client::of(&urls[1]).await)
}

/// Number of connections of all nodes that are subscribed to a key.
fn heard(cluster: &ClusterSetup, keys: &Keys, number: u64) -> i64 {
    let nodes = cluster.nodes().iter().filter(|node| node.is_running());
    let count = |node: &RedisServer| hearers(&mut node.connect(), "SHARDNUMSUB", &keys.key(number));
    nodes.map(count).sum()
}

/// Waits for a notification; watches again after a lapse.
pub(crate) async fn notified_or_redirected(
    client: &Client,
    watch: &mut Watch,
    keys: &Keys,
    number: u64,
) -> bool {
    told(watch).await;
    let lapsed = watch.has_lapsed();
    if lapsed {
        *watch = client.watch_in_the_end(&keys.key(number)).await;
    }
    lapsed
}

#[tokio::test]
async fn every_node_notifies_of_its_keys_until_unsubscribed() {
    let cluster = shared();
    let (mine, other) = two(&cluster, None).await;
    for node in primaries(&cluster) {
        let keys = Keys::on(&cluster, node, "told");
        let mut watch = mine.watch(&keys.key(1)).await;
        let mut beside = mine.watch(&keys.key(2)).await;
        assert_eq!(heard(&cluster, &keys, 1), 1);
        assert_eq!(hearers(&mut node.connect(), "SHARDNUMSUB", &keys.key(1)), 1);
        let claim = other.take(&keys.key(1)).await;
        assert!(untold(&mut watch));
        mine.0.poll(&keys.key(1)).await.unwrap();
        other.complete(&keys.key(1), &claim).await;
        told(&mut watch).await;
        assert!(untold(&mut watch) && untold(&mut beside));
        drop((watch, beside));
        until("the channels are given up", || {
            heard(&cluster, &keys, 1) + heard(&cluster, &keys, 2) == 0
        })
        .await;
    }
}

#[tokio::test]
async fn a_watcher_follows_a_slot_that_moves() {
    let cluster = shared();
    let (mine, other) = two(&cluster, None).await;
    let keys = Keys::new(&cluster, "followed");
    let source = cluster.node_of_slot(keys.slot);
    let stays = Keys::on(&cluster, source, "stays");
    let mut watch = mine.watch(&keys.key(1)).await;
    let mut beside = mine.watch(&stays.key(1)).await;
    for _ in 0..3 {
        let claim = other.take(&keys.key(1)).await;
        assert!(untold(&mut watch));
        let source = cluster.node_of_slot(keys.slot);
        cluster.migrate_slot(keys.slot, other_than(&cluster, source));
        assert!(notified_or_redirected(&mine, &mut watch, &keys, 1).await);
        assert_eq!(heard(&cluster, &keys, 1), 1);
        assert!(untold(&mut watch));
        other.complete(&keys.key(1), &claim).await;
        told(&mut watch).await;
        assert!(!watch.has_lapsed());
        cluster.cli(keys.key(1).name(), &["DEL", &keys.key(1).name()]);
    }
    // The subscription of the key that stayed was lost for a moment, and still works.
    told(&mut beside).await;
    assert!(!beside.has_lapsed());
    other.pass(&stays.key(1)).await;
    told(&mut beside).await;
    drop((watch, beside));
    until("the channels are given up", || {
        heard(&cluster, &keys, 1) + heard(&cluster, &stays, 1) == 0
    })
    .await;
}

#[tokio::test]
async fn an_end_on_the_target_of_a_migration_is_notified_after_it() {
    let cluster = shared();
    let (mine, other) = two(&cluster, None).await;
    let keys = Keys::new(&cluster, "far-side");
    let claim = other.take(&keys.key(1)).await;
    let mut watch = mine.watch(&keys.key(1)).await;
    let source = cluster.node_of_slot(keys.slot);
    let migration = cluster.begin_migration(keys.slot, other_than(&cluster, source));
    migration.move_key(keys.key(1).name());
    other.complete(&keys.key(1), &claim).await;
    migration.finish();
    assert!(notified_or_redirected(&mine, &mut watch, &keys, 1).await);
}

/// The server's unsolicited message is no reply to the oldest command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watched_key_of_a_moving_slot_is_notified() {
    let cluster = shared();
    let (mine, other) = two(&cluster, None).await;
    let keys = Keys::new(&cluster, "busy");
    let source = cluster.node_of_slot(keys.slot);
    let stays = Keys::on(&cluster, source, "busy-stays");
    // The node closes the subscriptions to these channels.
    let mut leaving = Vec::new();
    for number in 0..50 {
        leaving.push(mine.watch(&keys.key(number)).await);
    }
    let is_over = AtomicBool::new(false);
    let hammer = async {
        for number in 0.. {
            let key = stays.key(number % 7);
            let mut watch = mine.watch_in_the_end(&key).await;
            other.pass(&key).await;
            told(&mut watch).await;
            if is_over.load(Ordering::SeqCst) {
                break;
            }
        }
    };
    let moves = async {
        for _ in 0..4 {
            let (cluster, slot) = (Arc::clone(&cluster), keys.slot);
            let migration = tokio::task::spawn_blocking(move || {
                let source = cluster.node_of_slot(slot);
                cluster.migrate_slot(slot, other_than(&cluster, source));
            });
            migration.await.unwrap();
            for (number, watch) in (0..).zip(&mut leaving) {
                while !notified_or_redirected(&mine, watch, &keys, number).await {}
            }
        }
        is_over.store(true, Ordering::SeqCst);
    };
    tokio::join!(hammer, moves);
    for (number, watch) in (0..).zip(&mut leaving) {
        other.pass(&keys.key(number)).await;
        told(watch).await;
    }
}

/// Two engines; the clock of the second one stands still, so it never reads by its timer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_waits_gets_its_answer_although_the_slot_moves() {
    let cluster = shared();
    let urls = cluster.urls();
    let far = Engine::builder(store(&urls[1]).await).build().unwrap();
    let near = Engine::builder(store(&urls[0]).await)
        .clock(ManualClock::new())
        .on_running(OnRunning::Wait(Duration::from_mins(5)))
        .build()
        .unwrap();
    let (begun, has_begun) = oneshot::channel();
    let (end, ends) = oneshot::channel();
    let first = far.operation("cluster.waits").key(&1).run(async |_| {
        begun.send(()).unwrap();
        ends.await.unwrap();
        Ok::<_, Error>(100_u64)
    });
    let second = async {
        has_begun.await.unwrap();
        let name = primaries(&cluster).map(|node| node.cli(&["KEYS", "*:cluster.waits:*"]));
        let name = name.concat();
        let hears = |node: &RedisServer| {
            let reply = node.cli(&["PUBSUB", "SHARDNUMSUB", &name]);
            reply.lines().last() == Some("1")
        };
        let slot = cluster.slot_of(&name);
        let source = cluster.node_of_slot(slot);
        let call = near.operation("cluster.waits").key(&1);
        let call = call.run(async |_| -> Result<u64, Error> { panic!("its body ran twice") });
        let moves = async {
            until("it is subscribed", || hears(source)).await;
            cluster.migrate_slot(slot, other_than(&cluster, source));
            until("it is subscribed where the slot is now", || {
                hears(cluster.node_of_slot(slot))
            })
            .await;
            end.send(()).unwrap();
        };
        patiently("the second answer", async { tokio::join!(call, moves).0 }).await
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!((first, second), (Ok(100), Ok(100)));
}
