//! A server that only reads, and a file without room.

use std::str::FromStr as _;

use idem_runtime::store::StoreErrorKind::{Full, Unavailable};
use idem_runtime::store::sql::{SqlSource, SqlStore, Sqlite, SqliteStore};
use sqlx::sqlite::SqliteConnectOptions;

use crate::home::{Kind, Server, on_each_database, open};
use crate::till::{Till, assert_retryable, assert_says, claim};

on_each_database!(; what_is_done_is_replayed_by_a_server_that_only_reads);

async fn what_is_done_is_replayed_by_a_server_that_only_reads<B: Server>() {
    let server = B::serve(&[]);
    // MariaDB lets those with all rights write.
    let url = server.password_url();
    let till = Till::hasty(&open::<B>(&url).await);
    let first = till.pay("a").await.unwrap();
    server.execute(if B::POSTGRES {
        "ALTER DATABASE idem SET default_transaction_read_only = on"
    } else {
        "SET GLOBAL read_only = 1"
    });
    let store = SqlStore::<B>::connect(&url).await.unwrap();
    assert_says(claim(&store).await, Unavailable, &["a claim", "read-only"]);
    let effects = till.beside(&store);
    assert_eq!(effects.pay("a").await.unwrap(), first);
    let hasty = Till::hasty(&store);
    assert_retryable(hasty.pay("b").await);
    assert_eq!((till.effects("a"), hasty.effects("b")), (1, 0));
    server.execute(if B::POSTGRES {
        "SET default_transaction_read_only = off; \
         ALTER DATABASE idem RESET default_transaction_read_only"
    } else {
        "SET GLOBAL read_only = 0"
    });
    // Connections that were told no are not used again.
    hasty.pay("b").await.unwrap();
    assert_eq!(hasty.effects("b"), 1);
}

/// A claim is refused. So is the answer of a body that runs, since there is no room for it either; it is
/// given to its caller, and kept once there is room again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_file_refuses_claims_and_has_answers_wait() {
    let home = Sqlite::home();
    drop(open::<Sqlite>(&home.url).await);
    // A limit is a connection's, and lasts as long.
    let limit = home.sql("PRAGMA page_count").await;
    let options = SqliteConnectOptions::from_str(&home.url).unwrap();
    let options = options.pragma("max_page_count", limit);
    let store = SqliteStore::connect(SqlSource::options(options))
        .await
        .unwrap();
    let till = Till::hasty(&store);
    let mut done = Vec::new();
    let full = loop {
        assert!(done.len() < 1_000, "the file has no end");
        let key = done.len().to_string();
        match till.pay(&key).await {
            Ok(answer) => done.push(answer),
            Err(error) => break error,
        }
    };
    assert_retryable(Err(full));
    assert!(done.len() > 3, "{}", done.len());
    assert_says(claim(&store).await, Full, &["a claim", "room", "purge"]);
    for (key, answer) in done.iter().enumerate() {
        assert_eq!(&till.pay(&key.to_string()).await.unwrap(), answer);
    }
    assert_eq!(till.all_effects(), done.len());
}
