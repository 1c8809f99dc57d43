//! A purge deletes expired records only, by one process at a time.

use std::time::Instant;

use idem_runtime::FOREVER;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::sql::PurgeTask;
use idem_tests::shop::engine;
use sqlx::MySqlConnection;
use tokio::runtime::Handle;

use super::prelude::*;

on_each_database!(
    expired_records_are_deleted,
    one_at_a_time_purges,
    a_failed_purge_is_reported_and_the_next_one_runs,
    a_dropped_purge_ends_and_is_followed,
);

const EXPIRED: i64 = -60_000_000;
const ALIVE: i64 = 3_600_000_000;
const ROWS: &str = "SELECT count(*) FROM idem_records WHERE op = 'filled'";
const SECOND: Duration = Duration::from_secs(1);
const YEAR: Duration = Duration::from_hours(24 * 365);

fn alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

async fn expired_records_are_deleted<B: Database>() {
    let (test_database, store) = opened::<B>().await;
    test_database.sql(&B::filled(2_500, EXPIRED)).await;
    test_database.sql(&B::filled(100, ALIVE)).await;
    let fixture = Fixture::on(&store);
    let kept = Fixture::with(&store, |engine| engine.ttl(FOREVER));
    let forever = kept.pay("kept").await.unwrap();
    let began = Instant::now();
    let purges = async |_| {
        let pause = Duration::from_millis(100);
        let purge = Purge::default().batch(1_000).pause(pause);
        assert_eq!(store.purge(purge).await.unwrap(), 2_500);
        assert!(began.elapsed() >= pause * 2);
        Ok(())
    };
    let running = fixture.pay_by("running", purges).await.unwrap();
    assert_eq!(store.purge(Purge::default()).await.unwrap(), 0);
    assert_eq!(test_database.sql(ROWS).await, "100");
    assert_eq!(fixture.pay("running").await.unwrap(), running);
    assert_eq!(kept.pay("kept").await.unwrap(), forever);
    store.age(YEAR * 20).await.unwrap();
    assert_eq!(store.purge(Purge::default()).await.unwrap(), 101);
    assert_eq!(kept.pay("kept").await.unwrap(), forever);
    assert_eq!((fixture.effects("running"), kept.effects("kept")), (1, 1));
}

#[test]
fn a_store_that_drops_records_refuses_an_eternal_one() {
    let built = Engine::builder(MemoryStore::new()).ttl(FOREVER).build();
    assert_eq!(built.unwrap_err().kind(), &ErrorKind::InvalidPolicy);
}

async fn deletes(task: &PurgeTask, records: u64) {
    until("it is deleted", || task.deleted() >= records).await;
}

/// As long as a few dozen writes take.
async fn a_moment<B: Database>(store: &SqlStore<B>) {
    for _ in 0..50 {
        store.age(Duration::ZERO).await.unwrap();
    }
}

async fn one_at_a_time_purges<B: Database>() {
    let (test_database, store) = opened::<B>().await;
    let other = open::<B>(&test_database.url).await;
    test_database.sql(&B::filled(1_000, EXPIRED)).await;
    let purge = Purge::default().batch(100).pause(Duration::from_millis(10));
    let purge = purge.every(Duration::from_hours(1));
    let tasks = [store.spawn_purge(purge), other.spawn_purge(purge)];
    let deleted = || tasks.iter().map(PurgeTask::deleted).collect::<Vec<_>>();
    until("all is deleted", || deleted().iter().sum::<u64>() == 1_000).await;
    let all = "SELECT count(*) FROM idem_records WHERE state = 'T'";
    test_database.until("1", all).await;
    assert!(deleted().contains(&1_000), "{:?}", deleted());

    // No process purges again before an hour has passed.
    test_database.sql(&B::filled(10, EXPIRED)).await;
    let before = alive();
    let impatient = other.spawn_purge(purge.every(SECOND));
    a_moment(&store).await;
    assert_eq!(test_database.sql(ROWS).await, "10");
    drop(impatient);
    until("it has ended", || alive() == before).await;
    store.age(Duration::from_hours(1)).await.unwrap();
    let next = store.spawn_purge(purge);
    deletes(&next, 10).await;
    assert_eq!(test_database.sql(ROWS).await, "0");
    assert!(next.error().is_none());
}

async fn a_failed_purge_is_reported_and_the_next_one_runs<B: Database>() {
    let (test_database, store) = opened::<B>().await;
    test_database
        .sql("ALTER TABLE idem_records RENAME TO elsewhere")
        .await;
    let task = store.spawn_purge(Purge::default().every(SECOND));
    until("it fails", || task.error().is_some()).await;
    let failed = Err::<(), _>(task.error().unwrap());
    assert_says(failed, Refused, &["`migrate()`"]);
    test_database
        .sql("ALTER TABLE elsewhere RENAME TO idem_records")
        .await;
    test_database.sql(&B::filled(10, EXPIRED)).await;
    deletes(&task, 10).await;
    until("it is well", || task.error().is_none()).await;
}

