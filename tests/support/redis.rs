//! The Redis store on real servers as a conformance fixture.

use std::sync::Arc;
use std::time::Duration;

use idem_conformance::{BoxFuture, Fixture, Plant};
use idem_harness::{ClusterSetup, Edition, RedisServer, RedisServerBuilder, Reply, SentinelSetup};
use idem_runtime::store::redis::{Durability, RedisStore, RedisStoreBuilder};
use idem_runtime::store::{RecordKey, Store};

use crate::shop::PATIENCE;

/// Start of every prefix, the only accessible keys of the restricted user.
const PREFIX: &str = "idem-tests";
const USER: &str = "restricted";
const PASSWORD: &str = "a-secret-of-the-tests";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Server,
    /// One server, for a user without administrative commands and foreign keys.
    Restricted,
    /// One server behind its socket file.
    Unix,
    Password,
    /// One server, in the newer protocol.
    Resp3,
    /// One server behind TLS that requires a client certificate.
    Tls,
    /// One server of another version or product.
    Edition(Edition),
    /// A primary, two replicas and three sentinels.
    Sentinel,
    /// The same, where each write waits for both replicas.
    Replicated,
    /// Six nodes, three of them primaries, of which the store knows one.
    Cluster,
    /// Six nodes, where each write waits for a replica.
    ReplicatedCluster,
    /// Six nodes of another version or product.
    ClusterEdition(Edition),
}

impl Shape {
    pub const ALL: [(&'static str, Self); 15] = [
        ("redis", Self::Server),
        ("redis_acl", Self::Restricted),
        ("redis_unix", Self::Unix),
        ("redis_password", Self::Password),
        ("redis_resp3", Self::Resp3),
        ("redis_tls", Self::Tls),
        ("redis_6_2", Self::Edition(Edition::Redis62)),
        ("redis_8", Self::Edition(Edition::Redis8)),
        ("valkey", Self::Edition(Edition::Valkey)),
        ("sentinel", Self::Sentinel),
        ("sentinel_replicated", Self::Replicated),
        ("cluster", Self::Cluster),
        ("cluster_replicated", Self::ReplicatedCluster),
        ("cluster_6_2", Self::ClusterEdition(Edition::Redis62)),
        ("cluster_valkey", Self::ClusterEdition(Edition::Valkey)),
    ];
}

/// Servers of a shape, and a store on them.
#[derive(Clone, Debug)]
pub struct Redis {
    shape: Shape,
    back: Back,
    store: RedisStore,
}

#[derive(Clone, Debug)]
enum Back {
    Server(Arc<RedisServer>),
    Sentinel(Arc<SentinelSetup>),
    Cluster(Arc<ClusterSetup>),
}

impl Redis {
    /// Starts servers of this shape, and a store on them.
    pub async fn start(shape: Shape) -> Self {
        Self::start_with(shape, |server| server).await
    }

    async fn start_with(
        shape: Shape,
        set: impl FnOnce(RedisServerBuilder) -> RedisServerBuilder + Send + 'static,
    ) -> Self {
        // Blocking, because it waits for processes.
        let back = tokio::task::spawn_blocking(move || Back::start(shape, set));
        let back = back.await.expect("the servers start");
        let store = back.store(shape);
        let durability = match shape {
            Shape::Replicated => Durability::Replicated(2),
            Shape::ReplicatedCluster => Durability::Replicated(1),
            _ => Durability::Acknowledged,
        };
        let store = store
            .connect_timeout(PATIENCE)
            .response_timeout(PATIENCE)
            .durability(durability);
        let store = store.connect().await.expect("the server is up");
        Self { shape, back, store }
    }

    pub fn server(&self) -> &RedisServer {
        match &self.back {
            Back::Server(server) => server,
            Back::Sentinel(setup) => &setup.servers()[0],
            Back::Cluster(setup) => &setup.nodes()[0],
        }
    }

    pub fn store(&self) -> &RedisStore {
        &self.store
    }

