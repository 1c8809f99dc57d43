//! A primary with replicas, watched by sentinels.

use std::net::SocketAddr;
use std::time::Duration;

use crate::partition::{Network, names_source, source};
use crate::poll;
use crate::replication::{MemberUser, Replication, ask};
use crate::role::Role;
use crate::sentinel_view::SentinelView;
use crate::{Partition, RedisServer, RedisServerBuilder};

const SERVERS: usize = 3;
const SENTINELS: usize = 3;
/// Sentinels that must agree that a primary is down.
const QUORUM: usize = SENTINELS / 2 + 1;

/// Settings of a [`SentinelSetup`]; see [`SentinelSetup::builder`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `start`"]
pub struct SentinelSetupBuilder {
    server: RedisServerBuilder,
    sentinel: RedisServerBuilder,
    down_after: Duration,
    partitions: bool,
}

/// One primary and two replicas, watched by three sentinels as `idem`.
///
/// Each member is a [`RedisServer`]: a test kills, pauses, resumes and restarts it as such, also
/// a sentinel. A server that comes back has its last role; the sentinels make a replica of a
/// former primary. All methods that wait do so for at most the [limit](crate::HANG_LIMIT) and then panic with the last
/// observed state.
#[derive(Debug)]
pub struct SentinelSetup {
    // The sentinels are dropped first, so that they do not react to the end of the servers.
    sentinels: Vec<RedisServer>,
    servers: Vec<RedisServer>,
    network: Option<Network>,
}

impl SentinelSetupBuilder {
    /// Settings of the primary and of the replicas:
    /// `servers(|server| server.password("secret").arg("--min-replicas-to-write", "1"))`.
    pub fn servers(mut self, set: impl FnOnce(RedisServerBuilder) -> RedisServerBuilder) -> Self {
        self.server = set(self.server);
        self
    }

    /// Settings of the sentinels: `sentinels(|sentinel| sentinel.password("secret"))`.
    pub fn sentinels(mut self, set: impl FnOnce(RedisServerBuilder) -> RedisServerBuilder) -> Self {
        self.sentinel = set(self.sentinel);
        self
    }

    /// Silence after which a sentinel marks a server as down; 1.5 s by default. On a busy machine
    /// a sentinel may connect to a new primary only after half a second (one second before Redis
    /// 7): with little more than that, it marks the new primary as down at once.
    pub fn down_after(mut self, silence: Duration) -> Self {
        self.down_after = silence;
        self
    }

    /// Puts a network between the members that [`SentinelSetup::isolate`] can partition. The
    /// sentinels then announce the addresses of proxies to clients, which are never blocked.
    ///
    /// Members connect from 127.0.1.1 and the following, so it takes a system that has all of
    /// 127.0.0.0/8, as Linux has.
    pub fn partitions(mut self) -> Self {
        self.partitions = true;
        self
    }

    /// Starts the group and waits until it could fail over.
    pub fn start(self) -> SentinelSetup {
        let user = MemberUser::new();
        let servers = (0..SERVERS).map(|index| self.server(&user, index).start());
        let servers: Vec<_> = servers.collect();
        let network = || Network::between(&servers, SENTINELS);
        let mut setup = SentinelSetup {
            sentinels: Vec::new(),
            network: self.partitions.then(network),
            servers,
        };
        let primary = setup.announced(0);
        for replica in &setup.servers[1..] {
            let (host, port) = (primary.ip().to_string(), primary.port().to_string());
            replica.cli(&["REPLICAOF", &host, &port]);
        }
        for server in &setup.servers {
            server.cli(&["CONFIG", "REWRITE"]);
        }
        for index in 0..SENTINELS {
            let sentinel = self.sentinel(&user, primary);
            let sentinel = setup.place_sentinel(sentinel, index).start();
            hurry(&sentinel);
            setup.sentinels.push(sentinel);
        }
        setup.await_settled();
        setup
    }

    fn server(&self, user: &MemberUser, index: usize) -> RedisServerBuilder {
        let server = user.settings(self.server.clone()).role(Role::Replicated);
        if self.partitions {
            return listen_on(server, &source(index).to_string());
        }
        server
    }

