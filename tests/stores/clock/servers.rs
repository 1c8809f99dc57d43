//! Servers whose clock a test can step.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use idem_harness::{Edition, FakeClock, MariaDbServer, PostgresServer, RedisServer, Server};
use idem_runtime::store::Store;
use idem_runtime::store::sql::{MySql, Postgres, SqlStore};
use idem_tests::shop::{PATIENCE, connect};

pub(crate) trait ClockedServer: Send + Sync + Sized + 'static {
    fn start_by(clock: &FakeClock) -> Self;

    fn server(&self) -> &Server;

    /// A store as in another process: with separate connections.
    fn store_at(at: SocketAddr) -> impl Future<Output = Arc<dyn Store>> + Send;

    /// The same for this server.
    fn store(&self) -> impl Future<Output = Arc<dyn Store>> + Send {
        Self::store_at(self.server().addr())
    }
}

impl ClockedServer for RedisServer {
    fn start_by(clock: &FakeClock) -> Self {
        // A restart forgets nothing.
        let server = Self::builder().version(Edition::Redis8).clock(clock);
        server.append_only_always().start()
    }

    fn server(&self) -> &Server {
        self
    }

    async fn store_at(at: SocketAddr) -> Arc<dyn Store> {
        Arc::new(connect(format!("redis://{at}")).await.unwrap())
    }
}

macro_rules! in_database {
    ($server:ident, $kind:ident, $scheme:literal) => {
        impl ClockedServer for $server {
            fn start_by(clock: &FakeClock) -> Self {
                Self::builder().clock(clock).start()
            }

            fn server(&self) -> &Server {
                self
            }

            async fn store_at(at: SocketAddr) -> Arc<dyn Store> {
                let url = format!("{}://idem@{at}/idem", $scheme);
                let store = SqlStore::<$kind>::builder(url).response_timeout(PATIENCE);
                let store = store.connect().await.unwrap();
                store.migrate().await.unwrap();
                Arc::new(store)
            }
        }
    };
}

in_database!(PostgresServer, Postgres, "postgres");
in_database!(MariaDbServer, MySql, "mysql");

/// Runs each named test on every server: `redis::name`, `postgres::name` and `mariadb::name`.
macro_rules! on_each_server {
    (@ $module:ident, $server:ident: $($name:ident)*) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name::<idem_harness::$server>().await;
                }
            )*
        }
    };
    ($($name:ident),* $(,)?) => {
        on_each_server!(@ redis, RedisServer: $($name)*);
        on_each_server!(@ postgres, PostgresServer: $($name)*);
        on_each_server!(@ mariadb, MariaDbServer: $($name)*);
    };
}

pub(crate) use on_each_server;
