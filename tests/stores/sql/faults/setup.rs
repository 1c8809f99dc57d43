//! The table: its creation, its place, and the errors for a wrong table.

use idem_runtime::store::author::{Header, State};
use idem_runtime::store::{Fence, StoreErrorKind};
use idem_tests::sql::connect;

use super::prelude::*;

on_each_database!(
    ten_may_create_the_table_at_once,
    a_bad_name_of_a_table_is_refused,
    a_missing_table_is_reported,
    a_table_of_another_layout_is_refused,
    the_schema_runs_by_hand,
);
on_each_server!(
    a_column_of_another_type_is_not_decoded,
    a_table_may_be_in_a_schema,
    each_right_is_needed_but_that_to_create,
    a_server_that_does_not_wait_for_its_disk_is_reported,
    a_wrong_login_is_reported_without_its_password,
);

/// A call on the store runs once.
async fn assert_works<B: Database>(store: &SqlStore<B>) {
    let fixture = Fixture::on(store);
    let first = fixture.pay("a").await.unwrap();
    assert_eq!(fixture.pay("a").await.unwrap(), first);
    assert_eq!(fixture.effects("a"), 1);
}

async fn of_table<B: Database>(url: &str, table: &str) -> Result<SqlStore<B>, StoreError> {
    SqlStore::<B>::builder(url).table(table).connect().await
}

async fn ten_may_create_the_table_at_once<B: Database>() {
    let test_database = TestDatabase::new::<B>();
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        let url = test_database.url.clone();
        tasks.spawn(async move {
            let store = connect::<B>(url).await;
            store.migrate().await.unwrap();
            store
        });
    }
    let stores = tasks.join_all().await;
    let fixture = Fixture::on(&stores[0]);
    let first = fixture.pay("a").await.unwrap();
    for store in &stores {
        store.migrate().await.unwrap();
        assert_eq!(fixture.beside(store).pay("a").await.unwrap(), first);
    }
    assert_eq!(fixture.effects("a"), 1);
    let records = test_database.sql("SELECT count(*) FROM idem_records");
    assert_eq!(records.await, "1");
}

async fn a_bad_name_of_a_table_is_refused<B: Database>() {
    let test_database = TestDatabase::new::<B>();
    let long = "a".repeat(200);
    for name in [
        "", "a;drop", &long, "\"a\"", "'a'", "`a`", "1a", "é", "a.", ".a", "a.b.c", "a\0",
    ] {
        let store = of_table::<B>(&test_database.url, name).await;
        assert_says(store, Refused, &["name of the table"]);
    }
}

async fn a_missing_table_is_reported<B: Database>() {
    let test_database = TestDatabase::new::<B>();
    let store = connect::<B>(&test_database.url).await;
    assert_says(claim(&store).await, Refused, &["a claim", "`migrate()`"]);
    assert_permanent(Fixture::on(&store).pay("a").await);
    let found = format!("{:?}", store.findings().await.unwrap());
    assert!(found.contains("the table is not there"), "{found}");
    store.migrate().await.unwrap();
    assert_works(&store).await;
}

/// No call runs on it, and `migrate` does not succeed either.
async fn a_table_of_another_layout_is_refused<B: Database>() {
    // The first layout is that of 32-byte keys: its records would not be found.
    for (column, another) in [
        ("op", "operation"),
        ("version", "another"),
        ("body", "another"),
    ] {
        let (test_database, store) = opened::<B>().await;
        let rename = format!("ALTER TABLE idem_records RENAME COLUMN {column} TO {another}");
        test_database.sql(&rename).await;
        // Another process has not prepared its statements yet.
        let fresh = connect::<B>(&test_database.url).await;
        let message = "not as this version knows it";
        for store in [&store, &fresh] {
            assert_says(claim(store).await, Refused, &[message]);
            assert_permanent(Fixture::on(store).pay("a").await);
            let parts = ["creating the table", message];
            assert_says(store.migrate().await, Refused, &parts);
        }
    }
}

