//! Subscribers of a store: one per server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::subscriber::{Subscriber, WatchOutcome};
use crate::identity::operation::RecordKey;
use crate::store::redis::address::Address;
use crate::store::redis::cluster::Cluster;
use crate::store::redis::limits::Limits;
use crate::store::redis::link::Target;
use crate::store::{StoreError, StoreErrorKind, Watch};

/// Attempts to follow a key to another node before the watch fails.
const MOVES: usize = 3;

/// The subscribers of one server, or of a cluster's nodes.
///
/// Each node of a cluster publishes for its own keys, so that a node that is down does not affect the others.
#[derive(Debug)]
pub(crate) enum Subscribers {
    Server(Subscriber),
    Cluster(ClusterSubscribers),
}

/// The subscribers of a cluster, one per node.
#[derive(Debug)]
pub(crate) struct ClusterSubscribers {
    cluster: Arc<Cluster>,
    sharded: bool,
    limits: Limits,
    subscribers: Mutex<HashMap<Address, Arc<Subscriber>>>,
}

impl Subscribers {
    pub(crate) fn of_server(target: Target, sharded: bool, limits: Limits) -> Self {
        Self::Server(Subscriber::new(target, None, sharded, limits))
    }

    pub(crate) fn of_cluster(cluster: Cluster, sharded: bool, limits: Limits) -> Self {
        Self::Cluster(ClusterSubscribers {
            cluster: Arc::new(cluster),
            sharded,
            limits,
            subscribers: Mutex::default(),
        })
    }

    /// Watches a key. `None`: the server refuses subscriptions.
    pub(crate) async fn watch(&self, key: &RecordKey) -> Result<Option<Watch>, StoreError> {
        let nodes = match self {
            Self::Server(subscriber) => {
                return Ok(match subscriber.watch(key).await? {
                    WatchOutcome::Subscribed(watch) => Some(watch),
                    WatchOutcome::Moved | WatchOutcome::Refused => None,
                });
            }
            Self::Cluster(nodes) => nodes,
        };
        for _ in 0..MOVES {
            match nodes.of(key).await?.watch(key).await? {
                WatchOutcome::Subscribed(watch) => return Ok(Some(watch)),
                WatchOutcome::Refused => return Ok(None),
                WatchOutcome::Moved => {}
            }
        }
        Err(StoreError::new(
            StoreErrorKind::Unavailable,
            "watching a key: the nodes of the Redis cluster do not agree on who has it",
        ))
    }

    pub(crate) fn limits(&self) -> Limits {
        match self {
            Self::Server(subscriber) => subscriber.limits(),
            Self::Cluster(nodes) => nodes.limits,
        }
    }

    /// The server of messages that concern no single key: any node of a cluster, since the nodes forward a plain `PUBLISH`
    /// to each other; the one with the slot of this name.
    pub(crate) async fn broadcast_target(&self, name: &str) -> Result<Target, StoreError> {
        match self {
            Self::Server(subscriber) => Ok(subscriber.target().clone()),
            Self::Cluster(nodes) => {
                let at = nodes.cluster.owner_of(name).await?;
                Ok(Target::Server(Box::new(nodes.cluster.endpoint(&at)?)))
            }
        }
    }

    /// The node does not answer; another may have taken its place.
    pub(crate) fn mark_outdated(&self) {
        if let Self::Cluster(nodes) = self {
            nodes.cluster.mark_outdated();
        }
    }

    /// The operator's warning, if there is one.
    pub(crate) fn warning(&self) -> Option<String> {
        match self {
            Self::Server(subscriber) => subscriber.warning(),
            Self::Cluster(nodes) => nodes.lock().values().find_map(|node| node.warning()),
        }
    }
}

impl ClusterSubscribers {
    fn lock(&self) -> MutexGuard<'_, HashMap<Address, Arc<Subscriber>>> {
        self.subscribers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn of(&self, key: &RecordKey) -> Result<Arc<Subscriber>, StoreError> {
        let at = self.cluster.owner_of(&key.name()).await?;
        let mut nodes = self.lock();
        if let Some(node) = nodes.get(&at) {
            return Ok(Arc::clone(node));
        }
        // Drop the subscribers of nodes that have left the cluster.
        nodes.retain(|at, node| self.cluster.has(at) || !node.is_idle());
        let target = Target::Server(Box::new(self.cluster.endpoint(&at)?));
        let cluster = Some(Arc::clone(&self.cluster));
        let node = Arc::new(Subscriber::new(target, cluster, self.sharded, self.limits));
        nodes.insert(at, Arc::clone(&node));
        Ok(node)
    }
}