    fn sentinel(&self, user: &MemberUser, primary: SocketAddr) -> RedisServerBuilder {
        let (host, port) = (primary.ip().to_string(), primary.port().to_string());
        let quorum = QUORUM.to_string();
        let down_after = self.down_after.as_millis().to_string();
        let name = SentinelSetup::NAME;
        let settings: [&[&str]; 9] = [
            &["announce-ip", "127.0.0.1"],
            &["sentinel-user", MemberUser::NAME],
            &["sentinel-pass", user.secret()],
            &["monitor", name, &host, &port, &quorum],
            &["down-after-milliseconds", name, &down_after],
            &["failover-timeout", name, "3000"],
            &["parallel-syncs", name, "1"],
            &["auth-user", name, MemberUser::NAME],
            &["auth-pass", name, user.secret()],
        ];
        let sentinel = user.allowed_on(self.sentinel.clone());
        let sentinel = sentinel.role(Role::Sentinel);
        settings.into_iter().fold(sentinel, |sentinel, setting| {
            sentinel.args(["--sentinel"]).args(setting.iter().copied())
        })
    }
}

impl SentinelSetup {
    pub const NAME: &str = "idem";

    /// Starts a group with empty servers.
    pub fn start() -> Self {
        Self::builder().start()
    }

    pub fn builder() -> SentinelSetupBuilder {
        SentinelSetupBuilder {
            server: RedisServer::builder(),
            sentinel: RedisServer::builder(),
            down_after: Duration::from_millis(1_500),
            partitions: false,
        }
    }

    pub fn sentinel_addrs(&self) -> Vec<SocketAddr> {
        self.sentinels
            .iter()
            .map(|sentinel| sentinel.addr())
            .collect()
    }

    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The primary and the replicas; the first one was the primary at the start.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The current primary according to all sentinels that are up. Waits until they agree.
    pub fn primary(&self) -> &RedisServer {
        &self.servers[poll::until("a primary", || self.agreed_primary())]
    }

    /// Kills the primary with SIGKILL and returns it.
    pub fn kill_primary(&self) -> &RedisServer {
        let primary = self.primary();
        primary.kill();
        primary
    }

    /// Makes the sentinels promote a replica though the primary is up. Returns the new primary.
    pub fn failover(&self) -> &RedisServer {
        let old = self.primary();
        poll::until("a failover that was asked for", || {
            let sentinel = awake(&self.sentinels).next().ok_or("no sentinel is up")?;
            ask(sentinel, &["SENTINEL", "FAILOVER", Self::NAME])
        });
        self.await_new_primary(old)
    }

    /// Makes the sentinels promote no replica, whatever is down, until [`allow_failover`](Self::allow_failover).
    pub fn forbid_failover(&self) {
        self.set_quorum(SENTINELS + 1);
    }

    pub fn allow_failover(&self) {
        self.set_quorum(QUORUM);
    }

    fn set_quorum(&self, quorum: usize) {
        for sentinel in &self.sentinels {
            let set = sentinel.cli(&["SENTINEL", "SET", Self::NAME, "quorum", &quorum.to_string()]);
            assert_eq!(set, "OK");
        }
    }

    /// Waits until all sentinels that are up report another primary than `old`. Returns that.
    pub fn await_new_primary(&self, old: &RedisServer) -> &RedisServer {
        let old = self.index(old);
        let new = poll::until("a new primary", || {
            let primary = self.agreed_primary()?;
            if primary == old {
                return Err("it is still the old one".to_owned());
            }
            Ok(primary)
        });
        &self.servers[new]
    }

    /// Waits until all that are up and not isolated form one group: the sentinels agree on a primary and know
    /// each other, and all other servers are its replicas, in sync and known. Returns the primary.
    pub fn await_settled(&self) -> &RedisServer {
        let primary = poll::until("one group again", || {
            let primary = self.agreed_primary()?;
            self.settled_under(primary).map(|()| primary)
        });
        &self.servers[primary]
    }

    /// Waits until a former primary is a replica in sync.
    pub fn await_replica(&self, server: &RedisServer) {
        let index = self.index(server);
        poll::until("a replica", || {
            let primary = self.agreed_primary()?;
            self.follows(index, primary)
        });
    }

    /// Separates servers from all other servers and sentinels, not from each other. The group is built with
    /// [`partitions`](SentinelSetupBuilder::partitions). Clients keep their connections to them and may open new ones,
    /// at their own addresses and at the announced ones.
    pub fn isolate(&self, servers: &[&RedisServer], how: Partition) {
        let indexes: Vec<_> = servers.iter().map(|server| self.index(server)).collect();
        self.network().isolate(&indexes, how);
    }

    /// Ends all partitions. The sentinels make replicas of former primaries.
    pub fn heal(&self) {
        self.network().heal();
    }

