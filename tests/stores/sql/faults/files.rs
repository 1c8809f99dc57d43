//! The errors for a wrong file of a SQLite store.

use std::fs;

use idem_harness::TestDir;
use idem_tests::sql::connect;
use sqlx::sqlite::SqliteConnectOptions;

use super::prelude::*;

#[tokio::test]
async fn a_place_without_a_database_is_refused() {
    let dir = TestDir::new("wrong").unwrap();
    let text = "password-marker, and not a database\n".repeat(100);
    fs::write(dir.path().join("text.db"), text).unwrap();
    let path = |file: &str| format!("sqlite:{}", dir.path().join(file).display());
    for (url, part) in [
        (path("missing/a.db"), "directory"),
        (path("text.db"), "no SQLite database"),
        ("sqlite::memory:".to_owned(), "MemoryStore"),
        ("sqlite://:memory:".to_owned(), "MemoryStore"),
        ("sqlite:a?mode=memory".to_owned(), "MemoryStore"),
        ("sqlite:".to_owned(), "MemoryStore"),
    ] {
        let store = SqliteStore::connect(url).await;
        assert_says(store, Refused, &["connecting", part]);
    }
    let options = SqliteConnectOptions::new().filename(":memory:");
    let store = SqliteStore::connect(options).await;
    assert_says(store, Refused, &["connecting", "MemoryStore"]);
}

#[tokio::test]
async fn a_read_only_file_is_reported() {
    let test_database = TestDatabase::new::<Sqlite>();
    let fixture = Fixture::on(&open::<Sqlite>(&test_database.url).await);
    let first = fixture.pay("a").await.unwrap();
    let url = format!("{}?mode=ro", test_database.url);
    let store = connect::<Sqlite>(url).await;
    assert_says(
        claim(&store).await,
        Refused,
        &["a claim", "may only be read"],
    );
    let reader = fixture.beside(&store);
    assert_eq!(reader.pay("a").await.unwrap(), first);
    assert_permanent(reader.pay("b").await);
    assert_eq!((fixture.effects("a"), fixture.effects("b")), (1, 0));
}

/// New connections detect it; an open one writes into the deleted file.
#[tokio::test]
async fn a_damaged_or_deleted_file_is_reported_on_open() {
    let (test_database, store) = opened::<Sqlite>().await;
    let fixture = Fixture::on(&store);
    for number in 0..50 {
        fixture.pay(&number.to_string()).await.unwrap();
    }
    test_database.sql("PRAGMA wal_checkpoint(TRUNCATE)").await;
    let path = test_database.path();
    let mut bytes = fs::read(path).unwrap();
    bytes[4096..].fill(0xa5);
    fs::write(path, bytes).unwrap();
    let late = connect::<Sqlite>(&test_database.url).await;
    assert_says(claim(&late).await, Refused, &["damaged"]);
    drop(late);
    for end in ["", "-wal", "-shm"] {
        fs::remove_file(format!("{path}{end}")).unwrap();
    }
    let late = connect::<Sqlite>(&test_database.url).await;
    assert_says(claim(&late).await, Refused, &["`migrate()`"]);
}
