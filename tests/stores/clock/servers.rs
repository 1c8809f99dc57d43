//! Servers whose clock a test can step.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use idem_harness::{Edition, FakeClock, MariaDbServer, PostgresServer, RedisServer};
use idem_runtime::store::Store;
use idem_runtime::store::sql::{Backend, MySql, Postgres, SqlStore};
use idem_tests::shop::{PATIENCE, connect};

/// A server with a store of records.
pub(crate) trait ClockedServer: Send + Sync + Sized + 'static {
    fn start(clock: &FakeClock) -> Self;

    /// The URL with this address.
    fn url(at: SocketAddr) -> String;

    fn addr(&self) -> SocketAddr;

    /// A store as in another process: with separate connections.
    fn open(url: &str) -> impl Future<Output = Arc<dyn Store>> + Send;

    /// The same for this server.
    fn store(&self) -> impl Future<Output = Arc<dyn Store>> + Send {
        let url = Self::url(self.addr());
        async move { Self::open(&url).await }
    }

    fn restart(&self);
}

pub(crate) struct InRedis(RedisServer);

impl ClockedServer for InRedis {
    fn start(clock: &FakeClock) -> Self {
        let server = RedisServer::builder().version(Edition::Redis8);
        // A restart forgets nothing.
        Self(server.clock(clock).append_only_always().start())
    }

    fn url(at: SocketAddr) -> String {
        format!("redis://{at}")
    }

    fn addr(&self) -> SocketAddr {
        self.0.addr()
    }

    async fn open(url: &str) -> Arc<dyn Store> {
        Arc::new(connect(url).await.unwrap())
    }

    fn restart(&self) {
        self.0.restart();
    }
}

async fn open<B: Backend>(url: &str) -> Arc<dyn Store> {
    let store = SqlStore::<B>::builder(url).response_timeout(PATIENCE);
    let store = store.connect().await.unwrap();
    store.migrate().await.unwrap();
    Arc::new(store)
}

macro_rules! in_database {
    ($server:ident: $process:ident, $kind:ident, $scheme:literal) => {
        pub(crate) struct $server($process);

        impl ClockedServer for $server {
            fn start(clock: &FakeClock) -> Self {
                Self($process::builder().clock(clock).start())
            }

            fn url(at: SocketAddr) -> String {
                format!("{}://idem@{at}/idem", $scheme)
            }

            fn addr(&self) -> SocketAddr {
                self.0.addr()
            }

            async fn open(url: &str) -> Arc<dyn Store> {
                open::<$kind>(url).await
            }

            fn restart(&self) {
                self.0.restart();
            }
        }
    };
}

in_database!(InPostgres: PostgresServer, Postgres, "postgres");
in_database!(InMariaDb: MariaDbServer, MySql, "mysql");

/// Runs each named test on every server: `redis::name`, `postgres::name` and `mariadb::name`.
macro_rules! on_each_server {
    ($($name:ident),* $(,)?) => {
        $crate::clock::servers::on!(redis, InRedis: $($name)*);
        $crate::clock::servers::on!(postgres, InPostgres: $($name)*);
        $crate::clock::servers::on!(mariadb, InMariaDb: $($name)*);
    };
}

macro_rules! on {
    ($module:ident, $server:ident: $($name:ident)*) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name::<$crate::clock::servers::$server>().await;
                }
            )*
        }
    };
}

pub(crate) use {on, on_each_server};
