//! `SQLite` rolls back by itself, and sqlx still counts a transaction that no longer exists.

use std::process::Command;

use idem_runtime::store::sql::Sqlite;
use sqlx::error::DatabaseError;
use sqlx::{Executor, SqliteConnection, SqlitePool, SqliteTransaction};

use crate::ended::{assert_usable, ends, pool_of_one};
use crate::prelude::*;

type Pooled = <Sqlite as Database>::Pooled;

/// Causes of a rollback by `SQLite`.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// `SQLITE_FULL`.
    Full,
    /// `INSERT OR ROLLBACK`.
    Conflict,
    /// `RAISE(ROLLBACK)` in a trigger.
    Trigger,
    /// `SQLITE_INTERRUPT` in a statement that writes.
    Interrupt,
}

const WAYS: [Way; 4] = [Way::Full, Way::Conflict, Way::Trigger, Way::Interrupt];

impl Way {
    /// Ends the transaction of the connection, and reports the code of the error.
    async fn end(self, conn: &mut SqliteConnection) -> String {
        // One row, because a statement that may write several is undone alone when the file is full.
        let large = "INSERT INTO orders VALUES (hex(randomblob(1000000)))";
        let failed = match self {
            Self::Full => {
                // The limit cannot be below the current size.
                conn.execute("PRAGMA max_page_count = 1").await.done();
                let failed = conn.execute(large).await;
                conn.execute("PRAGMA max_page_count = 1073741823")
                    .await
                    .done();
                failed
            }
            Self::Conflict => {
                let conflict = "INSERT OR ROLLBACK INTO shelves VALUES ('taken', 1)";
                conn.execute(conflict).await
            }
            Self::Trigger => {
                conn.execute("INSERT INTO shelves VALUES ('forbidden', 1)")
                    .await
            }
            Self::Interrupt => {
                let mut handle = conn.lock_handle().await.done();
                // Preparing the statement takes fewer steps.
                handle.set_progress_handler(1000, || false);
                drop(handle);
                let many = "INSERT INTO orders WITH RECURSIVE n (i) AS \
                            (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000) SELECT i FROM n";
                let failed = conn.execute(many).await;
                let mut handle = conn.lock_handle().await.done();
                handle.remove_progress_handler();
                failed
            }
        };
        let error = failed.expect_err("it fails");
        let code = error.as_database_error().and_then(DatabaseError::code);
        code.expect("it is one of SQLite's").into_owned()
    }

    fn code(self) -> &'static str {
        match self {
            Self::Full => "13",
            Self::Conflict => "1555",
            Self::Trigger => "1811",
            Self::Interrupt => "9",
        }
    }

    /// A body that makes an order, ignores the end of its transaction, and ends.
    async fn body(
        self,
        fixture: &Fixture<Sqlite>,
        conn: &mut SqliteConnection,
        end: Answer,
    ) -> Answer {
        make::<Sqlite>(conn, &fixture.runs, "mine").await?;
        assert_eq!(self.end(conn).await, self.code());
        end
    }
}

async fn shop() -> (Fixture<Sqlite>, SqlitePool) {
    let fixture = Fixture::<Sqlite>::new().await;
    let mut conn = fixture.connection().await;
    let rules = "INSERT INTO shelves VALUES ('taken', 1); \
                 CREATE TRIGGER rules BEFORE INSERT ON shelves WHEN NEW.name = 'forbidden' \
                 BEGIN SELECT RAISE(ROLLBACK, 'forbidden'); END";
    conn.execute(rules).await.done();
    let pool = pool_of_one(&fixture).await;
    (fixture, pool)
}

/// Calls on a connection of the pool, and makes the order `mine`.
async fn ordered_on(fixture: &Fixture<Sqlite>, key: &str, conn: &mut Pooled) -> Answer {
    let body = async |conn: &mut Pooled, _| make::<Sqlite>(conn, &fixture.runs, "mine").await;
    fixture.call(key).in_tx(conn).run(body).await
}

/// Panics unless nothing of the call exists.
async fn assert_nothing(fixture: &Fixture<Sqlite>, case: &str) {
    let there = fixture.kept("mine").await;
    assert_eq!(there, (0, 0), "{case}");
}

#[tokio::test]
async fn in_the_callers_transaction() {
    for way in WAYS {
        for end in ends() {
            for commits in [true, false] {
                let case = &format!("{way:?} {end:?} {commits}");
                let (fixture, pool) = shop().await;
                let mut tx = pool.begin().await.done();
                let first = ordered(&fixture, fixture.call("first"), &mut tx, "mine").await;
                assert_eq!(first, Ok(1), "{case}");
                let call = fixture.order().in_tx(&mut tx);
                let answer = call.run(async |tx: &mut SqliteTransaction<'static>, _| {
                    way.body(&fixture, tx, end.clone()).await
                });
                assert_aborted(&refusal(answer.await));
                // In the same transaction no body runs any more, and no record is written.
                let again = answered(fixture.order(), &mut tx).await;
                assert_aborted(&refusal(again));
                insert::<Sqlite>(&mut tx, "mine")
                    .await
                    .expect_err("it is closed");
                if commits {
                    tx.commit().await.expect_err("there is nothing to commit");
                } else {
                    drop(tx);
                }
                assert_nothing(&fixture, case).await;
                assert_usable(&fixture, &pool).await;
            }
        }
    }
}

