//! Every kind of server, for the tests and the killed worker.

use std::ops::Deref;
use std::sync::OnceLock;

use idem_harness::{
    ChromeDriver, MariaDbServer, NatsServer, PgBouncer, PostgresServer, RabbitServer, RedisServer,
    Server, ZooKeeperServer,
};

pub(crate) type Started = Box<dyn Deref<Target = Server> + Send>;

pub(crate) type Kind = (&'static str, fn() -> Started);

pub(crate) static KINDS: [Kind; 8] = [
    ("redis", || Box::new(RedisServer::start())),
    ("nats", || Box::new(NatsServer::start())),
    ("rabbit", || Box::new(RabbitServer::start())),
    ("zookeeper", || Box::new(ZooKeeperServer::start())),
    ("postgres", || Box::new(Database(PostgresServer::start()))),
    ("mariadb", || Box::new(Database(MariaDbServer::start()))),
    ("pgbouncer", || Box::new(PgBouncer::start(database(), &[]))),
    ("chromedriver", || Box::new(ChromeDriver::start())),
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
