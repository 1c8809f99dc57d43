//! The stores that are measured, and the servers that they are on.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use idem_harness::{DatabaseServer, MariaDbServer, PostgresServer, RedisServer, TestDir};
use idem_runtime::store::Store;
use idem_runtime::store::layered::LayeredStore;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::sql::{MySqlStore, PostgresStore, SqliteStore};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Executor as _};

pub(crate) const STORES: [&str; 7] = [
    "memory",
    "sqlite",
    "redis",
    "postgres",
    "mariadb",
    "redis+postgres",
    "memory+sqlite",
];

/// How long the lock of a SQLite file may take to get.
const PATIENCE: Duration = Duration::from_mins(1);

/// Where the records of a store are.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum Place {
    Memory,
    Sqlite(PathBuf),
    Redis(String),
    Postgres(String),
    MariaDb(String),
    RedisOverPostgres { redis: String, postgres: String },
    MemoryOverSqlite(PathBuf),
}

impl Place {
    /// The store on new connections, with its default settings; `memory` where a part of it is in memory.
    pub(crate) async fn store(&self, memory: MemoryStore) -> Arc<dyn Store> {
        match self {
            Self::Memory => Arc::new(memory),
            Self::Sqlite(file) => Arc::new(sqlite(file).await),
            Self::Redis(url) => Arc::new(RedisStore::connect(url.as_str()).await.unwrap()),
            Self::Postgres(url) => Arc::new(postgres(url).await),
            Self::MariaDb(url) => {
                let store = MySqlStore::connect(url).await.unwrap();
                store.migrate().await.unwrap();
                Arc::new(store)
            }
            Self::RedisOverPostgres {
                redis,
                postgres: url,
            } => {
                let fast = RedisStore::connect(redis.as_str()).await.unwrap();
                Arc::new(LayeredStore::new(fast, postgres(url).await))
            }
            Self::MemoryOverSqlite(file) => Arc::new(LayeredStore::new(memory, sqlite(file).await)),
        }
    }
}

async fn sqlite(file: &std::path::Path) -> SqliteStore {
    let url = format!("sqlite:{}", file.display());
    let store = SqliteStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    store
}

async fn postgres(url: &str) -> PostgresStore {
    let store = PostgresStore::connect(url).await.unwrap();
    store.migrate().await.unwrap();
    store
}

/// The servers of one store, which end with this value. Databases sync each commit to disk.
#[derive(Debug)]
pub(crate) struct Stand {
    place: Place,
    redis: Option<RedisServer>,
    durable: Option<Durable>,
}

#[derive(Debug)]
enum Durable {
    File(TestDir),
    Postgres(PostgresServer),
    MariaDb(MariaDbServer),
}

impl Stand {
    /// Starts the servers of the store of this name, with nothing in them.
    pub(crate) fn start(store: &str) -> Self {
        let postgres = || PostgresServer::builder().durable().start();
        let dir = || TestDir::new("overload").unwrap();
        let file = |dir: &TestDir| dir.path().join("records.db");
        let (mut redis, mut durable) = (None, None);
        let place = match store {
            "memory" => Place::Memory,
            "sqlite" | "memory+sqlite" => {
                let dir = dir();
                let file = file(&dir);
                durable = Some(Durable::File(dir));
                match store {
                    "sqlite" => Place::Sqlite(file),
                    _ => Place::MemoryOverSqlite(file),
                }
            }
            "redis" => Place::Redis(redis.insert(RedisServer::start()).url()),
            "postgres" => {
                let server = postgres();
                let url = server.url();
                durable = Some(Durable::Postgres(server));
                Place::Postgres(url)
            }
            "mariadb" => {
                let server = MariaDbServer::builder().durable().start();
                let url = server.url();
                durable = Some(Durable::MariaDb(server));
                Place::MariaDb(url)
            }
            "redis+postgres" => {
                let server = postgres();
                let postgres = server.url();
                durable = Some(Durable::Postgres(server));
                let redis = redis.insert(RedisServer::start()).url();
                Place::RedisOverPostgres { redis, postgres }
            }
            other => panic!("`{other}` is no store"),
        };
        Self {
            place,
            redis,
            durable,
        }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Whether there is anything to stop.
    pub(crate) fn has_server(store: &str) -> bool {
        store != "memory"
    }

    /// Stops the server for so long with SIGSTOP: the durable one where there are two. A file has none, and
    /// another connection holds its write lock instead.
    pub(crate) fn stop(&self, time: Duration) {
        let server: &DatabaseServer = match (&self.durable, &self.redis) {
            (Some(Durable::Postgres(server)), _) => server,
            (Some(Durable::MariaDb(server)), _) => server,
            (Some(Durable::File(dir)), _) => {
                return lock(&dir.path().join("records.db"), time);
            }
            (None, Some(redis)) => {
                redis.pause();
                sleep(time);
                return redis.resume();
            }
            (None, None) => return,
        };
        server.pause();
        sleep(time);
        server.resume();
    }
}

fn lock(file: &std::path::Path, time: Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .busy_timeout(PATIENCE);
        let mut connection = options.connect().await.unwrap();
        connection.execute("BEGIN IMMEDIATE").await.unwrap();
        tokio::time::sleep(time).await;
        connection.execute("ROLLBACK").await.unwrap();
    });
}