async fn in_idems_transaction(
    fixture: &Fixture<Sqlite>,
    conn: &mut Pooled,
    way: Way,
    end: &Answer,
) {
    let call = fixture.order().in_tx(conn);
    let body = async |conn: &mut Pooled, _| way.body(fixture, conn, end.clone()).await;
    let answer = call.run(body).await;
    // Nothing of the call remains, and its transaction is idem's: its error may be its answer.
    if answer != Err(OrderError::Down) {
        assert_aborted(&refusal(answer));
    }
}

#[tokio::test]
async fn in_idems_transaction_on_a_pools_connection() {
    for way in WAYS {
        for end in ends() {
            let case = &format!("{way:?} {end:?}");
            let (fixture, pool) = shop().await;
            let mut conn = pool.acquire().await.done();
            in_idems_transaction(&fixture, &mut conn, way, &end).await;
            // The connection remains usable.
            assert_eq!(
                ordered_on(&fixture, "order-7", &mut conn).await,
                Ok(2),
                "{case}"
            );
            drop(conn);
            assert_eq!(fixture.orders("mine").await, 1, "{case}");
            assert_usable(&fixture, &pool).await;
        }
    }
}

/// A body is dropped after its transaction has ended.
#[tokio::test]
async fn dropped_half_way() {
    for way in WAYS {
        let (fixture, pool) = shop().await;
        let mut conn = pool.acquire().await.done();
        {
            let ended = tokio::sync::Notify::new();
            let call = fixture.order().in_tx(&mut conn);
            let call = call.run(async |conn: &mut Pooled, _| {
                let answer = way.body(&fixture, conn, Ok(1)).await;
                ended.notify_one();
                std::future::pending::<()>().await;
                answer
            });
            tokio::select! {
                answer = call => panic!("the body never ends: {answer:?}"),
                () = ended.notified() => {}
            }
        }
        drop(conn);
        assert_nothing(&fixture, &format!("{way:?}")).await;
        assert_usable(&fixture, &pool).await;
    }
}

/// The transaction ended before idem saw it: sqlx counts one already when the next begins.
#[tokio::test]
async fn before_idem_has_seen_the_connection() {
    for way in WAYS {
        for rolls_back in [false, true] {
            let case = &format!("{way:?} {rolls_back}");
            let (fixture, pool) = shop().await;
            let mut tx = pool.begin().await.done();
            assert_eq!(way.end(&mut tx).await, way.code(), "{case}");
            drop(tx);
            if rolls_back {
                // A savepoint: its rollback leaves open the transaction that it began.
                let mut tx = pool.begin().await.done();
                insert::<Sqlite>(&mut tx, "mine").await.done();
                tx.rollback().await.done();
            }
            let mut tx = pool.begin().await.done();
            let error = refusal(answered(fixture.order(), &mut tx).await);
            assert_aborted(&error);
            drop(tx);
            assert_nothing(&fixture, case).await;
            assert_usable(&fixture, &pool).await;
        }
    }
}

/// From within, a nested transaction of sqlx looks like one whose outer transaction is gone.
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
    assert_usable(&fixture, &pool).await;
}

/// The same, but the call has to begin its transaction itself.
#[tokio::test]
async fn before_idem_begins() {
    for rolls_back in [false, true] {
        let (fixture, pool) = shop().await;
        let mut conn = pool.acquire().await.done();
        let mut tx = conn.begin().await.done();
        assert_eq!(Way::Full.end(&mut tx).await, Way::Full.code());
        drop(tx);
        if rolls_back {
            let mut tx = conn.begin().await.done();
            insert::<Sqlite>(&mut tx, "mine").await.done();
            tx.rollback().await.done();
        }
        assert_aborted(&refusal(answered(fixture.order(), &mut conn).await));
        drop(conn);
        assert_nothing(&fixture, "own").await;
        assert_usable(&fixture, &pool).await;
    }
}

/// The commit of the caller fails, and is a rollback.
#[tokio::test]
async fn a_commit_of_the_caller_that_fails() {
    let (fixture, pool) = shop().await;
    let mut tx = pool.begin().await.done();
    assert_eq!(fixture.ordered(&mut tx).await, Ok(1));
    let mut handle = tx.lock_handle().await.done();
    handle.set_commit_hook(|| false);
    drop(handle);
    tx.commit().await.expect_err("the hook refuses it");
    let mut conn = pool.acquire().await.done();
    conn.lock_handle().await.done().remove_commit_hook();
    drop(conn);
    assert_nothing(&fixture, "commit").await;
    let mut tx = pool.begin().await.done();
    assert_aborted(&refusal(answered(fixture.order(), &mut tx).await));
    drop(tx);
    assert_usable(&fixture, &pool).await;
}

