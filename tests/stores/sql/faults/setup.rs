//! The table: its creation, its place, and the errors for a wrong table.

use idem_harness::{DatabaseServer, MariaDbServer, PostgresServer};
use idem_runtime::store::Store as _;
use idem_runtime::store::sql::MySqlStore;

use crate::prelude::*;

on_each_database!(
    ten_may_create_the_table_at_once,
    a_table_may_have_another_name,
    a_bad_name_of_a_table_is_refused,
    a_missing_table_is_reported,
    a_table_of_another_layout_is_refused,
    the_schema_runs_by_hand;
    a_table_may_be_in_a_schema,
    a_missing_schema_is_reported,
    a_server_that_does_not_wait_for_its_disk_is_reported
);

async fn ten_may_create_the_table_at_once<B: Kind>() {
    let test_database = B::test_database();
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        let url = test_database.url.clone();
        tasks.spawn(async move {
            let store = SqlStore::<B>::connect(url).await.unwrap();
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
    assert_eq!(
        test_database.sql("SELECT count(*) FROM idem_records").await,
        "1"
    );
}

async fn a_table_may_have_another_name<B: Kind>() {
    let test_database = B::test_database();
    for table in ["_", "Orders_2", &"a".repeat(48)] {
        let store = SqlStore::<B>::builder(&test_database.url).table(table);
        let store = store.connect().await.unwrap();
        store.migrate().await.unwrap();
        store.migrate().await.unwrap();
        let fixture = Fixture::on(&store);
        fixture.pay("a").await.unwrap();
        fixture.pay("a").await.unwrap();
        assert_eq!(fixture.effects("a"), 1);
        let count = format!("SELECT count(*) FROM {table}");
        assert_eq!(test_database.sql(&count).await, "1");
    }
}

async fn a_bad_name_of_a_table_is_refused<B: Kind>() {
    let test_database = B::test_database();
    let long = "a".repeat(200);
    let names = [
        "", " ", "a b", "a;drop", &long, "\"a\"", "'a'", "`a`", "1a", "a-b", "é", "a.", ".a",
        "a.b.c", "a\0", "a\n",
    ];
    for name in names {
        let store = SqlStore::<B>::builder(&test_database.url).table(name);
        assert_says(store.connect().await, Refused, &["name of the table"]);
    }
}

async fn a_missing_table_is_reported<B: Kind>() {
    let test_database = B::test_database();
    let store = SqlStore::<B>::connect(&test_database.url).await.unwrap();
    assert_says(claim(&store).await, Refused, &["a claim", "`migrate()`"]);
    let fixture = Fixture::on(&store);
    assert_permanent(fixture.pay("a").await);
    store.migrate().await.unwrap();
    fixture.pay("a").await.unwrap();
    assert_eq!(fixture.effects("a"), 1);
}

/// No call runs on it, and `migrate` does not succeed either.
async fn a_table_of_another_layout_is_refused<B: Kind>() {
    // The first layout is that of 32-byte keys: its records would not be found.
    for (column, another) in [
        ("op", "operation"),
        ("version", "another"),
        ("body", "another"),
    ] {
        let (test_database, store) = opened::<B>().await;
        let rename = format!("ALTER TABLE idem_records RENAME COLUMN {column} TO {another}");
        test_database.sql(&rename).await;
        // Another process, which has not prepared its statements yet.
        let store = [
            store,
            SqlStore::<B>::connect(&test_database.url).await.unwrap(),
        ];
        for store in &store {
            assert_says(
                claim(store).await,
                Refused,
                &["not as this version knows it"],
            );
            assert_permanent(Fixture::on(store).pay("a").await);
            let parts = ["creating the table", "not as this version knows it"];
            assert_says(store.migrate().await, Refused, &parts);
        }
    }
}

async fn the_schema_runs_by_hand<B: Kind>() {
    let test_database = B::test_database();
    let store = SqlStore::<B>::builder(&test_database.url).table("by_hand");
    let store = store.connect().await.unwrap();
    let schema = store.schema();
    let mut code = schema.lines().filter(|line| !line.starts_with("--"));
    assert!(code.all(|line| !line.contains("idem_records")), "{schema}");
    test_database.sql(&schema).await;
    test_database.sql(&schema).await;
    let fixture = Fixture::on(&store);
    fixture.pay("a").await.unwrap();
    fixture.pay("a").await.unwrap();
    assert_eq!(fixture.effects("a"), 1);
}

async fn same<B: Kind>(migrations: &str, folder: &str) {
    let file = format!("{migrations}/{folder}/0001_idem_records.sql");
    let file = std::fs::read_to_string(file).unwrap();
    let test_database = B::test_database();
    let store = SqlStore::<B>::connect(&test_database.url).await.unwrap();
    assert_eq!(store.schema(), file);
}

#[tokio::test]
async fn the_migration_files_are_those_that_run() {
    let migrations = concat!(env!("CARGO_MANIFEST_DIR"), "/../idem-runtime/migrations");
    same::<Sqlite>(migrations, "sqlite").await;
    same::<Postgres>(migrations, "postgres").await;
    same::<MySql>(migrations, "mysql").await;
}

async fn a_table_may_be_in_a_schema<B: Kind>() {
    let test_database = B::test_database();
    test_database.sql("CREATE SCHEMA app").await;
    let store = SqlStore::<B>::builder(&test_database.url).table("app.idem_records");
    let store = store.connect().await.unwrap();
    store.migrate().await.unwrap();
    store.migrate().await.unwrap();
    let fixture = Fixture::on(&store);
    fixture.pay("a").await.unwrap();
    fixture.pay("a").await.unwrap();
    assert_eq!(fixture.effects("a"), 1);
    assert_eq!(
        test_database
            .sql("SELECT count(*) FROM app.idem_records")
            .await,
        "1"
    );
}

async fn a_missing_schema_is_reported<B: Kind>() {
    let test_database = B::test_database();
    let store = SqlStore::<B>::builder(&test_database.url).table("nowhere.idem_records");
    let store = store.connect().await.unwrap();
    assert_says(claim(&store).await, Refused, &["a claim"]);
    let parts = ["creating the table", "schema"];
    assert_says(store.migrate().await, Refused, &parts);
}

/// A user that may read and write existing tables, and create none.
fn clerk(server: &DatabaseServer, postgres: bool) {
    let make = if postgres {
        "CREATE USER clerk PASSWORD 'password-marker'; REVOKE CREATE ON SCHEMA public FROM PUBLIC"
    } else {
        "CREATE USER clerk IDENTIFIED BY 'password-marker'; GRANT SELECT ON idem.other TO clerk"
    };
    server.execute("CREATE TABLE other (id INT)");
    server.execute(make);
}

async fn without_the_right_to_create<B: Kind>(server: &DatabaseServer, postgres: bool) {
    clerk(server, postgres);
    let store = SqlStore::<B>::connect(server.url_as("clerk", "password-marker")).await;
    let store = store.unwrap();
    let parts = ["creating the table", "may not create", "`migrations`"];
    assert_says(store.migrate().await, Refused, &parts);

    let owner = open::<B>(&server.url()).await;
    let grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON idem_records TO clerk";
    server.execute(grant);
    store.migrate().await.unwrap();
    let fixture = Fixture::on(&store);
    let first = fixture.pay("a").await.unwrap();
    assert_eq!(fixture.beside(&owner).pay("a").await.unwrap(), first);
    assert_eq!(fixture.effects("a"), 1);
}

#[tokio::test]
async fn postgres_without_the_right_to_create() {
    without_the_right_to_create::<Postgres>(&PostgresServer::start(), true).await;
}

#[tokio::test]
async fn mariadb_without_the_right_to_create() {
    without_the_right_to_create::<MySql>(&MariaDbServer::start(), false).await;
}

/// Each of the four rights is needed, and the error names a missing one.
async fn each_right_is_needed<B: Kind>(server: &DatabaseServer, postgres: bool) {
    clerk(server, postgres);
    open::<B>(&server.url()).await;
    let rights = ["SELECT", "INSERT", "UPDATE", "DELETE"];
    let url = server.url_as("clerk", "password-marker");
    for (number, missing) in (0..).zip(rights) {
        let others: Vec<_> = rights.into_iter().filter(|one| *one != missing).collect();
        server.execute(&format!(
            "GRANT {} ON idem_records TO clerk",
            others.join(", ")
        ));
        let store = SqlStore::<B>::connect(&url).await.unwrap();
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
}

#[tokio::test]
async fn postgres_needs_four_rights() {
    each_right_is_needed::<Postgres>(&PostgresServer::start(), true).await;
}

#[tokio::test]
async fn mariadb_needs_four_rights() {
    each_right_is_needed::<MySql>(&MariaDbServer::start(), false).await;
}

#[tokio::test]
async fn a_wrong_login_is_reported_without_its_password() {
    let parts = ["connecting", "user", "password"];
    let server = PostgresServer::start();
    let url = server.url_as("app", "password-marker");
    assert_says(PostgresStore::connect(url).await, Refused, &parts);
    let url = server.url_of("no_such_database");
    assert_says(PostgresStore::connect(url).await, Refused, &["database"]);
    let server = MariaDbServer::start();
    let url = server.url_as("app", "password-marker");
    assert_says(MySqlStore::connect(url).await, Refused, &parts);
    let url = server.url_of("no_such_database");
    assert_says(MySqlStore::connect(url).await, Refused, &["database"]);
    let url = "no url at all with password-marker";
    assert_says(PostgresStore::connect(url).await, Refused, &["URL"]);
    assert_says(MySqlStore::connect(url).await, Refused, &["URL"]);
}

async fn a_server_that_does_not_wait_for_its_disk_is_reported<B: Server>() {
    let (setting, flushes, value) = if B::POSTGRES {
        ("synchronous_commit", "on", "off")
    } else {
        ("innodb_flush_log_at_trx_commit", "1", "2")
    };
    for (setting_to, reports) in [(flushes, 0), (value, 1)] {
        let server = B::serve(&[(setting, setting_to)]);
        let store = SqlStore::<B>::connect(server.password_url()).await.unwrap();
        let warnings = store.warnings();
        let reported = warnings.iter().filter(|warning| {
            warning.contains(&format!("{setting} is {value}"))
                && warning.contains("a crash of the server forgets")
        });
        assert_eq!(reported.count(), reports, "{warnings:?}");
    }
}
