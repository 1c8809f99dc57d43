//! Transactions of sea-orm within others, ended behind its back, or left open.

use std::io;
use std::sync::Mutex;

use idem_runtime::Error;
use idem_tests::polls::{Dropped, dropped_after};
use sea_orm::{ConnectOptions, DatabaseConnection, DatabaseTransaction, TransactionTrait as _};
use tracing_subscriber::fmt::format::FmtSpan;

use super::prelude::*;

by!(postgres SeaPostgres: transactions_within_a_body a_body_that_ends_its_transaction
    a_transaction_that_outlives_its_body a_repeat_beside_an_open_transaction_is_refused);
by!(mariadb SeaMySql: transactions_within_a_body a_body_that_ends_its_transaction
    a_transaction_that_outlives_its_body a_repeat_beside_an_open_transaction_is_refused);
by!(sqlite SeaSqlite: transactions_within_a_body a_body_that_ends_its_transaction
    a_repeat_beside_an_open_transaction_is_refused);
mod servers {
    use super::*;
    by!(postgres SeaPostgres: a_call_within_two_transactions);
    by!(mariadb SeaMySql: a_call_within_two_transactions);
}

/// A client of sea-orm.
trait Sea: for<'t> Client<Conn = DatabaseConnection, Tx<'t> = DatabaseTransaction> {}
impl<C> Sea for C where C: for<'t> Client<Conn = DatabaseConnection, Tx<'t> = DatabaseTransaction> {}

/// The only connection of the pool commits a call of another key.
async fn assert_usable<C: Sea>(case: &str, fixture: &Fixture<C>, pool: &DatabaseConnection) {
    let (mut tx, run) = (pool.begin().await.unwrap(), fixture.runs.count() + 1);
    let call = fixture.call_that_ends(&mut tx, |tx| tx, "next", End::Value);
    assert_eq!(call.await, Some(Ok(run)), "{case}");
    tx.commit().await.unwrap();
    assert_eq!(fixture.orders("next").await, 1, "{case}");
}

async fn transactions_within_a_body<C: Sea>() {
    let fixture = Fixture::<C>::new().await;
    let pool = C::connect(&fixture.place.url).await;
    let mut tx = pool.begin().await.unwrap();
    let work = async |tx: &mut DatabaseTransaction| {
        let mut undone = tx.begin().await.unwrap();
        insert_by(&mut undone, "undone").await.unwrap();
        undone.rollback().await.unwrap();
        let mut kept = tx.begin().await.unwrap();
        insert_by(&mut kept, "kept").await.unwrap();
        kept.commit().await.unwrap();
        // It is rolled back before the next statement.
        let mut dropped = tx.begin().await.unwrap();
        insert_by(&mut dropped, "undone").await.unwrap();
        drop(dropped);
    };
    let call = fixture.call_that_ends_after(&mut tx, |tx| tx, "mine", work, End::Value);
    assert_eq!(call.await, Some(Ok(1)));
    tx.commit().await.unwrap();
    let kept = fixture.orders_of(["mine", "kept", "undone"]).await;
    assert_eq!((kept, fixture.records().await), ([1, 1, 0], 1));
    assert_usable("after it", &fixture, &pool).await;
}

/// By a text; SQLite ends it by itself after some errors.
async fn a_body_that_ends_its_transaction<C: Sea>() {
    for (text, commits) in C::Database::ENDS {
        for body in [End::Value, End::System, End::Business] {
            let case = &format!("{text}, {body:?}");
            let fixture = Fixture::<C>::new().await;
            let pool = C::connect(&fixture.place.url).await;
            let mut tx = pool.begin().await.unwrap();
            let ends = async |tx: &mut DatabaseTransaction| drop(tx.run(text).await);
            let call = fixture.call_that_ends_after(&mut tx, |tx| tx, "mine", ends, body);
            assert_aborted(&refusal(call.await.expect("it ends")));
            // In the same transaction no other body runs.
            assert_aborted(&refusal(answered(fixture.call("other"), &mut tx).await));
            if C::Database::shared().is_none() {
                // SQLite would commit each of the next statements alone.
                drop(insert_by(&mut tx, "mine").await);
                tx.commit().await.expect_err(case);
            } else {
                tx.rollback().await.ok();
            }
            let found = (
                fixture.orders("mine").await,
                state(fixture.call("mine")).await,
            );
            let left = (i64::from(*commits), commits.then_some(EntryState::Unknown));
            assert_eq!(found, left, "{case}");
            if !text.contains("max_page_count") {
                assert_usable(case, &fixture, &pool).await;
            }
        }
    }
}

