//! The databases that are measured.

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use idem_harness::{MariaDbServer, PostgresServer, TestDir};
use idem_runtime::Engine;
use idem_runtime::store::Store;
use idem_runtime::store::layered::LayeredStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::sql::{MySqlStore, PostgresStore, SqlSource, SqliteStore};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use tokio::runtime::Runtime;

/// All of them. `_nosync`: without waiting for the disk, so that what the processors do shows; only
/// where it is asked for by name.
pub(crate) const STORES: [&str; 6] = [
    "sqlite_full",
    "sqlite_normal",
    "postgres",
    "mysql",
    "postgres_nosync",
    "mysql_nosync",
];

/// A database in a directory or a process of our own.
pub(crate) enum Database {
    Sqlite(TestDir, SqliteSynchronous),
    Postgres(PostgresServer),
    MySql(MariaDbServer),
}

impl Database {
    pub(crate) fn start(name: &str) -> Self {
        match name {
            "sqlite_full" => Self::Sqlite(TestDir::new("load").unwrap(), SqliteSynchronous::Full),
            "sqlite_normal" => {
                Self::Sqlite(TestDir::new("load").unwrap(), SqliteSynchronous::Normal)
            }
            "postgres" => Self::Postgres(PostgresServer::builder().durable().start()),
            "postgres_nosync" => Self::Postgres(PostgresServer::start()),
            "mysql" => Self::MySql(MariaDbServer::builder().durable().start()),
            "mysql_nosync" => Self::MySql(MariaDbServer::start()),
            other => panic!("`{other}` is no database"),
        }
    }

    /// Whether idem can be told to keep its records so: it always syncs a file.
    pub(crate) fn suits_idem(&self) -> bool {
        !matches!(self, Self::Sqlite(_, SqliteSynchronous::Normal))
    }

    /// How long idem does not trust what it reads: see `MySqlStore`.
    pub(crate) fn youth(&self) -> Duration {
        match self {
            Self::MySql(_) => Duration::from_millis(3_100),
            _ => Duration::ZERO,
        }
    }

    /// An engine on connections of its own, with this Redis in front of the database if there is one.
    pub(crate) fn engine(&self, runtime: &Runtime, redis: Option<&str>) -> Engine {
        let store = self.store(runtime);
        let Some(redis) = redis else {
            return Engine::new(store);
        };
        let fast = runtime.block_on(RedisStore::connect(redis)).unwrap();
        Engine::new(LayeredStore::new(fast, store))
    }

    /// A store on connections of its own.
    pub(crate) fn store(&self, runtime: &Runtime) -> Arc<dyn Store> {
        runtime.block_on(async {
            match self {
                Self::Sqlite(dir, synchronous) => {
                    let source = SqlSource::options(sqlite(dir, *synchronous));
                    let store = SqliteStore::connect(source).await.unwrap();
                    store.migrate().await.unwrap();
                    Arc::new(store) as Arc<dyn Store>
                }
                Self::Postgres(server) => {
                    let store = PostgresStore::connect(server.url()).await.unwrap();
                    store.migrate().await.unwrap();
                    Arc::new(store)
                }
                Self::MySql(server) => {
                    let store = MySqlStore::connect(server.url()).await.unwrap();
                    store.migrate().await.unwrap();
                    Arc::new(store)
                }
            }
        })
    }
}

/// As the store opens it, but for how it syncs.
pub(crate) fn sqlite(dir: &TestDir, synchronous: SqliteSynchronous) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(dir.path().join("load.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(synchronous)
        .busy_timeout(Duration::from_secs(5))
}

pub(crate) fn postgres(server: &PostgresServer) -> PgConnectOptions {
    PgConnectOptions::from_str(&server.url()).unwrap()
}

pub(crate) fn mysql(server: &MariaDbServer) -> MySqlConnectOptions {
    MySqlConnectOptions::from_str(&server.url()).unwrap()
}