/// The commit of idem fails, and is a rollback.
#[tokio::test]
async fn a_commit_of_idem_that_fails() {
    let (fixture, pool) = shop().await;
    let mut conn = pool.acquire().await.done();
    conn.lock_handle().await.done().set_commit_hook(|| false);
    assert_aborted(&refusal(ordered_on(&fixture, "order-7", &mut conn).await));
    conn.lock_handle().await.done().remove_commit_hook();
    assert_nothing(&fixture, "commit").await;
    assert_eq!(ordered_on(&fixture, "order-7", &mut conn).await, Ok(2));
    drop(conn);
    assert_eq!(fixture.orders("mine").await, 1);
    assert_usable(&fixture, &pool).await;
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
        assert_eq!(ordered_on(&fixture, &key, &mut conn).await, Ok(run));
        assert_eq!(fixture.orders("mine").await, i64::from(run));
    }
    assert_eq!(fixture.orders("undone").await, 0);
}

/// A caller's pool can close such connections itself.
#[tokio::test]
async fn a_pool_that_looks() {
    for way in WAYS {
        let (fixture, _) = shop().await;
        let pool = sqlx::sqlite::SqlitePoolOptions::new()
            .max_connections(1)
            .after_release(|conn, _| Box::pin(async move { Ok(!conn.is_in_transaction()) }));
        let options = Sqlite::options(&fixture.place.url);
        let pool = pool.connect_with(options).await.done();
        let mut tx = pool.begin().await.done();
        way.end(&mut tx).await;
        let none = tx.rollback().await;
        assert!(none.is_err(), "{way:?}");
        assert_usable(&fixture, &pool).await;
    }
}

/// A process may write no more than so many blocks of a file; beyond them `SQLite` gets `SQLITE_IOERR_WRITE`.
const BLOCKS: &str = "1024";

/// Runs another test of this binary, in a process that may write no large file.
fn with_small_files(test: &str) {
    let this = std::env::current_exe().expect("it runs");
    let limited = "trap '' XFSZ; ulimit -f \"$0\"; exec \"$@\"";
    let status = Command::new("sh")
        .args(["-c", limited, BLOCKS])
        .arg(this)
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .expect("there is a shell");
    let told = String::from_utf8_lossy(&status.stdout);
    assert!(
        status.status.success() && told.contains("1 passed"),
        "{told}{}",
        String::from_utf8_lossy(&status.stderr)
    );
}

#[test]
fn a_failing_disk() {
    with_small_files("rolled_back::small_files_in_the_callers_transaction");
    with_small_files("rolled_back::small_files_in_idems_transaction");
}

/// More than the cache holds is written by the statement, less by the commit.
const SIZES: [(usize, bool); 2] = [(8_000_000, true), (1_200_000, false)];

async fn fill(conn: &mut SqliteConnection, bytes: usize) -> Result<(), sqlx::Error> {
    let sql = format!("INSERT INTO orders SELECT hex(randomblob({}))", bytes / 2);
    conn.execute(sqlx::AssertSqlSafe(sql)).await.map(drop)
}

#[tokio::test]
#[ignore = "it runs where files are small"]
async fn small_files_in_the_callers_transaction() {
    for (bytes, in_statement) in SIZES {
        let (fixture, pool) = shop().await;
        let mut tx = pool.begin().await.done();
        let call = fixture.order().in_tx(&mut tx);
        let answer = call.run(async |tx: &mut SqliteTransaction<'static>, _| {
            let run = make::<Sqlite>(tx, &fixture.runs, "mine").await;
            let filled = fill(tx, bytes).await;
            assert_eq!(filled.is_err(), in_statement);
            run
        });
        let answer = answer.await;
        if in_statement {
            assert_aborted(&refusal(answer));
            drop(tx);
        } else {
            assert_eq!(answer, Ok(1));
            tx.commit().await.expect_err("the file is too large");
            let mut tx = pool.begin().await.done();
            assert_aborted(&refusal(answered(fixture.order(), &mut tx).await));
        }
        assert_nothing(&fixture, "small files").await;
        assert_usable(&fixture, &pool).await;
    }
}

#[tokio::test]
#[ignore = "it runs where files are small"]
async fn small_files_in_idems_transaction() {
    for (bytes, in_statement) in SIZES {
        let (fixture, pool) = shop().await;
        let mut conn = pool.acquire().await.done();
        let call = fixture.order().in_tx(&mut conn);
        let answer = call.run(async |conn: &mut Pooled, _| {
            let run = make::<Sqlite>(conn, &fixture.runs, "mine").await;
            let filled = fill(conn, bytes).await;
            assert_eq!(filled.is_err(), in_statement);
            run
        });
        let error = refusal(answer.await);
        if in_statement {
            assert_aborted(&error);
        } else {
            // After a failed commit the contents of the disk are unknown.
            assert_eq!(*error.kind(), ErrorKind::CommitUnknown);
        }
        assert_nothing(&fixture, "small files").await;
        assert_eq!(ordered_on(&fixture, "order-7", &mut conn).await, Ok(2));
        drop(conn);
        assert_eq!(fixture.orders("mine").await, 1);
        assert_usable(&fixture, &pool).await;
    }
}