/// Its rollback undoes the answer, whose record is then unknown: no second body runs beside the first one's rows.
async fn a_transaction_that_outlives_its_body<C: Sea>() {
    for commits in [true, false] {
        let fixture = Fixture::<C>::new().await;
        let pool = C::connect(&fixture.place.url).await;
        let mut tx = pool.begin().await.unwrap();
        let left = Mutex::new(None);
        let leaves = async |tx: &mut DatabaseTransaction| {
            let mut within = tx.begin().await.unwrap();
            insert_by(&mut within, "within").await.unwrap();
            *left.lock().unwrap() = Some(within);
        };
        let call = fixture.call_that_ends_after(&mut tx, |tx| tx, "mine", leaves, End::Value);
        assert_eq!(call.await, Some(Ok(1)));
        let within = left.into_inner().unwrap().unwrap();
        if commits {
            within.commit().await.unwrap();
        } else {
            drop(within);
        }
        tx.commit().await.unwrap();
        let rows = fixture.orders_of(["mine", "within"]).await;
        assert_eq!(rows, [1, i64::from(commits)]);
        let mut tx = pool.begin().await.unwrap();
        let again = answered(fixture.call("mine"), &mut tx).await;
        if commits {
            assert_eq!(again, Ok(1));
        } else {
            assert_unknown(&refusal(again));
        }
    }
}

/// The claim waits for the row, by a code of the server.
async fn a_repeat_beside_an_open_transaction_is_refused<C: Sea>() {
    let fixture = Fixture::<C>::new().await;
    let [pool, other] = [
        C::connect(&fixture.place.url).await,
        C::connect(&fixture.place.url).await,
    ];
    let mut tx = pool.begin().await.unwrap();
    let call = fixture.call_that_ends(&mut tx, |tx| tx, "mine", End::Value);
    assert_eq!(call.await, Some(Ok(1)));
    let mut beside = other.begin().await.unwrap();
    let repeat = fixture.call("mine").on_running(OnRunning::Reject);
    assert_running(&refusal(answered(repeat, &mut beside).await));
    beside.rollback().await.unwrap();
    tx.commit().await.unwrap();
    let mut beside = other.begin().await.unwrap();
    assert_eq!(answered(fixture.call("mine"), &mut beside).await, Ok(1));
}

async fn a_call_within_two_transactions<C: Sea>() {
    let fixture = Fixture::<C>::new().await;
    let pool = C::connect(&fixture.place.url).await;
    let tx = pool.begin().await.unwrap();
    for (run, commits) in [(1, false), (2, true)] {
        let mut within = tx.begin().await.unwrap();
        let call = fixture.call_that_ends(&mut within, |tx| tx, "mine", End::Value);
        assert_eq!(call.await, Some(Ok(run)));
        if commits {
            within.commit().await.unwrap();
        } else {
            within.rollback().await.unwrap();
        }
    }
    tx.commit().await.unwrap();
    assert_eq!(fixture.kept("mine").await, (1, 1));
}

fn assert_refused(refused: Answer) -> Error {
    let error = refusal(refused);
    assert_aborted(&error);
    assert!(error.to_string().contains("SAVEPOINT"), "{error}");
    error
}

/// SQL cannot tell it from the transaction after a rollback by SQLite.
#[tokio::test]
async fn a_call_within_two_transactions_on_sqlite() {
    let fixture = Fixture::<SeaSqlite>::new().await;
    let pool = SeaSqlite::connect(&fixture.place.url).await;
    let mut tx = pool.begin().await.unwrap();
    insert_by(&mut tx, "mine").await.unwrap();
    let mut within = tx.begin().await.unwrap();
    assert_refused(answered(fixture.order(), &mut within).await);
    within.commit().await.expect_err("all is rolled back");
    tx.commit().await.expect_err("all is rolled back");
    assert_eq!(fixture.kept("mine").await, (0, 0));
}

/// A rolled-back transaction leaves its savepoint; a committed one does not.
#[tokio::test]
async fn a_call_after_another_transaction_on_sqlite() {
    let fixture = Fixture::<SeaSqlite>::new().await;
    let pool = SeaSqlite::connect(&fixture.place.url).await;
    let mut tx = pool.begin().await.unwrap();
    tx.begin().await.unwrap().commit().await.unwrap();
    let call = fixture.call_that_ends(&mut tx, |tx| tx, "mine", End::Value);
    assert_eq!(call.await, Some(Ok(1)));
    tx.begin().await.unwrap().rollback().await.unwrap();
    assert_refused(answered(fixture.order(), &mut tx).await);
    tx.commit().await.expect_err("all is rolled back");
    assert_eq!(fixture.kept("mine").await, (0, 0));
    assert_usable("after it", &fixture, &pool).await;
}

