//! A Redis Cluster for tests.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::cluster_view::{ClusterView, NodeView};
use crate::poll;
use crate::replication::{MemberUser, Replication, ask};
use crate::role::Role;
use crate::{RedisServer, RedisServerBuilder, Reply, RespConn, SlotMigration};

const PRIMARIES: u16 = 3;
const SLOTS: u16 = 16_384;

/// The longest node time-out for the joining phase: gossip reaches each node from every other one with
/// certainty in half of it, and by chance only before.
const JOINING: Duration = Duration::from_secs(10);

/// Maximum number of consecutive redirects.
const REDIRECTS: usize = 5;

/// Settings of a [`ClusterSetup`]; see [`ClusterSetup::builder`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `start`"]
pub struct ClusterSetupBuilder {
    node: RedisServerBuilder,
    node_timeout: Duration,
}

/// A cluster of three primaries with one replica each.
///
/// Each node is a [`RedisServer`]: a test kills, pauses, resumes and restarts it as such. A node
/// that comes back has its last role, and becomes a replica if its slots were taken over. All
/// methods that wait do so for at most the [limit](crate::HANG_LIMIT) and then panic with the last observed state.
#[derive(Debug)]
pub struct ClusterSetup {
    nodes: Vec<RedisServer>,
    user: MemberUser,
    /// Held while a slot changes its owner.
    handover: Mutex<()>,
}

impl ClusterSetupBuilder {
    /// Settings of every node: `nodes(|node| node.password("secret"))`.
    pub fn nodes(mut self, set: impl FnOnce(RedisServerBuilder) -> RedisServerBuilder) -> Self {
        self.node = set(self.node);
        self
    }

    /// Silence after which a node counts as down; 2 s by default.
    pub fn node_timeout(mut self, silence: Duration) -> Self {
        self.node_timeout = silence;
        self
    }

    /// Starts the nodes, joins them, and waits until all of them serve.
    pub fn start(self) -> ClusterSetup {
        let user = MemberUser::new();
        let node = user
            .settings(self.node)
            .role(Role::ClusterNode)
            .arg("--cluster-enabled", "yes")
            .arg("--cluster-announce-ip", "127.0.0.1")
            .arg(
                "--cluster-node-timeout",
                self.node_timeout.min(JOINING).as_millis().to_string(),
            );
        let nodes = (0..2 * PRIMARIES).map(|_| node.clone().start()).collect();
        let setup = ClusterSetup {
            nodes,
            user,
            handover: Mutex::default(),
        };
        setup.join();
        setup.await_settled();
        if self.node_timeout > JOINING {
            setup.set_node_timeout(self.node_timeout);
        }
        setup
    }
}

impl ClusterSetup {
    pub fn start() -> Self {
        Self::builder().start()
    }

    pub fn builder() -> ClusterSetupBuilder {
        ClusterSetupBuilder {
            node: RedisServer::builder(),
            node_timeout: Duration::from_secs(2),
        }
    }

    /// Changes the silence after which a node counts as down. A change of a node, such as another address, is
    /// certain to reach the others in half of it.
    pub fn set_node_timeout(&self, silence: Duration) {
        let silence = silence.as_millis().to_string();
        for node in self.awake() {
            node.cli(&["CONFIG", "SET", "cluster-node-timeout", &silence]);
        }
    }

