//! A catalog that is killed repeatedly in the middle of transactions.

use std::net::SocketAddr;
use std::thread;

use idem_harness::{PostgresServer, TestDir, Worker, eventually};
use serde_json::Value;
use sqlx::{Connection as _, PgConnection, PgPool, raw_sql};
use tokio::runtime::Handle;

use crate::pyiceberg::{expected, run, share_a_table, tables};

/// Interval of steps at which a transaction stops for the lock: a claim, a change of a table, a completion, or a
/// commit.
const STOPS: &str = "
CREATE SEQUENCE steps;
CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('steps') % 23 = 0 THEN
        PERFORM pg_advisory_xact_lock_shared(23);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER step AFTER INSERT OR UPDATE ON idem_records FOR EACH ROW EXECUTE FUNCTION stop();
CREATE TRIGGER step AFTER INSERT OR UPDATE OR DELETE ON tables FOR EACH ROW EXECUTE FUNCTION stop();
CREATE CONSTRAINT TRIGGER last_step AFTER INSERT OR UPDATE OR DELETE ON tables
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION stop()";

const LOCK: &str = "SELECT pg_advisory_lock(23)";
const UNLOCK: &str = "SELECT pg_advisory_unlock(23)";
const STOPPED: &str =
    "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)";

fn serve(database: &str, warehouse: &TestDir, addr: &str) -> (Worker, SocketAddr) {
    let catalog = Worker::program(env!("CARGO_BIN_EXE_idem-iceberg"));
    let catalog = catalog.env("DATABASE_URL", database);
    let catalog = catalog.env("TMPDIR", warehouse.path());
    let mut catalog = catalog.arg(addr).spawn();
    let addr = catalog.line_after("http://").parse().unwrap();
    (catalog, addr)
}

/// Runs the clients. Returns the number of kills of the catalog, and the clients' errors.
fn under_kills(database: &str) -> (u64, Vec<Value>) {
    let warehouse = TestDir::new("warehouse").unwrap();
    let (mut catalog, addr) = serve(database, &warehouse, "127.0.0.1:0");
    let base = format!("http://{addr}");
    share_a_table(&base);
    let runtime = Handle::current();
    let control = PgConnection::connect(database);
    let mut control = runtime.block_on(control).unwrap();
    for sql in [STOPS, LOCK] {
        let run = raw_sql(sql).execute(&mut control);
        runtime.block_on(run).unwrap();
    }
    let clients = thread::spawn(move || run(&base, true));
    let mut kills = 0;
    loop {
        eventually("a transaction stops, or the clients end", || {
            let stopped = sqlx::query_scalar(STOPPED).fetch_one(&mut control);
            clients.is_finished() || runtime.block_on(stopped).unwrap()
        });
        if clients.is_finished() {
            return (kills, clients.join().unwrap());
        }
        catalog.kill9();
        kills += 1;
        // The transaction ends with its connection, unless it stopped at its commit.
        for sql in [UNLOCK, LOCK] {
            let run = raw_sql(sql).execute(&mut control);
            runtime.block_on(run).unwrap();
        }
        (catalog, _) = serve(database, &warehouse, &addr.to_string());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_operation_is_applied_once() {
    let server = PostgresServer::start();
    let database = server.url();
    let clients = tokio::task::spawn_blocking(move || under_kills(&database));
    let (kills, errors) = clients.await.unwrap();
    assert_eq!(errors, Vec::<Value>::new());
    let pool = PgPool::connect(&server.url()).await.unwrap();
    assert_eq!(tables(&pool).await, expected());
    assert!(kills > 8, "{kills}");
}
