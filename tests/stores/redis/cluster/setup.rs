//! A cluster, keys in it, and statistics of its nodes.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use idem_harness::{ClusterSetup, RedisServer, RedisServerBuilder, TcpProxy};
use idem_runtime::key::{KeyDigest, Operation};
use idem_runtime::store::author::{Owner, Remains};
use idem_runtime::store::{RecordKey, Store};
use idem_tests::shop::{patiently, until};

/// On disk, so that there is no warning. The long time-out prevents a failover when a busy machine delays a node.
pub(crate) fn durable() -> ClusterSetup {
    let cluster = ClusterSetup::builder();
    cluster
        .node_timeout(Duration::from_mins(1))
        .nodes(RedisServerBuilder::append_only_every_second)
        .start()
}

/// A cluster for tests that leave every node up. Tests that run in one process at the same time share it.
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

    /// Keys of any slot, in a cluster of this one node.
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

/// A cluster in which one node is reachable only through a proxy.
pub(crate) struct Behind {
    pub(crate) cluster: ClusterSetup,
    pub(crate) proxy: TcpProxy,
    /// Keys in a slot of that node.
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
            let knows = |node: &RedisServer| {
                let slots = node.cli(&["CLUSTER", "SLOTS"]);
                slots.lines().any(|line| line == port)
            };
            nodes.iter().all(knows)
        })
        .await;
        // Prevents a failover of a node that is silent behind a proxy, or delayed by a suspended machine.
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

/// Sends commands until one is answered: the first ones after a change may fail.
pub(crate) async fn until_answered(store: &dyn Store, key: &RecordKey) {
    let asking = async {
        while let Err(error) = store
            .release(key, &Owner::random(), Remains::Request, None)
            .await
        {
            assert!(error.is_transient(), "{error}");
        }
        while let Err(error) = store.read(key).await {
            assert!(error.is_transient(), "{error}");
        }
    };
    patiently("an answer", asking).await;
}

/// Number of replies of a node with this error.
pub(crate) fn errors(node: &RedisServer, code: &str) -> u64 {
    let stats = node.info("errorstats", &format!("errorstat_{code}"));
    let count = stats.strip_prefix("count=");
    count.map_or(0, |count| count.parse().expect("a number"))
}

/// Number of replies of all nodes with this error.
pub(crate) fn all_errors(cluster: &ClusterSetup, code: &str) -> u64 {
    cluster.nodes().iter().map(|node| errors(node, code)).sum()
}

/// Number of executions of a command on a node, with scripts'.
pub(crate) fn calls(node: &RedisServer, command: &str) -> u64 {
    let stats = node.info("commandstats", &format!("cmdstat_{command}"));
    let calls = stats.strip_prefix("calls=");
    let count = calls.and_then(|calls| calls.split(',').next());
    count.map_or(0, |count| count.parse().expect("a number"))
}