    /// Announced address of a server; its own address, unless the group is built with
    /// [`partitions`](SentinelSetupBuilder::partitions).
    pub fn announced_addr(&self, server: &RedisServer) -> SocketAddr {
        self.announced(self.index(server))
    }

    fn network(&self) -> &Network {
        let network = self.network.as_ref();
        network.expect("the group is built with `partitions()`")
    }

    fn place_sentinel(&self, sentinel: RedisServerBuilder, index: usize) -> RedisServerBuilder {
        let Some(network) = &self.network else {
            return sentinel;
        };
        let source = network.watcher_source(index).to_string();
        let sentinel = listen_on(sentinel, &source);
        if names_source(&self.servers[0]) {
            return sentinel.arg("--bind-source-addr", source);
        }
        sentinel
    }

    fn agreed_primary(&self) -> Result<usize, String> {
        let mut agreed = None;
        for sentinel in awake(&self.sentinels) {
            let reply = ask(
                sentinel,
                &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::NAME],
            )?;
            let named = self.announced_at(&reply.to_string().replace('\n', ":"))?;
            if *agreed.get_or_insert(named) != named {
                return Err("the sentinels do not agree".to_owned());
            }
        }
        let primary = agreed.ok_or("no sentinel is up")?;
        let server = &self.servers[primary];
        if server.is_awake() && !Replication::of(server)?.is_primary() {
            return Err(format!("port {} is not yet the primary", server.port()));
        }
        Ok(primary)
    }

    fn settled_under(&self, primary: usize) -> Result<(), String> {
        let indexes = 0..self.servers.len();
        let up = |&index: &usize| self.servers[index].is_awake() && !self.is_isolated(index);
        let replicas: Vec<_> = indexes
            .filter(|index| *index != primary)
            .filter(up)
            .collect();
        for &replica in &replicas {
            self.follows(replica, primary)?;
        }
        let online = Replication::of(&self.servers[primary])?.online_replicas();
        if online < replicas.len() {
            return Err(format!("{online} replicas are online"));
        }
        for sentinel in awake(&self.sentinels) {
            let view = SentinelView::of(sentinel)?;
            view.knows_primary(SENTINELS - 1)?;
            for &replica in &replicas {
                view.knows_replica(self.announced(replica))?;
            }
        }
        Ok(())
    }

    fn follows(&self, replica: usize, primary: usize) -> Result<(), String> {
        let server = &self.servers[replica];
        let followed = Replication::of(server)?.primary_in_sync();
        if followed == Ok(self.announced(primary).port()) {
            return Ok(());
        }
        let port = server.port();
        Err(format!(
            "the replica on port {port} is not in sync: {followed:?}"
        ))
    }

    fn announced(&self, index: usize) -> SocketAddr {
        match &self.network {
            Some(network) => network.announced(index),
            None => self.servers[index].addr(),
        }
    }

    fn is_isolated(&self, index: usize) -> bool {
        let network = self.network.as_ref();
        network.is_some_and(|network| network.is_isolated(index))
    }

    fn announced_at(&self, addr: &str) -> Result<usize, String> {
        let mut indexes = 0..self.servers.len();
        indexes
            .find(|index| self.announced(*index).to_string() == addr)
            .ok_or_else(|| format!("nobody is at {addr:?}"))
    }

    fn index(&self, server: &RedisServer) -> usize {
        let mut servers = self.servers.iter();
        servers
            .position(|candidate| candidate.port() == server.port())
            .expect("the server is one of `servers()`")
    }
}

/// The server connects from the first address before Redis 7.
fn listen_on(builder: RedisServerBuilder, source: &str) -> RedisServerBuilder {
    builder.args(["--bind", source, "127.0.0.1"])
}

fn awake(members: &[RedisServer]) -> impl Iterator<Item = &RedisServer> {
    members.iter().filter(|member| member.is_awake())
}

/// Makes a sentinel poll and publish more often, until a restart. It is supported from Redis 7 on. Intervals of half a
/// second suit a busy machine.
fn hurry(sentinel: &RedisServer) {
    let settings = [
        // Also the pause between two attempts to connect.
        ("ping-period", "500"),
        ("info-period", "500"),
        ("publish-period", "500"),
        ("ask-period", "250"),
        // A sentinel that was paused does nothing for this long.
        ("tilt-period", "1000"),
    ];
    for (name, value) in settings {
        drop(sentinel.reply(&["SENTINEL", "DEBUG", name, value]));
    }
}
