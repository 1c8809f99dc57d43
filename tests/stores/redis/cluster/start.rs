//! The state of a cluster when a store connects.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use idem_harness::{ClusterSetup, RedisServer, TcpProxy};
use idem_runtime::store::{Store, StoreErrorKind};
use idem_tests::shop::{
    Shop, assert_refused, assert_unreachable, cluster_is_up, connect, patient, patiently,
    persistent, until,
};

use crate::client::{Client, told};
use crate::setup::{Keys, other_than, primaries, shared, until_answered};

/// An address without a listener.
fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn seeds(seeds: &[String]) -> String {
    format!("redis+cluster://{}", seeds.join(","))
}

/// A claim and its end on each node, on own keys.
async fn works(cluster: &ClusterSetup, url: &str) {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let client = Client::of(url).await;
    for node in primaries(cluster) {
        let number = CALLS.fetch_add(1, Ordering::Relaxed);
        let key = Keys::on(cluster, node, "start").key(number);
        client.pass(&key).await;
        drop(client.watch(&key).await);
    }
}

#[tokio::test]
async fn one_seed_that_is_up_is_enough() {
    assert_unreachable(seeds(&[nowhere(), nowhere()]), "nothing listens").await;
    let cluster = shared();
    let mut all: Vec<_> = (0..9).map(|_| nowhere()).collect();
    all.push(cluster.addrs()[2].to_string());
    works(&cluster, &seeds(&all)).await;
}

#[tokio::test]
async fn a_replica_is_a_good_seed_and_no_reason_to_warn() {
    let cluster = shared();
    let replica = cluster.replica_of(cluster.node_of_slot(0));
    for url in [replica.url(), seeds(&[replica.addr().to_string()])] {
        works(&cluster, &url).await;
        let store = connect(&url).await.unwrap();
        let report = store.report();
        let findings = report.findings().into_iter();
        let primaries = findings.filter(|(_, finding)| finding.fact == "primary");
        assert_eq!(primaries.count(), 3);
        let replica = |warning: &String| warning.contains("Redis role");
        assert!(!store.warnings().iter().any(replica), "{url}: {report}");
    }
}

#[tokio::test]
async fn a_slot_without_an_owner_is_reported() {
    let server = RedisServer::builder()
        .arg("--cluster-enabled", "yes")
        .start();
    server.cli(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    server.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "8000"]);
    cluster_is_up(&server).await;
    let store = connect(server.url()).await.unwrap();
    let (mut had, mut missed) = (0, 0);
    for number in 0..40 {
        match store.read(&Keys::anywhere().key(number)).await {
            Ok(_) => had += 1,
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
                assert!(error.to_string().contains("slot"), "{error}");
                missed += 1;
            }
        }
    }
    assert!(had > 0 && missed > 0, "{had} {missed}");
    // Assigns the other slots.
    server.cli(&["CLUSTER", "ADDSLOTSRANGE", "8001", "16383"]);
    until("it has all slots", || {
        server
            .cli(&["CLUSTER", "INFO"])
            .contains("cluster_slots_ok:16384")
    })
    .await;
    let all = async {
        for number in 0..40 {
            while store.read(&Keys::anywhere().key(number)).await.is_err() {
                tokio::task::yield_now().await;
            }
        }
    };
    patiently("all slots", all).await;
}

/// As on a single server: the time of the node is known from the call before.
#[tokio::test]
async fn a_first_call_is_a_plain_command_and_a_script() {
    let server = RedisServer::builder()
        .arg("--cluster-enabled", "yes")
        .start();
    server.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    cluster_is_up(&server).await;
    let shop = Shop::open_with(&server.url(), patient, persistent).await;
    shop.pay("warm").await.unwrap();
    let mut monitor = server.monitor();
    shop.pay("a").await.unwrap();
    assert_eq!(monitor.names(), ["SET", "EVALSHA"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_one_primary_of_which_is_down_is_connected_to() {
    let cluster = ClusterSetup::builder()
        // Prevents a failover.
        .node_timeout(Duration::from_mins(1))
        .start();
    for slot in [0, 16_000] {
        let dead = cluster.node_of_slot(slot);
        let alive = Keys::on(&cluster, other_than(&cluster, dead), "alive");
        let port = dead.port();
        dead.kill();
        for node in cluster.nodes().iter().filter(|node| node.port() != port) {
            for url in [node.url(), seeds(&[node.addr().to_string()])] {
                let client = Client::of(&url).await;
                client.pass(&alive.key(1)).await;
            }
        }
        tokio::task::block_in_place(|| dead.restart());
        tokio::task::block_in_place(|| cluster.await_settled());
    }
}

#[tokio::test]
async fn each_evicting_node_is_refused() {
    let cluster = ClusterSetup::start();
    for node in primaries(&cluster) {
        node.cli(&["CONFIG", "SET", "maxmemory", "100mb"]);
        node.cli(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
        for url in cluster.urls() {
            assert_refused(&url, "volatile-lru").await;
        }
        node.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    }
}

#[tokio::test]
async fn nodes_with_and_without_a_name_are_found() {
    for (kind, name) in [
        ("unknown-endpoint", ""),
        ("hostname", ""),
        ("hostname", "localhost"),
    ] {
        let named = ["--cluster-announce-hostname", name];
        let cluster = ClusterSetup::builder().nodes(|node| {
            node.arg("--cluster-preferred-endpoint-type", kind)
                .args(named)
        });
        let cluster = cluster.start();
        works(&cluster, &cluster.urls()[0]).await;
        // A redirect may omit the address.
        let client = Client::of(&cluster.urls()[0]).await;
        let keys = Keys::new(&cluster, "nameless");
        client.pass(&keys.key(1)).await;
        let mut watch = client.watch(&keys.key(1)).await;
        let source = cluster.node_of_slot(keys.slot);
        cluster.migrate_slot(keys.slot, other_than(&cluster, source));
        until_answered(&*client.0, &keys.key(1)).await;
        client.pass(&keys.key(1)).await;
        told(&mut watch).await;
        let mut watch = client.watch_in_the_end(&keys.key(1)).await;
        client.pass(&keys.key(1)).await;
        told(&mut watch).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_slots_of_a_node_that_is_cut_off_are_not_used() {
    let cluster = ClusterSetup::start();
    // Like a node that is cut off: it has slots and a map, but knows no other node.
    let lonely = RedisServer::builder()
        .args(["--cluster-enabled", "yes"])
        .start();
    lonely.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16382"]);
    // It is the nearest node.
    let far = TcpProxy::start(cluster.addrs()[0]);
    far.delay(Duration::from_millis(20));
    let url = format!("redis+cluster://{},{}", lonely.addr(), far.addr());
    let shop = Shop::open_with(&url, |store| store, |engine| engine).await;
    shop.pay("a").await.unwrap();
}
