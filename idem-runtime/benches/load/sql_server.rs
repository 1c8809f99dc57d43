//! The databases that are measured.

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use idem_harness::{MariaDbServer, PostgresServer, TestDir};
use idem_runtime::Engine;
use idem_runtime::store::layered::LayeredStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::sql::{Backend, MySqlStore, PostgresStore, SqlStore, SqliteStore};
use idem_runtime::store::{Store, StoreError};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use tokio::runtime::Runtime;

use super::order::merchant;
use super::sql_raw::mysql::MySql;
use super::sql_raw::postgres::Postgres;
use super::sql_raw::sqlite::Sqlite;
use super::sql_raw::{Calls, Dialect, Kind, Options, Raw};
use super::suite::Suite;

/// All of them. `_nosync`: without waiting for the disk, so that the processors' work shows; only where it is asked for
/// by name.
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

    /// How long idem distrusts a read: see `MySqlStore`.
    pub(crate) fn youth(&self) -> Duration {
        match self {
            Self::MySql(_) => Duration::from_millis(3_100),
            _ => Duration::ZERO,
        }
    }

    /// An engine on its own connections, with Redis in front if given.
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
                    let source = sqlite(dir, *synchronous);
                    migrated(SqliteStore::connect(source).await).await
                }
                Self::Postgres(server) => {
                    migrated(PostgresStore::connect(server.url()).await).await
                }
                Self::MySql(server) => migrated(MySqlStore::connect(server.url()).await).await,
            }
        })
    }

    /// Engines on other clients' connections, by name, with one for replays.
    #[cfg(feature = "tokio-postgres")]
    pub(crate) fn engines_by_others(&self, runtime: &Runtime) -> Vec<(&'static str, [Engine; 2])> {
        let Self::Postgres(server) = self else {
            return Vec::new();
        };
        let config: tokio_postgres::Config = server.url().parse().unwrap();
        let engine = |named| {
            let store = PostgresStore::builder(config.clone()).named_statements(named);
            Engine::new(runtime.block_on(async { migrated(store.connect().await).await }))
        };
        [
            ("idem_tokio_postgres", false),
            ("idem_tokio_postgres_named", true),
        ]
        .map(|(client, named)| (client, [(); 2].map(|()| engine(named))))
        .into()
    }

    #[cfg(not(feature = "tokio-postgres"))]
    pub(crate) fn engines_by_others(&self, _: &Runtime) -> Vec<(&'static str, [Engine; 2])> {
        Vec::new()
    }

    /// Adds the statements of sqlx alone as these cases, by these names.
    pub(crate) fn add_raw(
        &self,
        suite: &mut Suite<'_>,
        value_bytes: usize,
        cases: &[(&'static str, &'static str, Kind)],
    ) {
        match self {
            Self::Sqlite(dir, synchronous) => {
                add::<Sqlite>(suite, &sqlite(dir, *synchronous), value_bytes, cases);
            }
            Self::Postgres(server) => {
                let options = PgConnectOptions::from_str(&server.url()).unwrap();
                add::<Postgres>(suite, &options, value_bytes, cases);
            }
            Self::MySql(server) => {
                let options = MySqlConnectOptions::from_str(&server.url()).unwrap();
                add::<MySql>(suite, &options, value_bytes, cases);
            }
        }
    }
}

fn add<D: Dialect>(
    suite: &mut Suite<'_>,
    options: &Options<D>,
    value_bytes: usize,
    cases: &[(&'static str, &'static str, Kind)],
) {
    for (case, made_by, kind) in cases {
        let raw = Raw::<D>::new(options.clone(), value_bytes, merchant());
        let raw = suite.runtime.block_on(raw);
        suite.add(case, made_by, Calls(raw, *kind));
    }
}

async fn migrated<B: Backend>(connected: Result<SqlStore<B>, StoreError>) -> Arc<dyn Store> {
    let store = connected.unwrap();
    store.migrate().await.unwrap();
    Arc::new(store)
}

/// As the store opens it, but for how it syncs.
fn sqlite(dir: &TestDir, synchronous: SqliteSynchronous) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(dir.path().join("load.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(synchronous)
        .busy_timeout(Duration::from_secs(5))
}
