//! The Redis store on a real server as a fixture of the conformance suite.

use std::sync::Arc;
use std::time::Duration;

use idem_harness::{RedisServer, RedisServerBuilder, Reply};
use idem_runtime::conformance::{BoxFuture, Fixture, Plant};
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::{RecordKey, Store};

/// What every prefix begins with, and what the restricted user may touch.
const PREFIX: &str = "idem-tests";
const USER: &str = "restricted";
const PASSWORD: &str = "a secret of the tests";

/// A server, and a store on it.
#[derive(Clone, Debug)]
pub struct Redis {
    server: Arc<RedisServer>,
    store: RedisStore,
    restricted: bool,
}

impl Redis {
    /// Starts a server for a user that may do everything, or for one that may not do what is
    /// dangerous or for administrators, nor touch keys of others.
    pub async fn start(restricted: bool) -> Self {
        Self::start_with(RedisServer::builder(), restricted).await
    }

    async fn start_with(server: RedisServerBuilder, restricted: bool) -> Self {
        // No spaces here: these are words of `ACL SETUSER`.
        let secret = PASSWORD.replace(' ', "-");
        let rules = format!("on >{secret} ~{PREFIX}* &{PREFIX}* +@all -@dangerous -@admin");
        let server = server.acl_user(USER, &rules).start();
        let url = if restricted {
            server.url_as(USER, &secret)
        } else {
            server.url()
        };
        // A busy machine may keep a reply waiting; no case is about that.
        let store = RedisStore::builder(&url)
            .connect_timeout(Duration::from_secs(20))
            .response_timeout(Duration::from_secs(20));
        let store = store.connect().await.expect("the server is up");
        Self {
            server: Arc::new(server),
            store,
            restricted,
        }
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &RedisServer {
        &self.server
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &RedisStore {
        &self.store
    }

    /// A fixture with a prefix of its own.
    #[must_use]
    pub fn fixture(&self, name: &str) -> InRedis {
        InRedis {
            redis: self.clone(),
            prefix: format!("{PREFIX}/{name}/").into(),
        }
    }
}

/// One prefix of a server.
#[derive(Debug)]
pub struct InRedis {
    redis: Redis,
    prefix: Arc<str>,
}

impl InRedis {
    fn command<A: AsRef<[u8]>>(&self, command: &[A]) -> Reply {
        self.redis.server.reply(command)
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
            self.redis.server.advance(by, &self.prefix);
        })
    }

    fn plant<'a>(&'a self, key: &'a RecordKey, plant: Plant) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let name = key.name();
            let name = name.as_bytes();
            let reply = match plant {
                Plant::Bytes { bytes, life } => {
                    let life = life.as_millis().to_string();
                    self.command(&[&b"SET"[..], name, &bytes, b"PX", life.as_bytes()])
                }
                Plant::Immortal { bytes } => self.command(&[&b"SET"[..], name, &bytes]),
                Plant::OtherType => {
                    self.command(&[&b"DEL"[..], name]);
                    self.command(&[&b"RPUSH"[..], name, b"an element"])
                }
                _ => return false,
            };
            assert_eq!(reply.as_error(), None);
            true
        })
    }

    fn peek<'a>(&'a self, key: &'a RecordKey) -> BoxFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            match self.command(&["GET", &key.name()]) {
                Reply::Bulk(bytes) => Some(bytes),
                _ => None,
            }
        })
    }

    fn drift(&self) -> Duration {
        Duration::from_secs(20)
    }

    fn scarce(&self) -> BoxFuture<'_, Option<Arc<dyn Fixture>>> {
        Box::pin(async move {
            let server = RedisServer::builder()
                .arg("--maxmemory", "6mb")
                .arg("--maxmemory-policy", "noeviction");
            let redis = Redis::start_with(server, self.redis.restricted).await;
            Some(Arc::new(redis.fixture("scarce")) as Arc<dyn Fixture>)
        })
    }
}
