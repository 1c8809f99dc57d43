//! Stores of each kind.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use idem_harness::{PostgresServer, RedisServer, TestDir};
use idem_runtime::store::Store;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::sql::{Backend, SqlStore};
pub(crate) use idem_tests::shop::{PATIENCE, patiently};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Memory,
    Redis,
    Sqlite,
    Postgres,
}

/// A number for a database or prefix of one test's own.
pub(crate) fn number() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}_{number}", std::process::id())
}

/// A store of this kind; the file of SQLite is removed with the directory.
pub(crate) async fn open(kind: Kind) -> (Arc<dyn Store>, Option<TestDir>) {
    static REDIS: OnceLock<RedisServer> = OnceLock::new();
    static POSTGRES: OnceLock<PostgresServer> = OnceLock::new();
    match kind {
        Kind::Memory => (Arc::new(MemoryStore::new()), None),
        Kind::Redis => {
            let url = REDIS.get_or_init(RedisServer::start).url();
            (Arc::new(RedisStore::connect(&url).await.unwrap()), None)
        }
        Kind::Sqlite => {
            let dir = TestDir::new("identity").unwrap();
            let url = format!("sqlite:{}?mode=rwc", dir.path().join("shop.db").display());
            let store = sql::<idem_runtime::store::sql::Sqlite>(&url).await;
            (store, Some(dir))
        }
        Kind::Postgres => {
            let server = POSTGRES.get_or_init(PostgresServer::start);
            let url = server.create_database(&format!("identity_{}", number()));
            (sql::<idem_runtime::store::sql::Postgres>(&url).await, None)
        }
    }
}

async fn sql<B: Backend + std::fmt::Debug>(url: &str) -> Arc<dyn Store> {
    let builder = SqlStore::<B>::builder(url).connections(4);
    let store = builder.response_timeout(PATIENCE).connect().await.unwrap();
    store.migrate().await.unwrap();
    Arc::new(store)
}
