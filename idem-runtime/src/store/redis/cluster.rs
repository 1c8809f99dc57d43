//! A cluster: each key's commands go to the node that has its slot.
//!
//! The cluster client of the client library is not used: it keeps a connection on which a node has fallen silent, and
//! all commands wait while it queries such a node for the map of slots.

mod slots;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use redis::{Client, RedisError, ServerErrorKind, Value};
use tokio::task::JoinSet;
use tokio::time::timeout_at;

pub(super) use self::slots::slot;
use self::slots::{NAMELESS, SlotMap};
use super::endpoint::Address;
use super::endpoint::Endpoint;
use super::failure::{Failure, breaks_connection, is_replica_error};
use super::link::{RoutedCommand, Target};
use super::probe::{ProbeOptions, Report, Server};
use super::server::WriteConcern;
use super::server::{ConnectionSettings, RedisServer};
use crate::env::lock::Lock;
use crate::store::observers::Observers;
use crate::store::pace::Crowded;
use crate::store::server_clock::ServerClock;
use crate::store::{Admission, StoreError, StoreErrorKind};

/// Redirects that one command follows. More than a few mean that the nodes disagree.
const MAX_REDIRECTS: usize = 5;
/// Shortest interval between two queries for the map.
const REFRESH_INTERVAL: Duration = Duration::from_millis(100);
/// Nodes queried at once: an absent node delays no map.
const CONCURRENT_QUERIES: usize = 4;
/// Head start of the trusted nodes before the doubtful ones.
const HEAD_START: Duration = Duration::from_millis(100);

/// The nodes of a cluster.
pub(super) struct Cluster {
    /// Settings of a connection to a node; the address is filled in.
    node: Endpoint,
    /// Nodes to query when no known node answers.
    seeds: Vec<Address>,
    settings: ConnectionSettings,
    /// Notified of steps of each node's clock.
    observers: Arc<Observers>,
    state: Lock<ClusterState>,
    /// Held by the task that queries the map. Other tasks go on with the current map.
    refreshing: tokio::sync::Mutex<Option<Instant>>,
    outdated: AtomicBool,
}

#[derive(Default)]
struct ClusterState {
    slots: Option<Arc<SlotMap>>,
    nodes: HashMap<Address, Arc<RedisServer>>,
    /// The node that returned the map. It is queried first, because the others may be silent.
    answered: Option<Address>,
    /// Nodes whose map is doubtful.
    ///
    /// They report that their cluster is down, or their map led to such a node. A node that is cut off from the others
    /// has an older map, and may be the quickest to reply.
    doubtful: HashSet<Address>,
}

impl Cluster {
    /// A cluster with these known nodes.
    pub(super) fn new(
        seeds: &[Endpoint],
        settings: ConnectionSettings,
        observers: &Arc<Observers>,
    ) -> Result<Self, StoreError> {
        let infos = seeds.iter().map(|seed| seed.get_connection_info());
        let addresses: Vec<_> = infos.filter_map(Address::of).collect();
        match seeds.first() {
            Some(node) if !addresses.is_empty() => Ok(Self {
                node: node.clone(),
                seeds: addresses,
                settings,
                observers: Arc::clone(observers),
                state: Lock::default(),
                refreshing: tokio::sync::Mutex::default(),
                outdated: AtomicBool::new(true),
            }),
            _ => Err(StoreError::new(
                StoreErrorKind::Refused,
                "connecting to Redis: a cluster is reached by host and port, not by a socket file",
            )),
        }
    }