/// The types of a statement's columns are checked with its first row. A reply without one may precede it.
async fn a_column_of_another_type_is_not_decoded<B: Server>() {
    let (test_database, store) = opened::<B>().await;
    let change = if B::POSTGRES {
        "ALTER COLUMN detail TYPE double precision"
    } else {
        "MODIFY detail DOUBLE NOT NULL"
    };
    let change = format!("ALTER TABLE idem_records {change}");
    test_database.sql(&change).await;
    let absent = store.read(&elsewhere(1)).await;
    assert!(matches!(absent, Ok(ReadReply::Absent)), "{absent:?}");
    let header = Header::new(State::Released, Owner::random(), Fence::new(1), PATIENCE);
    let (key, record) = (elsewhere(1), header.encode());
    store.plant(&key, &record, PATIENCE).await.unwrap();
    let parts = ["a read", "the reply cannot be read"];
    assert_says(
        store.read(&elsewhere(1)).await,
        StoreErrorKind::Protocol,
        &parts,
    );
}

async fn the_schema_runs_by_hand<B: Database>() {
    let test_database = TestDatabase::new::<B>();
    // A name whose case some databases fold.
    let store = of_table::<B>(&test_database.url, "Orders_2").await.unwrap();
    let schema = store.schema();
    let mut code = schema.lines().filter(|line| !line.starts_with("--"));
    assert!(code.all(|line| !line.contains("idem_records")), "{schema}");
    test_database.sql(&schema).await;
    test_database.sql(&schema).await;
    assert_works(&store).await;
}

async fn a_table_may_be_in_a_schema<B: Server>() {
    let test_database = TestDatabase::new::<B>();
    let url = &test_database.url;
    let store = of_table::<B>(url, "nowhere.idem_records").await.unwrap();
    assert_says(claim(&store).await, Refused, &["a claim"]);
    let parts = ["creating the table", "schema"];
    assert_says(store.migrate().await, Refused, &parts);

    test_database.sql("CREATE SCHEMA app").await;
    let store = of_table::<B>(url, "app.idem_records").await.unwrap();
    store.migrate().await.unwrap();
    store.migrate().await.unwrap();
    assert_works(&store).await;
    let records = test_database.sql("SELECT count(*) FROM app.idem_records");
    assert_eq!(records.await, "1");
}

/// A user that may read and write existing tables, and create none. Each of the four rights is needed, and the error
/// names a missing one.
async fn each_right_is_needed_but_that_to_create<B: Server>() {
    let server = B::serve(&[]);
    server.execute("CREATE TABLE other (id INT)");
    server.execute(if B::POSTGRES {
        "CREATE USER clerk PASSWORD 'password-marker'; REVOKE CREATE ON SCHEMA public FROM PUBLIC"
    } else {
        "CREATE USER clerk IDENTIFIED BY 'password-marker'; GRANT SELECT ON idem.other TO clerk"
    });
    let url = server.url_as("clerk", "password-marker");
    let store = connect::<B>(&url).await;
    let parts = ["creating the table", "may not create", "`migrations`"];
    assert_says(store.migrate().await, Refused, &parts);
    let owner = open::<B>(&server.url()).await;
    let rights = ["SELECT", "INSERT", "UPDATE", "DELETE"];
    for (number, missing) in (0..).zip(rights) {
        let others = rights.into_iter().filter(|one| *one != missing);
        let others = others.collect::<Vec<_>>().join(", ");
        server.execute(&format!("GRANT {others} ON idem_records TO clerk"));
        let store = connect::<B>(&url).await;
        let fixture = Fixture::hasty(&store);
        let told = ["SELECT, INSERT, UPDATE and DELETE"];
        if missing == "DELETE" {
            fixture.pay(missing).await.unwrap();
            let purge = store.purge(Purge::default());
            assert_says(purge.await, Refused, &told);
        } else if missing == "UPDATE" {
            // The claim is granted; its answer is not stored, which is reported, and no second body runs.
            fixture.pay(missing).await.unwrap();
            assert_eq!(fixture.events.count("unsaved"), 1);
        } else {
            assert_says(claim_of(&store, number).await, Refused, &told);
            assert_permanent(fixture.pay(missing).await);
            assert_eq!(fixture.effects(missing), 0);
        }
        server.execute("REVOKE SELECT, INSERT, UPDATE, DELETE ON idem_records FROM clerk");
    }
    server.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON idem_records TO clerk");
    store.migrate().await.unwrap();
    let fixture = Fixture::on(&store);
    let first = fixture.pay("a").await.unwrap();
    assert_eq!(fixture.beside(&owner).pay("a").await.unwrap(), first);
    assert_eq!(fixture.effects("a"), 1);
}

