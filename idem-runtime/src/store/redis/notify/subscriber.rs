//! Notification of watchers: one connection that subscribes to the watched keys.
//!
//! The scripts that end a claim publish an empty message on a channel named like the record. One task, on the thread
//! of the engine that watched first, keeps a connection subscribed to the keys that this process watches through this
//! store.
//!
//! When a connection breaks, the task makes another, subscribes all channels again and wakes earlier watchers, because
//! a message may have been lost. A silent connection looks like an idle one, so while a key is watched the task pings
//! the server every few seconds, which also keeps the connection alive in networks that drop idle ones. A ping cannot
//! detect every failure: the old primary of a failover still replies. Then a poll finds a change before its message
//! arrives, and the task sends one more ping. If no message arrives before its reply, the connection is replaced.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::{sleep, timeout};

use super::channels::Progress;
use super::session::{Session, SessionEnd};
use super::subscriptions::Subscriptions;
use crate::env::backoff::Backoff;
use crate::env::lock::Lock;
use crate::identity::operation::RecordKey;
use crate::record::Owner;
use crate::store::redis::cluster::Cluster;
use crate::store::redis::endpoint::{Address, place};
use crate::store::redis::failure::connect_error;
use crate::store::redis::link::Target;
use crate::store::redis::subscriber_connection::SubscriberConnection;
use crate::store::redis::wire::ConnectionLimits;
use crate::store::{StoreError, StoreErrorKind, Watch};

/// Attempts to follow a key to another node before the watch fails.
const MOVES: usize = 3;

/// The subscribers of one server, or of a cluster's nodes.
#[derive(Debug)]
pub(crate) struct Subscribers {
    servers: SubscribedServers,
    /// Scripts publish to the shard of the key alone.
    sharded: bool,
    limits: ConnectionLimits,
}

#[derive(Debug)]
enum SubscribedServers {
    One(Subscriber),
    /// A subscriber for each node of a cluster, by its address.
    Nodes(Arc<Cluster>, Lock<HashMap<Address, Arc<Subscriber>>>),
}

impl Subscribers {
    pub(crate) fn of_server(target: Target, sharded: bool, limits: ConnectionLimits) -> Self {
        let subscriptions = Subscriptions::new(target, None, sharded, limits);
        Self {
            servers: SubscribedServers::One(Subscriber(subscriptions)),
            sharded,
            limits,
        }
    }

    pub(crate) fn of_cluster(cluster: Cluster, sharded: bool, limits: ConnectionLimits) -> Self {
        Self {
            servers: SubscribedServers::Nodes(Arc::new(cluster), Lock::default()),
            sharded,
            limits,
        }
    }

    pub(crate) fn limits(&self) -> ConnectionLimits {
        self.limits
    }

    /// Watches a key. `None`: the server refuses subscriptions.
    pub(crate) async fn watch(&self, key: &RecordKey) -> Result<Option<Watch>, StoreError> {
        for _ in 0..MOVES {
            let outcome = match &self.servers {
                SubscribedServers::One(server) => server.watch(key).await?,
                SubscribedServers::Nodes(cluster, nodes) => {
                    let at = cluster.owner_of(&key.name()).await?;
                    self.node(cluster, nodes, at)?.watch(key).await?
                }
            };
            match (outcome, &self.servers) {
                (WatchOutcome::Subscribed(watch), _) => return Ok(Some(watch)),
                (WatchOutcome::Refused, _) | (_, SubscribedServers::One(_)) => return Ok(None),
                (WatchOutcome::Moved, SubscribedServers::Nodes(..)) => {}
            }
        }
        Err(StoreError::new(
            StoreErrorKind::Unavailable,
            "watching a key: the nodes of the Redis cluster do not agree on who has it",
        ))
    }

    fn node(
        &self,
        cluster: &Arc<Cluster>,
        nodes: &Lock<HashMap<Address, Arc<Subscriber>>>,
        at: Address,
    ) -> Result<Arc<Subscriber>, StoreError> {
        let mut nodes = nodes.lock();
        if let Some(node) = nodes.get(&at) {
            return Ok(Arc::clone(node));
        }
        // Drop the subscribers of nodes that have left the cluster.
        nodes.retain(|at, node| cluster.has(at) || !node.0.watchers.is_idle());
        let target = Target::Server(Box::new(cluster.endpoint(&at)?));
        let cluster = Some(Arc::clone(cluster));
        let subscriptions = Subscriptions::new(target, cluster, self.sharded, self.limits);
        let node = Arc::new(Subscriber(subscriptions));
        nodes.insert(at, Arc::clone(&node));
        Ok(node)
    }