    /// Sends a command to the node of its key, and follows redirects.
    pub(super) async fn send(
        &self,
        command: &RoutedCommand<'_>,
        concern: WriteConcern,
    ) -> Result<Value, Failure> {
        let mut command = *command;
        let slot = slot(command.key);
        let mut at = self.owner(slot).await.map_err(Failure::Connect)?;
        for _ in 0..=MAX_REDIRECTS {
            let node = self.node(&at).map_err(Failure::Connect)?;
            let error = match node.send(&command, concern).await {
                Err(Failure::Reply(error)) => error,
                Err(Failure::Connect(error)) => {
                    self.mark_outdated();
                    return Err(Failure::Connect(error.at(&at)));
                }
                reply => return reply,
            };
            match redirect(&error, &at) {
                Some(Redirect::Moved(to)) => {
                    self.moved(slot, &to);
                    (at, command.asking) = (to, false);
                }
                // A caller of two commands falls back to another path.
                Some(Redirect::Ask(_)) if !command.is_one() => return Err(Failure::Reply(error)),
                Some(Redirect::Ask(to)) => (at, command.asking) = (to, true),
                Some(Redirect::Nameless) => {
                    self.mark_outdated();
                    return Err(Failure::Connect(nameless()));
                }
                None => {
                    // The map may have changed. The next command refreshes it.
                    if is_doubtful(&error) {
                        self.mark_outdated();
                    }
                    if matches!(error.code(), Some("CLUSTERDOWN")) {
                        let mut state = self.lock();
                        let answered = state.answered.clone();
                        state.doubtful.extend(answered.into_iter().chain([at]));
                    }
                    return Err(Failure::Reply(error));
                }
            }
        }
        self.mark_outdated();
        Err(Failure::Connect(StoreError::new(
            StoreErrorKind::Unavailable,
            "the nodes of the Redis cluster send each other's keys around; wait until they agree \
             (`CLUSTER SLOTS`)",
        )))
    }

    /// The time of the key's node, if it is known.
    pub(super) fn server_time(&self, key: &str) -> Option<u64> {
        let state = self.lock();
        let node = state.nodes.get(state.slots.as_ref()?.owner(slot(key))?)?;
        node.server_time()
    }

    /// Queue of a claim that cannot be sent in time.
    pub(super) fn crowded(&self, key: &str, admission: &Admission) -> Option<Crowded> {
        let state = self.lock();
        let node = state.nodes.get(state.slots.as_ref()?.owner(slot(key))?)?;
        node.crowded(admission)
    }

    /// The node of a slot.
    async fn owner(&self, slot: u16) -> Result<Address, StoreError> {
        // Commands that arrive before the first map wait for it.
        if self.outdated.load(Ordering::Acquire) || self.slots().is_none() {
            // Boxed: larger, and seldom needed.
            Box::pin(self.refresh()).await?;
        }
        let owner = self.slots().and_then(|slots| slots.owner(slot).cloned());
        owner.ok_or_else(|| {
            self.mark_outdated();
            StoreError::new(
                StoreErrorKind::Unavailable,
                "no node of the Redis cluster has the slot of this key; look at `CLUSTER INFO`",
            )
        })
    }

    /// The node of a key.
    pub(super) async fn owner_of(&self, key: &str) -> Result<Address, StoreError> {
        self.owner(slot(key)).await
    }

    /// Whether a node is a known primary.
    pub(super) fn has(&self, at: &Address) -> bool {
        self.slots().is_some_and(|slots| slots.nodes().contains(at))
    }

    /// Follows a redirect for this key from the node behind this client.
    pub(super) fn follow(&self, key: &str, error: &RedisError, said_by: &Client) {
        self.mark_outdated();
        let said_by = Address::of(said_by.get_connection_info());
        if let Some(Redirect::Moved(to)) = said_by.and_then(|said_by| redirect(error, &said_by)) {
            self.moved(slot(key), &to);
        }
    }

    /// Marks the map as outdated.
    pub(super) fn mark_outdated(&self) {
        self.outdated.store(true, Ordering::Release);
    }

    /// The primaries, after a refresh of the map.
    pub(super) async fn primaries(&self) -> Result<Vec<(Address, Arc<RedisServer>)>, StoreError> {
        self.refresh().await?;
        let slots = self.slots();
        let primaries = slots.iter().flat_map(|slots| slots.nodes());
        primaries
            .map(|address| Ok((address.clone(), self.node(address)?)))
            .collect()
    }

