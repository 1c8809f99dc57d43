//! A cluster, keys in it, and what its nodes say.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use idem_harness::{ClusterSetup, RedisServer, RedisServerBuilder, TcpProxy};
use idem_runtime::store::{Owner, RecordKey, Remains, Store};
use idem_runtime::{KeyDigest, Operation};
use idem_tests::shop::{patiently, until};

/// On disk: nothing to warn about. Nobody takes over because a busy machine has kept a node waiting.
pub(crate) fn durable() -> ClusterSetup {
    let cluster = ClusterSetup::builder();
    cluster
        .node_timeout(Duration::from_mins(1))
        .nodes(RedisServerBuilder::append_only_every_second)
        .start()
}

/// A cluster for tests that leave every node up. Those that run in one process at the same time
/// share it.
pub(crate) fn shared() -> Arc<ClusterSetup> {
    static SHARED: Mutex<Weak<ClusterSetup>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let cluster = Arc::new(durable());
        *shared = Arc::downgrade(&cluster);
        cluster
    })
}

/// Keys of one slot: that of this tag.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    tag: String,
    pub(crate) slot: u16,
}

impl Keys {
    pub(crate) fn new(cluster: &ClusterSetup, tag: &str) -> Self {
        Self {
            tag: format!("idem:{{{tag}}}"),
            slot: cluster.slot_of(tag),
        }
    }

    /// Keys of any slots, of a cluster of this one node.
    pub(crate) fn anywhere() -> Self {
        Self {
            tag: "idem".to_owned(),
            slot: 0,
        }
    }

    /// Keys of a slot that this node has.
    pub(crate) fn on(cluster: &ClusterSetup, node: &RedisServer, tag: &str) -> Self {
        (0..1_000)
            .map(|number| Self::new(cluster, &format!("{tag}{number}")))
            .find(|keys| cluster.node_of_slot(keys.slot).port() == node.port())
            .expect("a node has a third of the slots")
    }

    pub(crate) fn key(&self, number: u64) -> RecordKey {
        let mut digest = [3; 32];
        digest[24..].copy_from_slice(&number.to_be_bytes());
        let digest = KeyDigest::from_bytes(digest);
        RecordKey::new(self.tag.clone().into(), Operation::new("moves"), digest)
    }
}

/// The three primaries, in the order of their slots at the start.
pub(crate) fn primaries(cluster: &ClusterSetup) -> [&RedisServer; 3] {
    [0, 8_000, 16_000].map(|slot| cluster.node_of_slot(slot))
}

/// Any other primary.
pub(crate) fn other_than<'a>(cluster: &'a ClusterSetup, node: &RedisServer) -> &'a RedisServer {
    let mut others = primaries(cluster).into_iter();
    let other = others.find(|other| other.port() != node.port());
    other.expect("there are three")
}

/// A cluster one node of which is reached through a proxy alone.
pub(crate) struct Behind {
    pub(crate) cluster: ClusterSetup,
    pub(crate) proxy: TcpProxy,
    /// Of a slot of that node.
    pub(crate) keys: Keys,
}

impl Behind {
    pub(crate) async fn a_proxy() -> Self {
        let cluster = ClusterSetup::builder()
            .node_timeout(Duration::from_secs(10))
            .start();
        let node = cluster.node_of_slot(0);
        let keys = Keys::on(&cluster, node, "proxied");
        let proxy = TcpProxy::start(node.addr());
        let port = proxy.addr().port().to_string();
        node.cli(&["CONFIG", "SET", "cluster-announce-port", &port]);
        let nodes = cluster.nodes();
        until("every node names the proxy", || {
            let knows = |node: &RedisServer| node.cli(&["CLUSTER", "SLOTS"]).contains(&port);
            nodes.iter().all(knows)
        })
        .await;
        // Nobody takes over for a node behind a proxy that is silent, or on a machine that stands still.
        cluster.set_node_timeout(Duration::from_mins(1));
        Self {
            cluster,
            proxy,
            keys,
        }
    }

    /// The nodes without the one behind the proxy.
    pub(crate) fn other_urls(&self) -> Vec<String> {
        self.cluster.urls().into_iter().skip(1).collect()
    }
}

/// Sends commands until one is answered: the first ones after a change may find it out.
pub(crate) async fn until_answered(store: &dyn Store, key: &RecordKey) {
    let asking = async {
        while let Err(error) = store.release(key, &Owner::random(), Remains::Request).await {
            assert!(error.is_transient(), "{error}");
        }
        while let Err(error) = store.read(key).await {
            assert!(error.is_transient(), "{error}");
        }
    };
    patiently("an answer", asking).await;
}

/// How often a node has answered with this error.
pub(crate) fn errors(node: &RedisServer, code: &str) -> u64 {
    let stats = node.cli(&["INFO", "errorstats"]);
    let start = format!("errorstat_{code}:count=");
    let count = stats.lines().find_map(|line| line.strip_prefix(&start));
    count.map_or(0, |count| count.trim_end().parse().expect("a number"))
}

/// How often all nodes together have answered with this error.
pub(crate) fn all_errors(cluster: &ClusterSetup, code: &str) -> u64 {
    cluster.nodes().iter().map(|node| errors(node, code)).sum()
}

/// How often clients and scripts had a node do this.
pub(crate) fn calls(node: &RedisServer, command: &str) -> u64 {
    let stats = node.cli(&["INFO", "commandstats"]);
    let start = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&start));
    let count = line.and_then(|line| line.split(',').next());
    count.map_or(0, |count| count.parse().expect("a number"))
}