/// SQLite has rolled back a transaction of this connection without a call. sea-orm still counts it.
#[tokio::test]
async fn a_connection_whose_count_is_wrong_on_sqlite() {
    const ENDS: &str = "INSERT OR ROLLBACK INTO shelves VALUES ('one', 1), ('one', 1)";
    for (within, is_checked) in [(false, false), (true, false), (false, true), (true, true)] {
        let case = &format!("within another: {within}, checked: {is_checked}");
        let fixture = Fixture::<SeaSqlite>::new().await;
        let pool = if is_checked {
            checked(&fixture.place.url).await
        } else {
            SeaSqlite::connect(&fixture.place.url).await
        };
        let mut tx = pool.begin().await.unwrap();
        if within {
            let mut within = tx.begin().await.unwrap();
            within.run(ENDS).await.expect_err("it is not unique");
        } else {
            tx.run(ENDS).await.expect_err("it is not unique");
        }
        drop(tx);
        if is_checked {
            assert_usable(case, &fixture, &pool).await;
            continue;
        }
        for rolls_back in [true, false] {
            let mut tx = pool.begin().await.unwrap();
            insert_by(&mut tx, "mine").await.unwrap();
            if rolls_back {
                tx.rollback().await.unwrap();
                continue;
            }
            assert_refused(answered(fixture.order(), &mut tx).await);
            tx.commit().await.expect_err("all is rolled back");
        }
        assert_eq!(fixture.kept("mine").await, (0, 0), "{case}");
    }
}

/// As the guide says: a connection on which sqlx counts a transaction is closed.
async fn checked(url: &str) -> DatabaseConnection {
    let mut options = ConnectOptions::new(url);
    options.max_connections(1).sqlx_logging(false);
    options.map_sqlx_sqlite_pool_opts(|pool| {
        pool.after_release(|conn, _| {
            Box::pin(async move {
                // Behind a rollback that is under way.
                conn.ping().await?;
                Ok(!conn.is_in_transaction())
            })
        })
    });
    sea_orm::Database::connect(options).await.unwrap()
}

/// The answer is not in its savepoint, which is gone: nothing is committed.
#[tokio::test]
async fn a_transaction_that_outlives_its_body_on_sqlite() {
    for commits in [true, false] {
        let fixture = Fixture::<SeaSqlite>::new().await;
        let pool = checked(&fixture.place.url).await;
        let mut tx = pool.begin().await.unwrap();
        let left = Mutex::new(None);
        let leaves = async |tx: &mut DatabaseTransaction| {
            *left.lock().unwrap() = Some(tx.begin().await.unwrap());
        };
        let call = fixture.call_that_ends_after(&mut tx, |tx| tx, "mine", leaves, End::Value);
        assert_eq!(call.await, Some(Ok(1)));
        let within = left.into_inner().unwrap().unwrap();
        if commits {
            within.commit().await.expect_err("its savepoint is gone");
        } else {
            drop(within);
        }
        tx.commit().await.expect_err("it is counted as one within");
        assert_usable("after it", &fixture, &pool).await;
        assert_eq!(fixture.kept("mine").await, (0, 1));
    }
}

/// Dropped after each first poll, while another writer holds the file. A claim sets the time that a statement waits for
/// one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_claim_restores_the_connection_on_sqlite() {
    const POLLS: usize = 15;
    const ROUNDS: usize = 5;
    let fixture = Fixture::<SeaSqlite>::new().await;
    let pool = SeaSqlite::connect(&fixture.place.url).await;
    let _writer = Sqlite::hold(&fixture.place.url).await;
    for polls in (0..ROUNDS).flat_map(|_| 0..POLLS) {
        let mut tx = pool.begin().await.unwrap();
        tx.run("PRAGMA busy_timeout = 7700").await.unwrap();
        let call = answered(fixture.order(), &mut tx);
        let answer = dropped_after(polls, Dropped::Woken, call).await;
        assert!(answer.is_none(), "{answer:?}");
        let waits = tx.count("PRAGMA busy_timeout").await;
        assert_eq!(waits, 7700, "after {polls} polls");
        tx.rollback().await.unwrap();
    }
}

/// The log as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// sea-orm and sqlx log the texts of statements.
#[tokio::test]
async fn no_answer_is_logged() {
    let log = Log::default();
    let writes = log.clone();
    let everything = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_span_events(FmtSpan::FULL)
        .with_writer(move || writes.clone());
    let _logs = tracing::subscriber::set_default(everything.finish());
    let secret = "4111-1111-1111-1111";
    let digits = secret.bytes().map(|byte| format!("{byte:02x}"));
    let digits = digits.collect::<String>();
    let fixture = Fixture::<SeaPostgres>::new().await;
    let pool = sea_orm::Database::connect(&fixture.place.url)
        .await
        .unwrap();
    let mut tx = pool.begin().await.unwrap();
    let call = fixture.order().in_tx(&mut tx);
    let answer =
        call.run(async |_: &mut DatabaseTransaction, _| Ok::<_, OrderError>(secret.to_owned()));
    assert_eq!(answer.await, Ok(secret.to_owned()));
    tx.commit().await.unwrap();
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(
        log.contains("SET layout") && log.contains("idem_records"),
        "{log}"
    );
    for secret in [
        secret,
        &digits,
        &digits.to_uppercase(),
        &format!("{:?}", secret.as_bytes()),
    ] {
        assert!(!log.contains(secret), "{log}");
    }
}