    /// Checks each primary.
    pub(super) async fn probe(&self, options: &ProbeOptions) -> Result<Report, StoreError> {
        let mut probes = JoinSet::new();
        for (at, node) in self.primaries().await? {
            let options = options.clone();
            probes.spawn(async move { (at, Server::probe(&node, &options).await) });
        }
        let mut report = Report::of_cluster();
        while let Some(probed) = probes.join_next().await {
            match probed {
                Ok((at, Ok(server))) => report.add(at, server),
                // A primary that is down may be replaced soon; the store works with the others.
                Ok((at, Err(error))) if error.is_transient() => report.miss(at, error),
                Ok((at, Err(error))) => return Err(error.at(&at)),
                Err(_) => {}
            }
        }
        report.settled()
    }

    /// A digest of the current map, which changes when a slot moves.
    pub(super) fn map_number(&self) -> u64 {
        self.slots().map_or(0, |slots| slots.number())
    }

    /// The node at this address.
    pub(super) fn endpoint(&self, at: &Address) -> Result<Endpoint, StoreError> {
        self.node.at(at)
    }

    fn slots(&self) -> Option<Arc<SlotMap>> {
        self.lock().slots.clone()
    }

    fn lock(&self) -> MutexGuard<'_, ClusterState> {
        self.state.lock()
    }

    fn node(&self, at: &Address) -> Result<Arc<RedisServer>, StoreError> {
        if let Some(node) = self.lock().nodes.get(at) {
            return Ok(Arc::clone(node));
        }
        let target = Target::Server(Box::new(self.endpoint(at)?));
        let clock = ServerClock::new(&self.observers);
        let node = Arc::new(RedisServer::new(&target, self.settings, clock));
        Ok(Arc::clone(
            self.lock().nodes.entry(at.clone()).or_insert(node),
        ))
    }

    fn moved(&self, slot: u16, to: &Address) {
        self.mark_outdated();
        let mut state = self.lock();
        if let Some(slots) = &mut state.slots {
            Arc::make_mut(slots).moved(slot, to);
        }
    }

    /// Refreshes the map, unless a refresh runs or has just ended.
    async fn refresh(&self) -> Result<(), StoreError> {
        let known = self.slots().is_some();
        let mut last = if known {
            match self.refreshing.try_lock() {
                Ok(last) => last,
                Err(_) => return Ok(()),
            }
        } else {
            self.refreshing.lock().await
        };
        if last.is_some_and(|last| last.elapsed() < REFRESH_INTERVAL) && self.slots().is_some() {
            return Ok(());
        }
        // A failure during the query marks the map as outdated again.
        self.outdated.store(false, Ordering::Release);
        let guard = RefreshGuard(&self.outdated);
        let found = self.query().await;
        std::mem::forget(guard);
        *last = Some(Instant::now());
        match found {
            Ok((at, slots)) => {
                let mut state = self.lock();
                if state.doubtful.contains(&at) {
                    // No trusted node answered first: this map is the best known one.
                    state.doubtful.clear();
                }
                state.nodes.retain(|at, _| slots.nodes().contains(at));
                state.slots = Some(Arc::new(slots));
                state.answered = Some(at);
                Ok(())
            }
            Err(error) => {
                self.mark_outdated();
                // The old map is better than none.
                if known { Ok(()) } else { Err(error) }
            }
        }
    }

    /// Queries several nodes at once. Returns the first node with a reply, and its map.
    async fn query(&self) -> Result<(Address, SlotMap), StoreError> {
        let (mut doubtful, candidates): (Vec<_>, Vec<_>) = {
            let candidates = self.candidates();
            let state = self.lock();
            candidates
                .into_iter()
                .partition(|at| state.doubtful.contains(at))
        };
        let mut failure = None;
        let mut queries = JoinSet::new();
        let mut next = candidates.into_iter();
        let query = |at: Address, queries: &mut JoinSet<_>| {
            let node = self.node(&at);
            queries.spawn(async move { fetch_slots(node?, at).await });
        };
        for at in next.by_ref().take(CONCURRENT_QUERIES) {
            query(at, &mut queries);
        }
        let head_start = tokio::time::Instant::now() + HEAD_START;
        loop {
            let reply = if doubtful.is_empty() {
                queries.join_next().await
            } else if let Ok(Some(reply)) = timeout_at(head_start, queries.join_next()).await {
                Some(reply)
            } else {
                for at in doubtful.drain(..) {
                    query(at, &mut queries);
                }
                continue;
            };
            match reply {
                Some(Ok(Ok(found))) => return Ok(found),
                Some(Ok(Err(error))) => failure = Some(error),
                Some(Err(_)) => {}
                None => break,
            }
            if let Some(at) = next.next() {
                query(at, &mut queries);
            }
        }
        Err(failure.unwrap_or_else(|| {
            StoreError::new(
                StoreErrorKind::Unavailable,
                "asking the Redis cluster where its keys are: no node answered",
            )
        }))
    }

    /// Nodes to query for the map, the most promising first.
    fn candidates(&self) -> Vec<Address> {
        let state = self.lock();
        let primaries = state.slots.iter().flat_map(|slots| slots.nodes());
        let mut candidates: Vec<Address> = Vec::new();
        for at in state.answered.iter().chain(primaries).chain(&self.seeds) {
            if !candidates.contains(at) {
                candidates.push(at.clone());
            }
        }
        candidates
    }
}

