//! Every kind of server, for the tests and for the worker that is killed with one.

use std::ops::Deref;
use std::sync::OnceLock;

use idem_harness::{
    ChromeDriver, MariaDbServer, NatsServer, PgBouncer, PostgresServer, RabbitServer, RedisServer,
    Server, ZooKeeperServer,
};

/// A server of one kind.
pub(crate) type Started = Box<dyn Deref<Target = Server> + Send>;

/// One kind of server.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) start: fn() -> Started,
    /// Words in the log of a server that is up.
    pub(crate) ready: &'static str,
}

const fn kind(name: &'static str, start: fn() -> Started, ready: &'static str) -> Kind {
    Kind { name, start, ready }
}

pub(crate) static KINDS: [Kind; 8] = [
    kind(
        "redis",
        || Box::new(RedisServer::start()),
        "Ready to accept connections",
    ),
    kind(
        "nats",
        || Box::new(NatsServer::start()),
        "Starting JetStream",
    ),
    kind(
        "rabbit",
        || Box::new(RabbitServer::start()),
        "Server startup complete",
    ),
    kind(
        "zookeeper",
        || Box::new(ZooKeeperServer::start()),
        "binding to port",
    ),
    kind(
        "postgres",
        || Box::new(Database(PostgresServer::start())),
        "ready to accept connections",
    ),
    kind(
        "mariadb",
        || Box::new(Database(MariaDbServer::start())),
        "ready for connections",
    ),
    kind(
        "pgbouncer",
        || Box::new(PgBouncer::start(database(), &[])),
        "process up",
    ),
    kind(
        "chromedriver",
        || Box::new(ChromeDriver::start()),
        "was started successfully",
    ),
];

/// A database server, which is a [`Server`] at one remove.
struct Database<S>(S);

impl<S: Deref<Target: Deref<Target = Server>>> Deref for Database<S> {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.0.deref().deref()
    }
}

/// The database behind all poolers of this process, which outlives them.
fn database() -> &'static PostgresServer {
    static DATABASE: OnceLock<PostgresServer> = OnceLock::new();
    DATABASE.get_or_init(PostgresServer::start)
}
