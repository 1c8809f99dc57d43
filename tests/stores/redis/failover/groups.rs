//! Groups in which another server is promoted: clusters, and servers under Sentinel.

use std::sync::Arc;
use std::time::{Duration, Instant};

use idem_harness::{ClusterSetup, RedisServer, SentinelSetup};
use idem_runtime::store::redis::Durability::{Acknowledged, Replicated};
use idem_runtime::store::redis::{Durability, RedisStore};
use idem_tests::sentinel_url;

use crate::load::{Load, Traffic};
use crate::plan::{calls, keys};
use crate::report::{Fault, Promise, judge};
use crate::shard::{check, shard, slot};

/// The shard whose primary fails.
const HIT: usize = 0;

trait Group: Send + Sync + 'static {
    const NAME: &'static str;

    fn start() -> Self;
    fn url(&self) -> String;
    /// The keys of each shard.
    fn shards(&self) -> Vec<Vec<u64>>;
    fn primary(&self) -> &RedisServer;
    fn await_new_primary(&self, old: &RedisServer);
    fn await_settled(&self);
    fn fail_over(&self);
}

impl Group for ClusterSetup {
    const NAME: &'static str = "cluster";

    fn start() -> Self {
        // By default a cluster with unserved slots refuses commands for the other slots as well.
        let nodes = Self::builder();
        nodes
            .nodes(|node| node.arg("--cluster-require-full-coverage", "no"))
            .start()
    }

    fn url(&self) -> String {
        self.urls().swap_remove(1)
    }

    fn shards(&self) -> Vec<Vec<u64>> {
        let mut shards = vec![Vec::new(); 3];
        for key in 0..keys() as u64 {
            shards[shard(slot(key))].push(key);
        }
        check(self, &shards[HIT]);
        shards
    }

    fn primary(&self) -> &RedisServer {
        &self.nodes()[HIT]
    }

    fn await_new_primary(&self, old: &RedisServer) {
        Self::await_new_primary(self, 0, old);
    }

    fn await_settled(&self) {
        Self::await_settled(self);
    }

    fn fail_over(&self) {
        self.failover(self.replica_of(self.primary()));
    }
}

impl Group for SentinelSetup {
    const NAME: &'static str = "sentinel";

    fn start() -> Self {
        // A server delayed by a busy machine must not cause a failover.
        Self::builder().down_after(Duration::from_secs(3)).start()
    }

    fn url(&self) -> String {
        sentinel_url(self)
    }

    fn shards(&self) -> Vec<Vec<u64>> {
        vec![(0..keys() as u64).collect()]
    }

    fn primary(&self) -> &RedisServer {
        Self::primary(self)
    }

    fn await_new_primary(&self, old: &RedisServer) {
        Self::await_new_primary(self, old);
    }

    fn await_settled(&self) {
        Self::await_settled(self);
    }

    fn fail_over(&self) {
        self.failover();
    }
}

/// What happens to the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Killed,
    /// A returning primary briefly acknowledges writes of its connected clients.
    Stopped,
    /// In the end no client uses the old primary any more.
    StoppedForLong,
    /// An operator asks for a failover.
    Asked,
}

impl Event {
    fn on<G: Group>(self, group: &G, traffic: &Traffic) -> Fault {
        let old = group.primary();
        match self {
            Self::Killed => old.kill(),
            Self::Stopped | Self::StoppedForLong => old.pause(),
            Self::Asked => {}
        }
        let at = Instant::now();
        match self {
            Self::Asked => group.fail_over(),
            _ => group.await_new_primary(old),
        }
        let served = Instant::now();
        match self {
            Self::Killed => old.restart(),
            Self::Stopped => old.resume(),
            Self::StoppedForLong => {
                traffic.go_on(calls() / 5);
                old.resume();
            }
            Self::Asked => {}
        }
        Fault {
            at,
            served,
            settled: served,
        }
    }
}

/// Runs the load; after two fifths of it causes the event.
///
/// `settled`: no claim is granted before the group has settled.
async fn run<G: Group>(event: Event, durability: Durability, promise: Promise, settled: bool) {
    let _seat = crate::seat().await;
    let name = format!("{}, {durability:?}, {event:?}", G::NAME);
    let group = Arc::new(tokio::task::spawn_blocking(G::start).await.unwrap());
    let store = RedisStore::builder(group.url()).durability(durability);
    let load = Load::start(group.shards(), store, |engine| engine).await;
    load.shared().answered(calls() * 2 / 5).await;
    let traffic = load.traffic();
    let fault = tokio::task::spawn_blocking(move || {
        let mut fault = event.on(&*group, &traffic);
        group.await_settled();
        fault.settled = Instant::now();
        if settled {
            fault.served = fault.settled;
        }
        (fault, group)
    });
    let (fault, _group) = fault.await.unwrap();
    let shared = load.finish().await;
    judge(&name, promise, fault, &shared, HIT);
}

/// A test for each row: its group, its event, the durability, and the promise.
macro_rules! runs {
    ($($(#[$comment:meta])* $name:ident: $group:ty, $event:ident, $durability:expr, $promise:ident, $settled:literal;)*) => {$(
        $(#[$comment])*
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            run::<$group>(Event::$event, $durability, Promise::$promise, $settled).await;
        }
    )*};
}

runs! {
    a_primary_of_a_cluster_is_killed: ClusterSetup, Killed, Acknowledged, Equal, false;
    a_primary_of_a_cluster_stands_still_and_comes_back: ClusterSetup, StoppedForLong, Acknowledged, Equal, false;
    a_primary_of_a_cluster_comes_back_at_once: ClusterSetup, Stopped, Acknowledged, Forgetful, false;
    a_failover_of_a_cluster_is_asked_for: ClusterSetup, Asked, Acknowledged, Kept, false;
    a_primary_of_a_cluster_is_killed_whose_writes_wait: ClusterSetup, Killed, Replicated(1), Kept, true;
    a_primary_of_a_cluster_comes_back_at_once_whose_writes_wait: ClusterSetup, Stopped, Replicated(1), Kept, true;
    a_primary_is_killed: SentinelSetup, Killed, Acknowledged, Equal, false;
    a_primary_stands_still_and_comes_back: SentinelSetup, StoppedForLong, Acknowledged, Equal, false;
    a_primary_comes_back_at_once: SentinelSetup, Stopped, Acknowledged, Forgetful, false;
    /// During a promotion, the old primary still acknowledges writes, and loses them.
    a_failover_is_asked_for: SentinelSetup, Asked, Acknowledged, Forgetful, false;
    a_primary_is_killed_whose_writes_wait_for_a_replica: SentinelSetup, Killed, Replicated(1), Kept, false;
    a_primary_stands_still_whose_writes_wait_for_a_replica: SentinelSetup, Stopped, Replicated(1), Kept, false;
    /// After a promotion, one replica can confirm the old primary's writes.
    ///
    /// No claim is granted until both others follow the new primary.
    a_failover_is_asked_for_and_writes_wait_for_all_replicas: SentinelSetup, Asked, Replicated(2), Kept, true;
}