/// A redirect to another node.
enum Redirect {
    Moved(Address),
    Ask(Address),
    /// To a node that is given by its port alone; the map names it.
    Nameless,
}

fn redirect(error: &RedisError, said_by: &Address) -> Option<Redirect> {
    let (to, _) = error.redirect_node()?;
    if to.rsplit_once(':')?.0 == NAMELESS {
        return Some(Redirect::Nameless);
    }
    let to = Address::parse(to, said_by)?;
    Some(match error.kind() {
        redis::ErrorKind::Server(ServerErrorKind::Ask) => Redirect::Ask(to),
        _ => Redirect::Moved(to),
    })
}

fn nameless() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        "a key has moved to a node of the Redis cluster that has no name; set \
         `cluster-announce-hostname` on every node, or `cluster-preferred-endpoint-type ip`",
    )
}

/// Whether the map of slots may have changed: silence, a broken connection, a replica, a cluster without this slot.
fn is_doubtful(error: &RedisError) -> bool {
    error.is_timeout()
        || breaks_connection(error)
        || is_replica_error(error)
        || matches!(error.code(), Some("CLUSTERDOWN"))
}

/// Drop guard that marks the map as outdated after an abandoned query.
struct RefreshGuard<'a>(&'a AtomicBool);

impl Drop for RefreshGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

debug_fields!(Cluster {
    nodes: |it| it.lock().nodes.len()
});

/// Reads the slot map of a cluster from one node.
async fn fetch_slots(
    node: Arc<RedisServer>,
    at: Address,
) -> Result<(Address, SlotMap), StoreError> {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let reply = match node.query(&command).await {
        Err(Failure::Reply(error)) if is_no_cluster(&error) => {
            return Err(StoreError::new(
                StoreErrorKind::Refused,
                format!("the Redis at {at} is no cluster; write `redis://…` for a single server"),
            ));
        }
        reply => reply.map_err(|failure| failure.store_error(WHERE))?,
    };
    match SlotMap::read(&reply, &at) {
        Some(slots) => Ok((at, slots)),
        None => Err(StoreError::new(
            StoreErrorKind::Unavailable,
            format!("{WHERE}: no node has any slot yet; look at `CLUSTER INFO`"),
        )),
    }
}