/// Its claim of the purge is not released, like a dead process's.
async fn a_dropped_purge_ends_and_is_followed<B: Database>() {
    let (test_database, store) = opened::<B>().await;
    test_database.sql(&B::filled(100, EXPIRED)).await;
    let before = alive();
    let slow = Purge::default().batch(1).pause(Duration::from_secs(10));
    let task = store.spawn_purge(slow);
    test_database.until("99", ROWS).await;
    drop(task);
    until("it has ended", || alive() == before).await;
    let early = store.spawn_purge(Purge::default());
    a_moment(&store).await;
    assert_eq!(early.deleted(), 0);
    drop(early);
    store.age(Duration::from_secs(31)).await.unwrap();
    let task = store.spawn_purge(Purge::default());
    deletes(&task, 99).await;
    assert_eq!(test_database.sql(ROWS).await, "0");
}

/// Of 100,000 records, the expired ones are found by the index.
async fn filled_server<B: Server>(settings: &[(&str, &str)]) -> Served {
    let server = B::serve(settings);
    let store = open::<B>(&server.url()).await;
    server.execute(&B::filled(100_000, ALIVE));
    server.execute(&B::filled(500, EXPIRED));
    server.execute(if B::POSTGRES {
        "VACUUM ANALYZE idem_records; SELECT pg_stat_reset()"
    } else {
        "ANALYZE TABLE idem_records; FLUSH TABLE_STATISTICS; FLUSH INDEX_STATISTICS"
    });
    let purge = Purge::default().batch(100).pause(Duration::ZERO);
    assert_eq!(store.purge(purge).await.unwrap(), 500);
    // The server publishes a connection's statistics at its end, at the latest.
    drop(store);
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_uses_the_index() {
    let server = filled_server::<Postgres>(&[]).await;
    let scans = "SELECT seq_scan, idx_scan FROM pg_stat_user_tables WHERE relname = 'idem_records'";
    until("the scans are counted", || server.execute(scans) != "0|0").await;
    assert!(
        server.execute(scans).starts_with("0|"),
        "it reads the whole table"
    );
    // Each batch meets the dead entries of the batches before it. In the order of the index alone, the last batch
    // would read all live entries as well.
    let read = "SELECT idx_tup_read FROM pg_stat_user_indexes \
                WHERE indexrelname = 'idem_records_expires'";
    let read: u64 = server.execute(read).parse().unwrap();
    assert!(
        (500..10_000).contains(&read),
        "{read} entries were read for 500"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_uses_the_index() {
    let server = filled_server::<MySql>(&[("userstat", "1")]).await;
    let read = "SELECT rows_read FROM information_schema.table_statistics \
                WHERE table_schema = 'idem' AND table_name = 'idem_records'";
    let number = || server.execute(read).parse::<u64>().unwrap_or(0);
    until("the rows are counted", || number() > 0).await;
    // The entry, the row, and the row again when it is deleted.
    assert!(number() < 2_000, "{} rows were read for 500", number());
    let index = "SELECT count(*) FROM information_schema.index_statistics \
                 WHERE index_name = 'idem_records_expires' AND rows_read > 0";
    assert_eq!(server.execute(index), "1");
}

/// A purge meets a record that a transaction has locked. It must not wait for that lock while it holds
/// the locks of the other records that it is about to delete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_on_mysql_skips_records_that_a_transaction_has_locked() {
    let test_database = TestDatabase::new::<MySql>();
    let store = open::<MySql>(&test_database.url).await;
    let engine = engine(store.clone());
    let call = |key: &str| engine.operation("orders.create").key(key);
    for key in ["a", "b", "c"] {
        let answer: Result<u32, Error> = call(key).run(|_| async { Ok(1) }).await;
        assert_eq!(answer.unwrap(), 1);
        // They are deleted in this order.
        let expired = "UPDATE idem_records SET expires_us = \
            (SELECT n FROM (SELECT coalesce(max(expires_us) + 1, 1) AS n FROM idem_records \
             WHERE expires_us < 1000) AS x) WHERE expires_us > 1000; SELECT row_count()";
        assert_eq!(test_database.sql(expired).await, "1");
    }
    let mut conn = MySqlConnection::connect(&test_database.url).await.unwrap();
    let mut tx = conn.begin().await.unwrap();
    let answer: Result<u32, Error> = call("c").in_tx(&mut tx).run(async |_, _| Ok(2)).await;
    assert_eq!(answer.unwrap(), 2);
    assert_eq!(store.purge(Purge::default()).await.unwrap(), 2);
    let answer: Result<u32, Error> = call("a").run(|_| async { Ok(2) }).await;
    assert_eq!(answer.unwrap(), 2);
    tx.commit().await.unwrap();
}
