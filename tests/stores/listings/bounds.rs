//! A step examines a bounded number of records of any table.

use idem_tests::shop::assert_contains;
use std::sync::Arc;
use std::time::Duration;

use idem_harness::{MariaDbServer, PostgresServer, RedisServer};
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::sql::{Backend, MySqlStore, PostgresStore, SqlStoreBuilder};
use idem_runtime::{
    admin::EntryFilter,
    store::{Store, author::ListRequest},
};
use idem_tests::shop::until;

use super::filled::{PREFIX, fill};

/// The most records that a step examines, and a statement's further reads.
const BOUND: u64 = 1_000 + 50;
/// Time-out of a store that 64 tasks fill, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

async fn sql<B: Backend>(store: SqlStoreBuilder<B>) -> Arc<dyn Store> {
    let store = store.response_timeout(PATIENCE).connect().await.unwrap();
    store.migrate().await.unwrap();
    Arc::new(store)
}

fn unknown() -> ListRequest {
    let mut request = ListRequest::new(PREFIX.into());
    request.filter = EntryFilter::Unknown;
    request.limit = 1_000;
    request
}

/// Lists all unknown records of a store of 5,000; returns the number of steps.
async fn steps(store: &dyn Store) -> u64 {
    let mut request = unknown();
    let (mut steps, mut found) = (0, 0);
    loop {
        let reply = store.list(&request).await.unwrap();
        steps += 1;
        found += reply.found.len();
        request.after = reply.next;
        if request.after.is_none() {
            break;
        }
    }
    assert_eq!(found, 100);
    assert!((5..=16).contains(&steps), "{steps} steps");
    steps
}

fn status(server: &MariaDbServer) -> u64 {
    let read = server.execute("SHOW GLOBAL STATUS LIKE 'Handler_read_%'");
    let lines = read
        .lines()
        .filter(|line| !line.contains("_tmp") && !line.contains("rnd"));
    let counts = lines.map(|line| line.rsplit('\t').next().unwrap().parse::<u64>().unwrap());
    counts.sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_reads_a_block_of_mariadb() {
    let server = MariaDbServer::start();
    let store = sql(MySqlStore::builder(server.url())).await;
    fill(&store, PREFIX, 0..5_000).await;
    let before = status(&server);
    let steps = steps(&store).await;
    let read = status(&server) - before;
    // This server reads a block once to filter it, and once for its last row.
    assert!((1..=2 * steps * BOUND).contains(&read), "{read} rows read");
}

/// Rows read by all other connections. A connection publishes its count at its end, at the latest.
async fn rows_read(server: &PostgresServer) -> u64 {
    until("the connections of the store end", || {
        let left = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'idem' AND pid <> pg_backend_pid()";
        server.execute(left) == "0"
    })
    .await;
    let read = "SELECT coalesce(idx_tup_fetch, 0) + seq_tup_read FROM pg_stat_user_tables \
                WHERE relname = 'idem_records'";
    server.execute(read).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_reads_a_block_of_postgres() {
    let server = PostgresServer::start();
    let store = sql(PostgresStore::builder(server.url())).await;
    fill(&store, PREFIX, 0..5_000).await;
    drop(store);
    // The server would update its statistics by itself a minute later.
    server.execute("ANALYZE idem_records");
    let before = rows_read(&server).await;
    let store = sql(PostgresStore::builder(server.url())).await;
    let mut request = unknown();
    for _ in 0..3 {
        request.after = store.list(&request).await.unwrap().next;
    }
    assert!(request.after.is_some(), "4,950 are not over after 3 steps");
    drop(store);
    let read = rows_read(&server).await - before;
    assert!((1..=3 * BOUND).contains(&read), "{read} rows read");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_scans_some_keys_of_redis_and_no_answer() {
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url()).response_timeout(PATIENCE);
    let store: Arc<dyn Store> = Arc::new(store.connect().await.unwrap());
    fill(&store, PREFIX, 0..5_000).await;
    server.cli(&["CONFIG", "RESETSTAT"]);
    let steps = steps(&store).await;
    let stats = server.cli(&["INFO", "commandstats"]);
    assert_contains(&stats, &format!("cmdstat_scan:calls={steps},"));
    for never in ["cmdstat_keys:", "cmdstat_get:"] {
        assert!(!stats.contains(never), "{stats}");
    }
}