async fn a_wrong_login_is_reported_without_its_password<B: Server>() {
    let server = B::serve(&[]);
    for (url, part) in [
        (server.url_as("app", "password-marker"), "password"),
        (server.url_of("no_such_database"), "database"),
        ("no url at all with password-marker".to_owned(), "URL"),
    ] {
        assert_says(SqlStore::<B>::connect(url).await, Refused, &[part]);
    }
    let (refuse, part) = if B::POSTGRES {
        (
            "REVOKE CONNECT ON DATABASE idem FROM PUBLIC, app",
            "CONNECT",
        )
    } else {
        (
            "SET GLOBAL init_connect = 'SELECT 1 FROM nowhere'",
            "`init_connect`",
        )
    };
    server.execute(refuse);
    let store = SqlStore::<B>::connect(server.password_url()).await;
    assert_says(store, Refused, &["connecting", part]);
}

async fn a_server_that_does_not_wait_for_its_disk_is_reported<B: Server>() {
    let (setting, flushes, value) = if B::POSTGRES {
        ("synchronous_commit", "on", "off")
    } else {
        ("innodb_flush_log_at_trx_commit", "1", "2")
    };
    for (setting_to, reports) in [(flushes, 0), (value, 1)] {
        // Without it, PostgreSQL waits for no disk either.
        let fsync = B::POSTGRES.then_some(("fsync", "on"));
        let settings: Vec<_> = fsync.into_iter().chain([(setting, setting_to)]).collect();
        let server = B::serve(&settings);
        let store = connect::<B>(server.password_url()).await;
        let warnings = store.warnings();
        let reported = warnings.iter();
        let reported = reported.filter(|warning| warning.contains("a crash of the server forgets"));
        let reported: Vec<_> = reported.collect();
        assert_eq!(reported.len(), reports, "{warnings:?}");
        let names = |warning: &&String| warning.contains(&format!("{setting} is {value}"));
        assert!(reported.iter().all(names), "{warnings:?}");
    }
}

/// Otherwise acknowledged claims and answers are rolled back with their connection, and some statements are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_sessions_begin_with_lose_no_answer() {
    for sets in [
        "SET GLOBAL autocommit = 0",
        "SET GLOBAL init_connect = 'SET autocommit = 0'",
        "SET GLOBAL init_connect = 'START TRANSACTION'",
        "SET GLOBAL init_connect = 'SET TRANSACTION READ ONLY'",
        // No read returns a row.
        "SET GLOBAL init_connect = 'SET sql_select_limit = 0'",
        // No purge deletes one.
        "SET GLOBAL init_connect = 'SET sql_safe_updates = 1'",
    ] {
        let server = MySql::serve(&[]);
        // The users with all rights do not execute `init_connect`.
        let url = server.password_url();
        let store = open::<MySql>(&url).await;
        let fixture = Fixture::on(&store);
        let begins = async |_| {
            server.execute(sets);
            server.execute("KILL USER app");
            Ok(())
        };
        let first = fixture.pay_by("a", begins).await.unwrap();
        let late = SqlStore::<MySql>::connect(&url).await.unwrap();
        drop(store);
        assert_eq!(
            fixture.beside(&late).pay("a").await.unwrap(),
            first,
            "{sets}"
        );
        fixture.beside(&late).pay("b").await.unwrap();
        let done = "SELECT COUNT(*) FROM idem_records WHERE state = 'D'";
        assert_eq!(server.execute_in("idem", done), "2", "{sets}");
        late.purge(Purge::default()).await.unwrap();
    }
}

/// Otherwise an answer is replayed whose transaction may still be rolled back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_shows_uncommitted_rows_replays_committed_answers() {
    let server = MySql::serve(&[]);
    server.execute("SET GLOBAL TRANSACTION ISOLATION LEVEL READ UNCOMMITTED");
    let store = open::<MySql>(&server.url()).await;
    let fixture = Fixture::on(&store);
    let first = fixture.pay("a").await.unwrap();
    // As if the answer were older than a write of the server's log takes.
    server.execute("UPDATE idem_records SET expires_us = expires_us - 60000000");
    let change = "BEGIN; UPDATE idem_records SET body = '\"uncommitted\"'";
    let tx = MySql::connection_after(&server.url(), change).await;
    assert_eq!(fixture.pay("a").await.unwrap(), first);
    drop(tx);
}