    /// All nodes; at the start the first three are the primaries, in the order of their slots,
    /// and the others are their replicas in the same order.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.addr()).collect()
    }

    /// The URLs of the nodes for the default user.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    pub fn slot_of(&self, key: impl AsRef<[u8]>) -> u16 {
        let node = self.awake().next().expect("a node is up");
        let slot = node.reply(&[b"CLUSTER", b"KEYSLOT", key.as_ref()]);
        let number = slot.as_int().and_then(|slot| u16::try_from(slot).ok());
        number.unwrap_or_else(|| panic!("not a slot: {slot}"))
    }

    /// The current primary of a slot. Waits until there is one.
    pub fn node_of_slot(&self, slot: u16) -> &RedisServer {
        poll::until("a primary of a slot", || self.owner(slot))
    }

    /// The current replica of a primary. Waits until a replica is up.
    pub fn replica_of(&self, primary: &RedisServer) -> &RedisServer {
        poll::until("a replica", || {
            let id = myself(primary)?;
            for node in self.awake() {
                if myself(node)?.is_replica_of(&id) {
                    return Ok(node);
                }
            }
            Err(format!("the primary on port {} has none", primary.port()))
        })
    }

    /// Makes a replica the primary in coordination with the old one. Waits until every node has the new map.
    pub fn failover(&self, replica: &RedisServer) {
        assert!(
            myself(replica).is_ok_and(|node| !node.is_primary()),
            "the node on port {} must be a replica to take over",
            replica.port()
        );
        replica.cli(&["CLUSTER", "FAILOVER"]);
        poll::until("a replica that takes over", || {
            if myself(replica)?.serves_any() {
                return Ok(());
            }
            Err(format!("port {} is still a replica", replica.port()))
        });
        self.await_settled();
    }

    /// Waits until another node than `old` serves `slot`, and returns it.
    pub fn await_new_primary(&self, slot: u16, old: &RedisServer) -> &RedisServer {
        poll::until("a new primary", || {
            let owner = self.owner(slot)?;
            if owner.port() == old.port() {
                return Err(format!("port {} still serves slot {slot}", old.port()));
            }
            self.all_say_ok()?;
            Ok(owner)
        })
    }

    /// Waits until all nodes that are up agree. They serve all slots between them, and all replicas among them are in
    /// sync.
    pub fn await_settled(&self) {
        poll::until("a whole cluster", || {
            self.all_say_ok()?;
            self.all_agree()?;
            self.all_in_sync()
        });
    }

    /// Moves a slot with all its keys to another primary. Waits until every node has the new map.
    pub fn migrate_slot(&self, slot: u16, target: &RedisServer) {
        self.begin_migration(slot, target).finish();
    }

    /// Begins to move a slot to another primary, without its keys.
    pub fn begin_migration<'a>(&'a self, slot: u16, target: &'a RedisServer) -> SlotMigration<'a> {
        let source = self.node_of_slot(slot);
        assert_ne!(
            source.port(),
            target.port(),
            "slot {slot} is there already; move it to another node"
        );
        SlotMigration::begin(self, slot, source, target)
    }

    /// Ages every key under `prefix` by `age` on all primaries, see [`RedisServer::advance`].
    pub fn advance(&self, age: Duration, prefix: &str) -> usize {
        let primaries = poll::until("the primaries", || self.owners());
        primaries.iter().map(|node| node.advance(age, prefix)).sum()
    }

    /// Runs a command on the node of `key`, and follows redirects. Returns its reply, errors
    /// included.
    pub fn reply<A: AsRef<[u8]>>(&self, key: impl AsRef<[u8]>, command: &[A]) -> Reply {
        let mut connection = self.node_of_slot(self.slot_of(key)).connect();
        let mut reply = run(&mut connection, command);
        for _ in 0..REDIRECTS {
            let error = reply.as_error().unwrap_or_default().to_owned();
            let mut words = error.split(' ');
            let (kind, addr) = (words.next(), words.nth(1));
            if !matches!(kind, Some("ASK" | "MOVED")) {
                return reply;
            }
            let mut nodes = self.nodes.iter();
            let node = nodes.find(|node| addr == Some(&node.addr().to_string()));
            let node = node.unwrap_or_else(|| panic!("a redirect to nowhere: {error}"));
            connection = node.connect();
            if kind == Some("ASK") {
                run(&mut connection, &["ASKING"]);
            }
            reply = run(&mut connection, command);
        }
        reply
    }

    /// Runs a command on the node of `key`, see [`RedisServer::cli`].
    pub fn cli<A: AsRef<[u8]>>(&self, key: impl AsRef<[u8]>, command: &[A]) -> String {
        match self.reply(key, command) {
            Reply::Error(error) => panic!("a command is refused: {error}"),
            reply => reply.to_string(),
        }
    }

    pub(crate) fn credentials(&self) -> (&str, &str) {
        (MemberUser::NAME, self.user.secret())
    }

    /// Makes `target` a slot's owner, and waits for every node's new map.
    ///
    /// One slot at a time: two nodes that become owners at the same moment do so with the same epoch, which a third
    /// node takes for a stale claim, and a slot can end without an owner.
    pub(crate) fn hand_over(&self, slot: u16, source: &RedisServer, target: &RedisServer) {
        let handover = self.handover.lock();
        let _handover = handover.unwrap_or_else(PoisonError::into_inner);
        // The target first: it must not refuse the clients that the source redirects.
        for node in [target, source] {
            Self::set_slot(node, slot, "NODE", target);
        }
        self.await_owner(slot, target);
    }

    /// Changes a slot's state on a node with regard to another.
    pub(crate) fn set_slot(node: &RedisServer, slot: u16, state: &str, other: &RedisServer) {
        let id = other.cli(&["CLUSTER", "MYID"]);
        node.cli(&["CLUSTER", "SETSLOT", &slot.to_string(), state, &id]);
    }

    /// Waits until every node has the owner of a slot.
    fn await_owner(&self, slot: u16, owner: &RedisServer) {
        poll::until("a moved slot", || {
            for node in self.awake() {
                let view = ClusterView::of(node)?;
                if !view.healthy(owner.port())?.serves(slot) {
                    return Err(format!("port {} does not know it", node.port()));
                }
            }
            self.all_agree()
        });
    }

    fn join(&self) {
        let (primaries, replicas) = self.nodes.split_at(usize::from(PRIMARIES));
        for (node, epoch) in self.nodes.iter().zip(1_u32..) {
            node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch.to_string()]);
        }
        for (node, number) in primaries.iter().zip(0..PRIMARIES) {
            let start = |number: u16| u32::from(SLOTS) * u32::from(number) / u32::from(PRIMARIES);
            let slots = (start(number)..start(number + 1)).map(|slot| slot.to_string());
            let words = ["CLUSTER", "ADDSLOTS"].map(str::to_owned).into_iter();
            node.cli(&words.chain(slots).collect::<Vec<_>>());
        }
        // Introduces each pair directly, because gossip would take seconds.
        for (index, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[index + 1..] {
                node.cli(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()]);
            }
        }
        for (primary, replica) in primaries.iter().zip(replicas) {
            let id = primary.cli(&["CLUSTER", "MYID"]);
            poll::until("a replica that knows its primary", || {
                ask(replica, &["CLUSTER", "REPLICATE", &id])
            });
        }
    }

    fn all_say_ok(&self) -> Result<(), String> {
        for node in self.awake() {
            let info = ask(node, &["CLUSTER", "INFO"])?.to_string();
            if !info.contains("cluster_state:ok") {
                return Err(format!("to the node on port {} it is down", node.port()));
            }
        }
        Ok(())
    }

    fn all_agree(&self) -> Result<(), String> {
        let selves = self.awake().map(myself).collect::<Result<Vec<_>, _>>()?;
        for node in self.awake() {
            let view = ClusterView::of(node)?;
            for other in &selves {
                if !view.healthy(other.port)?.agrees_with(other) {
                    let (one, other) = (node.port(), other.port);
                    return Err(format!("ports {one} and {other} see {other} differently"));
                }
            }
        }
        Ok(())
    }

    fn all_in_sync(&self) -> Result<(), String> {
        let owners = self.owners()?;
        let is_owner = |node: &RedisServer| owners.iter().any(|owner| owner.port() == node.port());
        let mut replicas = 0;
        for node in self.awake().filter(|node| !is_owner(node)) {
            let port = Replication::of(node)?.primary_in_sync()?;
            if !owners.iter().any(|owner| owner.port() == port) {
                return Err(format!("port {} follows {port}", node.port()));
            }
            replicas += 1;
        }
        let mut online = 0;
        for owner in owners {
            online += Replication::of(owner)?.online_replicas();
        }
        if online < replicas {
            return Err(format!("{online} of {replicas} replicas are online"));
        }
        Ok(())
    }

    /// The primary that claims a slot with the highest epoch.
    fn owner(&self, slot: u16) -> Result<&RedisServer, String> {
        let mut best: Option<(u64, &RedisServer)> = None;
        for node in self.awake() {
            let view = myself(node)?;
            if view.serves(slot) && best.is_none_or(|(epoch, _)| view.epoch() > epoch) {
                best = Some((view.epoch(), node));
            }
        }
        let best = best.ok_or_else(|| format!("nobody serves slot {slot}"))?;
        Ok(best.1)
    }

    fn owners(&self) -> Result<Vec<&RedisServer>, String> {
        let mut owners = Vec::new();
        for node in self.awake() {
            if myself(node)?.serves_any() {
                owners.push(node);
            }
        }
        if owners.len() == usize::from(PRIMARIES) {
            return Ok(owners);
        }
        Err(format!("{} primaries are up", owners.len()))
    }

    fn awake(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().filter(|node| node.is_awake())
    }
}

fn myself(node: &RedisServer) -> Result<NodeView, String> {
    ClusterView::of(node)?.myself()
}

fn run<A: AsRef<[u8]>>(connection: &mut RespConn, command: &[A]) -> Reply {
    match connection.command(command) {
        Ok(reply) => reply,
        Err(error) => panic!("a command is not answered: {error}"),
    }
}
