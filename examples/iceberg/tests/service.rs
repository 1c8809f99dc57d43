//! A catalog on a real port.

use std::net::SocketAddr;

use axum::Router;
use idem_harness::{PostgresServer, TestDir};
use idem_iceberg::catalog::Catalog;
use idem_iceberg::routes::routes;
use sqlx::PgPool;
use tokio::net::TcpListener;

pub(crate) struct Service {
    pub(crate) addr: SocketAddr,
    pub(crate) router: Router,
    /// Connections to the database of the catalog.
    pub(crate) pool: PgPool,
    _warehouse: TestDir,
    _server: PostgresServer,
}

impl Service {
    pub(crate) async fn start() -> Self {
        let server = PostgresServer::start();
        let warehouse = TestDir::new("warehouse").unwrap();
        let location = format!("file://{}", warehouse.path().display());
        let catalog = Catalog::open(&server.url(), &location).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let router = routes(catalog);
        let serve = axum::serve(listener, router.clone());
        tokio::spawn(serve.into_future());
        Self {
            addr,
            router,
            pool: PgPool::connect(&server.url()).await.unwrap(),
            _warehouse: warehouse,
            _server: server,
        }
    }
}
