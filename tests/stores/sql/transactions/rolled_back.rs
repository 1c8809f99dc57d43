//! `SQLite` rolls back by itself. sqlx still counts a transaction that no longer exists.

use idem_harness::in_own_process;
use sqlx::{SqliteConnection, SqlitePool};
use tokio::runtime::Runtime;

use super::ended::{assert_usable, pool_of_one};
use super::prelude::*;

async fn shop() -> (Fixture<Sqlite>, SqlitePool) {
    let fixture = Fixture::<Sqlite>::new().await;
    let pool = pool_of_one(&fixture);
    (fixture, pool)
}

/// Panics unless nothing of the call exists, and other calls run.
async fn assert_nothing(fixture: &Fixture<Sqlite>, pool: &SqlitePool, case: &str) {
    let there = fixture.kept("mine").await;
    assert_eq!(there, (0, 0), "{case}");
    assert_usable(case, fixture, pool).await;
}

/// The transaction ended before idem saw it: sqlx counts one already when the next begins.
#[tokio::test]
async fn before_idem_has_seen_the_connection() {
    for (text, _) in Sqlite::ENDS {
        for (rolls_back, own) in [(false, false), (true, false), (false, true), (true, true)] {
            let case = &format!("{text}, {rolls_back}, {own}");
            let (fixture, pool) = shop().await;
            let mut conn = pool.acquire().await.done();
            let mut tx = conn.begin().await.done();
            drop(Sqlite::execute(&mut tx, text).await);
            drop(tx);
            if rolls_back {
                // A savepoint: its rollback leaves open the transaction that it began.
                let mut tx = conn.begin().await.done();
                insert::<Sqlite>(&mut tx, "mine").await.done();
                tx.rollback().await.done();
            }
            let refused = if own {
                let refused = answered(fixture.order(), &mut conn).await;
                drop(conn);
                refused
            } else {
                drop(conn);
                let mut tx = pool.begin().await.done();
                answered(fixture.order(), &mut tx).await
            };
            assert_aborted(&refusal(refused));
            assert_nothing(&fixture, &pool, case).await;
        }
    }
}

/// From within, sqlx's nested transaction looks like one without its outer one.
#[tokio::test]
async fn within_two_transactions_of_sqlx() {
    let (fixture, pool) = shop().await;
    let mut tx = pool.begin().await.done();
    let mut inner = tx.begin().await.done();
    let error = refusal(answered(fixture.order(), &mut inner).await);
    assert_aborted(&error);
    assert!(error.to_string().contains("SAVEPOINT"), "{error}");
    inner.commit().await.expect_err("the connection is closed");
    tx.commit().await.expect_err("the connection is closed");
    assert_nothing(&fixture, &pool, "nested").await;
}

/// A commit of the caller that fails is a rollback.
#[tokio::test]
async fn a_commit_that_fails() {
    let (fixture, pool) = shop().await;
    let mut tx = pool.begin().await.done();
    assert_eq!(fixture.ordered(&mut tx).await, Ok(1));
    tx.lock_handle().await.done().set_commit_hook(|| false);
    tx.commit().await.expect_err("the hook refuses it");
    let mut conn = pool.acquire().await.done();
    conn.lock_handle().await.done().remove_commit_hook();
    drop(conn);
    assert_eq!(fixture.kept("mine").await, (0, 0), "of the caller");
    let mut tx = pool.begin().await.done();
    assert_aborted(&refusal(answered(fixture.order(), &mut tx).await));
    drop(tx);
    assert_nothing(&fixture, &pool, "of the caller").await;
}

/// A pending rollback does not count as a transaction of the caller.
#[tokio::test]
async fn a_rollback_on_its_way() {
    let (fixture, pool) = shop().await;
    let mut conn = pool.acquire().await.done();
    for run in 1..=50 {
        let mut tx = conn.begin().await.done();
        insert::<Sqlite>(&mut tx, "undone").await.done();
        drop(tx);
        let key = format!("order-{run}");
        let call = fixture.call_that_ends(&mut conn, |conn| &mut **conn, &key, End::Value);
        assert_eq!(call.await, Some(Ok(run)));
        assert_eq!(fixture.orders(&key).await, 1);
    }
    assert_eq!(fixture.orders("undone").await, 0);
}

/// Beyond so many blocks of a file, `SQLite` gets `SQLITE_IOERR_WRITE`.
#[test]
fn a_failing_disk() {
    let limits = "trap '' XFSZ; ulimit -f 1024";
    in_own_process(
        |process| process.after(limits),
        || Runtime::new().unwrap().block_on(where_files_are_small()),
    );
}

/// The statement writes more than the cache holds, and the commit less.
const SIZES: [(usize, bool); 2] = [(8_000_000, true), (1_200_000, false)];

async fn where_files_are_small() {
    for (bytes, in_statement) in SIZES {
        let case = &format!("{bytes} bytes");
        let fill = async |conn: &mut SqliteConnection| {
            let fill = format!("INSERT INTO orders SELECT hex(randomblob({}))", bytes / 2);
            let filled = Sqlite::execute(conn, &fill).await;
            assert_eq!(filled.is_err(), in_statement);
        };
        let (fixture, pool) = shop().await;
        let mut tx = pool.begin().await.done();
        let call = fixture.call_that_ends_after(&mut tx, |tx| tx, "mine", &fill, End::Value);
        let answer = call.await.expect("it ends");
        if in_statement {
            assert_aborted(&refusal(answer));
            drop(tx);
        } else {
            assert_eq!(answer, Ok(1));
            tx.commit().await.expect_err("the file is too large");
            let mut tx = pool.begin().await.done();
            assert_aborted(&refusal(answered(fixture.order(), &mut tx).await));
        }
        assert_nothing(&fixture, &pool, case).await;

        let (fixture, pool) = shop().await;
        let mut conn = pool.acquire().await.done();
        let call = fixture.call_that_ends_after(&mut conn, |conn| conn, "mine", &fill, End::Value);
        let error = refusal(call.await.expect("it ends"));
        if in_statement {
            assert_aborted(&error);
        } else {
            // After a failed commit the contents of the disk are unknown.
            assert_eq!(*error.kind(), ErrorKind::CommitUnknown);
        }
        assert_eq!(fixture.kept("mine").await, (0, 0), "{case}");
        let again = fixture.call_that_ends(&mut conn, |conn| &mut **conn, "mine", End::Value);
        assert_eq!(again.await, Some(Ok(2)));
        drop(conn);
        assert_eq!(fixture.orders("mine").await, 1);
        assert_usable(case, &fixture, &pool).await;
    }
}
