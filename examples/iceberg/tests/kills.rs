//! A catalog that is killed again and again, in the middle of transactions.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use idem_harness::{PostgresServer, TcpProxy, TestDir, Worker};
use serde_json::Value;
use sqlx::PgPool;

use crate::pyiceberg::{expected, run, share_a_table, tables};

/// The number of requests for a change until the catalog is killed.
const EVERY: usize = 7;

fn serve(database: &str, warehouse: &TestDir, addr: &str) -> (Worker, SocketAddr) {
    let catalog = Worker::program(env!("CARGO_BIN_EXE_idem-iceberg"));
    let catalog = catalog.env("DATABASE_URL", database);
    let catalog = catalog.env("TMPDIR", warehouse.path());
    let mut catalog = catalog.arg(addr).spawn();
    let addr = catalog.line_after("http://").parse().unwrap();
    (catalog, addr)
}

/// Runs the clients, and returns how often the catalog was killed, and their errors.
fn under_kills(database: String) -> (u64, Vec<Value>) {
    let warehouse = TestDir::new("warehouse").unwrap();
    let (mut catalog, addr) = serve(&database, &warehouse, "127.0.0.1:0");
    share_a_table(&format!("http://{addr}"));
    let (sender, changes) = mpsc::channel();
    let proxy = TcpProxy::http(addr, move |request| {
        if !request.starts_with(b"GET ") {
            let _ = sender.send(());
        }
        None
    });
    let killer = thread::spawn(move || {
        let mut kills = 0;
        while changes.iter().take(EVERY).count() == EVERY {
            // Each time at another point of what it does.
            thread::sleep(Duration::from_millis(kills % 10));
            catalog.kill9();
            kills += 1;
            (catalog, _) = serve(&database, &warehouse, &addr.to_string());
        }
        kills
    });
    let errors = run(&format!("http://{}", proxy.addr()), true);
    // Its end is the end of the changes.
    proxy.finish();
    (killer.join().unwrap(), errors)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_operation_is_applied_once() {
    let server = PostgresServer::start();
    let database = server.url();
    let clients = tokio::task::spawn_blocking(move || under_kills(database));
    let (kills, errors) = clients.await.unwrap();
    assert_eq!(errors, Vec::<Value>::new());
    let pool = PgPool::connect(&server.url()).await.unwrap();
    assert_eq!(tables(&pool).await, expected());
    assert!(kills > 8, "{kills}");
}