    /// The server of messages that concern no single key: any node of a cluster, since the nodes forward a plain `PUBLISH`
    /// to each other; the one with the slot of this name.
    pub(crate) async fn broadcast_target(&self, name: &str) -> Result<Target, StoreError> {
        match &self.servers {
            SubscribedServers::One(server) => Ok(server.0.target.clone()),
            SubscribedServers::Nodes(cluster, _) => {
                let at = cluster.owner_of(name).await?;
                Ok(Target::Server(Box::new(cluster.endpoint(&at)?)))
            }
        }
    }

    /// The node does not answer; another may have taken its place.
    pub(crate) fn mark_outdated(&self) {
        if let SubscribedServers::Nodes(cluster, _) = &self.servers {
            cluster.mark_outdated();
        }
    }

    /// The operator's warning, if there is one.
    pub(crate) fn warning(&self) -> Option<String> {
        let warns = |server: &Subscriber| server.0.lock().refused.is_some();
        let refused = match &self.servers {
            SubscribedServers::One(server) => warns(server),
            SubscribedServers::Nodes(_, nodes) => nodes.lock().values().any(|node| warns(node)),
        };
        refused.then(|| REFUSED_WARNING.to_owned())
    }
}

const REFUSED_WARNING: &str = "Redis does not let this user subscribe, so that waiting calls ask again and \
                      again; see the rights in the documentation of `RedisStore`";

/// Outcome of a request to watch a key.
enum WatchOutcome {
    Subscribed(Watch),
    /// Another node has the key.
    Moved,
    /// The server refuses the subscription.
    Refused,
}

/// Notifies the watchers of keys on one server: it connects at the first watch, and its task ends when it is dropped.
struct Subscriber(Arc<Subscriptions>);

impl Subscriber {
    /// Watches a key, from the server's confirmation on.
    ///
    /// # Errors
    ///
    /// At once while there is no connection, and when the server does not reply in time.
    async fn watch(&self, key: &RecordKey) -> Result<WatchOutcome, StoreError> {
        let Some((watch, mut progress, starts)) = self.0.join(key)? else {
            return Ok(WatchOutcome::Refused);
        };
        if let Some(runtime) = starts {
            runtime.spawn(run(SubscriptionTask(Arc::clone(&self.0))));
        }
        self.0.work.notify_one();
        let settled = progress.wait_for(Progress::is_settled);
        match timeout(self.0.limits.response, settled).await {
            Ok(Ok(progress)) => match &*progress {
                Progress::Refused => Ok(WatchOutcome::Refused),
                Progress::Moved => Ok(WatchOutcome::Moved),
                Progress::Failed(error) => Err(error.clone()),
                Progress::Confirmed | Progress::Requested => Ok(WatchOutcome::Subscribed(watch)),
            },
            Ok(Err(_)) | Err(_) => Err(StoreError::new(
                StoreErrorKind::Unavailable,
                "watching a key: Redis did not confirm the subscription in time",
            )),
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.work.notify_one();
    }
}

debug_fields!(Subscriber {});

/// The subscription task. Its runtime drops it when it ends.
struct SubscriptionTask(Arc<Subscriptions>);

async fn run(task: SubscriptionTask) {
    let subscriptions = &*task.0;
    let mut backoff = Backoff::new(&Owner::random());
    let mut replaced = None;
    subscriptions.lock().host = Some(std::thread::current().id());
    while subscriptions.wait_for_watcher().await {
        let generation = subscriptions.target.generation();
        match connect(&subscriptions.target, subscriptions.limits).await {
            Ok(connection) => match Session::new(subscriptions, connection, generation)
                .serve(&mut backoff, &mut replaced)
                .await
            {
                SessionEnd::Closed => return,
                SessionEnd::Missed => {
                    subscriptions.lock().channels.lost();
                    continue;
                }
                SessionEnd::Lost => subscriptions.lock().channels.lost(),
                SessionEnd::Failed(error) => subscriptions.failed(error),
            },
            Err(error) => subscriptions.failed(error),
        }
        sleep(backoff.reconnect()).await;
        subscriptions.lock().down = None;
    }
}

/// Connects to the server of a target, for subscriptions.
pub(super) async fn connect(
    target: &Target,
    limits: ConnectionLimits,
) -> Result<SubscriberConnection, StoreError> {
    let endpoint = target.endpoint(limits).await?;
    let opened = SubscriberConnection::open(&endpoint, limits).await?;
    opened.map_err(|error| connect_error(&place(&endpoint), error, true))
}

impl Drop for SubscriptionTask {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.host = None;
        state.down = None;
        state.channels.lost();
        let wanted = state.channels.any(|key| self.0.watchers.is_watched(key));
        // Without a successor the next call that watches starts another task.
        let successor = state.successor.take().filter(|_| wanted && !state.closed);
        if let Some(successor) = successor {
            state.host = Some(std::thread::current().id());
            drop(state);
            successor.spawn(run(Self(Arc::clone(&self.0))));
        }
    }
}
