//! The stores, and the servers that they are on.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use idem_harness::{
    DatabaseServer, MariaDbServer, PostgresServer, RedisServer, RedisServerBuilder, SentinelSetup,
    TcpProxy,
};
use idem_runtime::store::layered::LayeredStore;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::redis::{Durability, RedisStore};
use idem_runtime::store::sql::{
    Backend, MySql, MySqlStore, Postgres, PostgresStore, SqlStore, Sqlite, SqliteStore,
};
use idem_runtime::store::{StoreError, StoreErrorKind};
use idem_runtime::{Engine, EngineBuilder};
use idem_tests::checker::SEATS;
use idem_tests::sentinel_url;

use crate::books::Books;

/// All of them, in the order in which they are soaked.
pub(crate) const ALL: [&str; 8] = [
    "sqlite",
    "redis",
    "postgres",
    "mariadb",
    "layered",
    "sentinel",
    "sentinel-async",
    "memory",
];

/// The prefix of all records.
pub(crate) const PREFIX: &str = "soak";

/// Runs work that needs no other thread.
pub(crate) fn block_on<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime starts").block_on(work)
}

/// Concurrent calls of a process. Overload is the subject of another test.
pub(crate) fn tasks(store: &str) -> u64 {
    match store {
        "sqlite" => 8,
        "postgres" | "mariadb" => 20,
        _ => 48,
    }
}

pub(crate) struct Connected {
    pub(crate) engine: EngineBuilder,
    pub(crate) books: Books,
}

/// Connects to a store; retries while it has faults.
pub(crate) async fn connect(store: &str, url: &str, dir: &Path) -> Connected {
    let engine = loop {
        match connect_once(store, url).await {
            Ok(engine) => break engine,
            // A full or read-only store recovers soon.
            Err(error) if error.kind() != StoreErrorKind::TooLarge => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => panic!("{error}"),
        }
    };
    let books = Books::open(store, url, dir);
    Connected { engine, books }
}

async fn connect_once(store: &str, url: &str) -> Result<EngineBuilder, StoreError> {
    Ok(match store {
        "memory" => Engine::builder(MemoryStore::new()),
        "sqlite" => Engine::builder(SqliteStore::connect(url).await?),
        "postgres" => Engine::builder(PostgresStore::connect(url).await?),
        "mariadb" => Engine::builder(MySqlStore::connect(url).await?),
        "redis" | "sentinel-async" => Engine::builder(RedisStore::connect(url).await?),
        "sentinel" => {
            let store = RedisStore::builder(url).durability(Durability::Replicated(1));
            Engine::builder(store.connect().await?)
        }
        "layered" => {
            let (fast, durable) = url.split_once(' ').expect("two URLs");
            let fast = RedisStore::connect(fast).await?;
            let durable = PostgresStore::connect(durable).await?;
            Engine::builder(LayeredStore::new(fast, durable))
        }
        other => panic!("no store {other}"),
    })
}

/// Makes the table of a store.
async fn migrate<B: Backend>(url: &str) {
    let store = SqlStore::<B>::connect(url).await;
    let migrated = store.expect("the server is up").migrate().await;
    migrated.expect("the server is up");
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a run has one")]
pub(crate) enum Site {
    /// A file, or the memory of the process.
    Local(String),
    Redis(RedisServer),
    Postgres(PostgresServer),
    MariaDb(MariaDbServer),
    Layered(RedisServer, PostgresServer),
    Sentinel(SentinelSetup),
}

impl Site {
    /// Starts the servers of the store, and makes its tables.
    pub(crate) fn start(store: &str, dir: &Path) -> Self {
        let redis = || RedisServer::builder().append_only_always().start();
        let postgres = || PostgresServer::builder().durable().start();
        let site = match store {
            "memory" => Self::Local(String::new()),
            "sqlite" => Self::Local(format!("sqlite:{}?mode=rwc", dir.join("soak.db").display())),
            "redis" => Self::Redis(redis()),
            "postgres" => Self::Postgres(postgres()),
            "mariadb" => Self::MariaDb(MariaDbServer::builder().durable().start()),
            "layered" => Self::Layered(RedisServer::start(), postgres()),
            "sentinel" | "sentinel-async" => Self::Sentinel(
                SentinelSetup::builder()
                    .servers(RedisServerBuilder::append_only_always)
                    .start(),
            ),
            other => panic!("no store {other}; there are: {}", ALL.join(" ")),
        };
        let url = site.url(None);
        let created = async {
            match &site {
                Self::Local(url) if url.is_empty() => {}
                Self::Local(url) => migrate::<Sqlite>(url).await,
                Self::Postgres(_) => migrate::<Postgres>(&url).await,
                Self::Layered(_, server) => migrate::<Postgres>(&server.url()).await,
                Self::MariaDb(_) => migrate::<MySql>(&url).await,
                Self::Redis(_) | Self::Sentinel(_) => {}
            }
            let books = Books::open(store, &url, dir);
            books.create().await.expect("the server is up");
        };
        block_on(created);
        site
    }

    /// The network of one seat, if the store has one.
    pub(crate) fn proxies(&self) -> Vec<TcpProxy> {
        let proxy = |addr: SocketAddr| TcpProxy::start(addr);
        match self {
            Self::Local(_) | Self::Sentinel(_) => Vec::new(),
            Self::Redis(server) => vec![proxy(server.addr())],
            Self::Postgres(server) => vec![proxy(server.addr())],
            Self::MariaDb(server) => vec![proxy(server.addr())],
            Self::Layered(fast, durable) => vec![proxy(fast.addr()), proxy(durable.addr())],
        }
    }

    /// Where a process reaches the store, through these proxies or directly.
    pub(crate) fn url(&self, proxies: Option<&[TcpProxy]>) -> String {
        let proxy = |at: usize| proxies.and_then(|proxies| proxies.get(at));
        let redis = |server: &RedisServer| proxy(0).map_or_else(|| server.url(), TcpProxy::url);
        let sql = |server: &DatabaseServer, at| {
            proxy(at).map_or_else(|| server.url(), |proxy| server.url_at(proxy.addr()))
        };
        match self {
            Self::Local(url) => url.clone(),
            Self::Redis(server) => redis(server),
            Self::Postgres(server) => sql(server, 0),
            Self::MariaDb(server) => sql(server, 0),
            Self::Layered(fast, durable) => format!("{} {}", redis(fast), sql(durable, 1)),
            Self::Sentinel(setup) => sentinel_url(setup),
        }
    }

    /// Processes that share the store.
    pub(crate) fn seats(&self) -> u32 {
        match self {
            Self::Local(url) if url.is_empty() => 1,
            _ => SEATS,
        }
    }
}