const WHERE: &str = "asking the Redis cluster where its keys are";

fn is_no_cluster(error: &RedisError) -> bool {
    let detail = error.detail();
    detail.is_some_and(|detail| detail.contains("cluster support disabled"))
}

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

    use super::*;

    fn said(line: &str) -> Option<String> {
        let reply = parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        let error = reply.extract_error().unwrap_err();
        let said_by = Address {
            host: "10.0.0.1".into(),
            port: 7_000,
        };
        Some(match redirect(&error, &said_by)? {
            Redirect::Moved(to) => format!("moved to {to}"),
            Redirect::Ask(to) => format!("ask {to}"),
            Redirect::Nameless => "nameless".to_owned(),
        })
    }

    #[test]
    fn a_redirect_names_its_node() {
        for (line, meant) in [
            ("MOVED 3999 10.0.0.2:7001", Some("moved to 10.0.0.2:7001")),
            (
                "MOVED 3999 redis.example:7001",
                Some("moved to redis.example:7001"),
            ),
            ("MOVED 3999 fd00::7:7001", Some("moved to [fd00::7]:7001")),
            ("MOVED 3999 [fd00::7]:7001", Some("moved to [fd00::7]:7001")),
            ("MOVED 3999 :7001", Some("moved to 10.0.0.1:7001")),
            ("MOVED 3999 ?:7001", Some("nameless")),
            ("ASK 3999 10.0.0.2:7001", Some("ask 10.0.0.2:7001")),
            ("ASK 3999 :7001", Some("ask 10.0.0.1:7001")),
            ("ASK 3999 ?:7001", Some("nameless")),
            ("MOVED 3999 10.0.0.2:70010", None),
            ("MOVED 3999 10.0.0.2", None),
            ("MOVED 3999", None),
            (
                "TRYAGAIN Multiple keys request during rehashing of slot",
                None,
            ),
            ("ERR MOVED 3999 10.0.0.2:7001", None),
        ] {
            assert_eq!(said(line).as_deref(), meant, "{line}");
        }
    }

    fn cluster(seeds: &[&str]) -> Cluster {
        let seeds: Vec<_> = seeds
            .iter()
            .map(|url| Endpoint::new(Client::open(*url).unwrap(), None))
            .collect();
        let limits = crate::store::redis::wire::ConnectionLimits {
            connect: Duration::from_secs(1),
            response: Duration::from_secs(1),
            text_bytes: usize::MAX,
        };
        let settings = ConnectionSettings {
            limits,
            durability: crate::store::redis::Durability::Acknowledged,
            wait_connections: 1,
        };
        Cluster::new(&seeds, settings, &Arc::default()).unwrap()
    }

    #[test]
    fn the_node_that_replied_last_is_queried_first_and_each_node_once() {
        let cluster = cluster(&[
            "redis://10.0.0.1:1",
            "redis://10.0.0.2:2",
            "redis://10.0.0.1:1",
        ]);
        let candidates = || -> Vec<_> {
            cluster
                .candidates()
                .iter()
                .map(Address::to_string)
                .collect()
        };
        assert_eq!(candidates(), ["10.0.0.1:1", "10.0.0.2:2"]);
        let at = |port| Address {
            host: "10.0.0.2".into(),
            port,
        };
        let node = |port| {
            let host = Value::BulkString(b"10.0.0.2".to_vec());
            let node = Value::Array(vec![host, Value::Int(port)]);
            Value::Array(vec![Value::Int(port), Value::Int(port), node])
        };
        let reply = Value::Array(vec![node(3), node(2), node(4)]);
        {
            let mut state = cluster.lock();
            state.slots = SlotMap::read(&reply, &at(2)).map(Arc::new);
            state.answered = Some(at(4));
        }
        let expected = ["10.0.0.2:4", "10.0.0.2:3", "10.0.0.2:2", "10.0.0.1:1"];
        assert_eq!(candidates(), expected);
    }
}