    pub fn fixture(&self, name: &str) -> InRedis {
        InRedis {
            redis: self.clone(),
            prefix: format!("{PREFIX}/{name}/").into(),
        }
    }
}

impl Back {
    fn start(shape: Shape, set: impl FnOnce(RedisServerBuilder) -> RedisServerBuilder) -> Self {
        let server = |set: &dyn Fn(RedisServerBuilder) -> RedisServerBuilder, first| {
            Self::Server(Arc::new(set(first).start()))
        };
        let first = set(RedisServer::builder());
        match shape {
            Shape::Server | Shape::Resp3 => server(&|server| server, first),
            Shape::Tls => server(&RedisServerBuilder::tls_client_auth, first),
            Shape::Edition(edition) => server(&|server| server.version(edition), first),
            Shape::Restricted => {
                // No spaces here: the rules are split into words for `ACL SETUSER`.
                let rules =
                    format!("on >{PASSWORD} ~{PREFIX}* &{PREFIX}* +@all -@dangerous -@admin");
                server(&|server| server.acl_user(USER, &rules), first)
            }
            Shape::Unix => server(&RedisServerBuilder::unix_socket, first),
            Shape::Password => server(&|server| server.password(PASSWORD), first),
            Shape::Sentinel | Shape::Replicated => {
                // A long time-out, so that a busy machine that delays the primary causes no failover.
                let setup = SentinelSetup::builder().down_after(Duration::from_mins(1));
                let setup = setup.servers(|_| first);
                Self::Sentinel(Arc::new(setup.start()))
            }
            Shape::Cluster | Shape::ReplicatedCluster | Shape::ClusterEdition(_) => {
                // A long time-out, so that a busy machine that delays a node causes no failover.
                let setup = ClusterSetup::builder().node_timeout(Duration::from_mins(1));
                let setup = setup.nodes(|_| match shape {
                    Shape::ClusterEdition(edition) => first.version(edition),
                    _ => first,
                });
                Self::Cluster(Arc::new(setup.start()))
            }
        }
    }

    fn store(&self, shape: Shape) -> RedisStoreBuilder {
        match (self, shape) {
            (Self::Server(server), Shape::Restricted) => {
                RedisStore::builder(server.url_as(USER, PASSWORD))
            }
            (Self::Server(server), Shape::Unix) => RedisStore::builder(server.unix_url()),
            (Self::Server(server), Shape::Tls) => {
                let made = server.certificates();
                RedisStore::builder(server.tls_url())
                    .root_certificate(made.ca_pem())
                    .client_certificate(made.client_cert_pem(), made.client_key_pem())
            }
            (Self::Server(server), Shape::Resp3) => {
                RedisStore::builder(format!("{}?protocol=resp3", server.url()))
            }
            (Self::Server(server), _) => RedisStore::builder(server.url()),
            (Self::Sentinel(setup), _) => RedisStore::builder(sentinel_url(setup)),
            (Self::Cluster(setup), _) => RedisStore::builder(setup.urls().swap_remove(0)),
        }
    }
}

/// The URL of a service that sentinels watch.
pub fn sentinel_url(setup: &SentinelSetup) -> String {
    let sentinels: Vec<_> = setup
        .sentinel_addrs()
        .iter()
        .map(ToString::to_string)
        .collect();
    format!(
        "redis+sentinel://{}/{}",
        sentinels.join(","),
        SentinelSetup::NAME
    )
}

pub struct InRedis {
    redis: Redis,
    prefix: Arc<str>,
}

impl InRedis {
    fn command<A: AsRef<[u8]>>(&self, key: &str, command: &[A]) -> Reply {
        match &self.redis.back {
            Back::Cluster(setup) => setup.reply(key, command),
            _ => self.redis.server().reply(command),
        }
    }
}

impl Fixture for InRedis {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.redis.store.clone())
    }

    fn prefix(&self) -> Arc<str> {
        Arc::clone(&self.prefix)
    }

    fn advance(&self, by: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            match &self.redis.back {
                Back::Cluster(setup) => setup.advance(by, &self.prefix),
                _ => self.redis.server().advance(by, &self.prefix),
            };
        })
    }

    fn plant<'a>(&'a self, key: &'a RecordKey, plant: Plant) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let key = key.name();
            let name = key.as_bytes();
            let reply = match plant {
                Plant::Bytes { bytes, life } => {
                    let life = life.as_millis().to_string();
                    self.command(&key, &[&b"SET"[..], name, &bytes, b"PX", life.as_bytes()])
                }
                Plant::Immortal { bytes } => self.command(&key, &[&b"SET"[..], name, &bytes]),
                Plant::OtherType => {
                    self.command(&key, &[&b"DEL"[..], name]);
                    self.command(&key, &[&b"RPUSH"[..], name, b"an element"])
                }
                _ => return false,
            };
            assert_eq!(reply.as_error(), None);
            true
        })
    }

    fn peek<'a>(&'a self, key: &'a RecordKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let key = key.name();
            match self.command(&key, &["GET", &key]) {
                Reply::Bulk(bytes) => Some(bytes),
                _ => None,
            }
        })
    }

    fn drift(&self) -> Duration {
        PATIENCE
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn scarce(&self) -> BoxFuture<'_, Option<Arc<dyn Fixture>>> {
        Box::pin(async move {
            let scarce = |server: RedisServerBuilder| {
                server
                    .arg("--maxmemory", "6mb")
                    .arg("--maxmemory-policy", "noeviction")
            };
            let redis = Redis::start_with(self.redis.shape, scarce).await;
            Some(Arc::new(redis.fixture("scarce")) as Arc<dyn Fixture>)
        })
    }
}
