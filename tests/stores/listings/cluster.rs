//! Each primary of a cluster is listed, one after the other.

use idem_tests::shop::assert_contains;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use idem_harness::ClusterSetup;
use idem_runtime::store::Store;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Engine, ErrorKind};

use super::filled::{Fate, PREFIX, digests, engine, fate, fill};

async fn connect(cluster: &ClusterSetup) -> Arc<dyn Store> {
    let store = RedisStore::builder(cluster.urls().swap_remove(0));
    let store = store.response_timeout(Duration::from_secs(20)).connect();
    Arc::new(store.await.unwrap())
}

async fn another(cluster: &ClusterSetup) -> Engine {
    engine(connect(cluster).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_primary_is_listed_and_a_slot_that_moves_ends_the_listing() {
    const RECORDS: u32 = 3_000;
    let cluster = ClusterSetup::builder()
        .node_timeout(Duration::from_mins(1))
        .start();
    let store = connect(&cluster).await;
    fill(&store, PREFIX, 0..RECORDS).await;
    let kept = digests(|number| number < RECORDS && fate(number) != Fate::Expired);

    let mut found = BTreeSet::new();
    let mut nodes = BTreeSet::new();
    let mut cursor: Option<String> = None;
    loop {
        // Each page in another process.
        let engine = another(&cluster).await;
        let entries = engine.entries().page_size(400);
        let mut entries = match &cursor {
            Some(cursor) => entries.after(cursor.clone()),
            None => entries,
        };
        let Some(page) = entries.next_page().await.unwrap() else {
            break;
        };
        cursor = page.cursor().map(str::to_owned);
        found.extend(page.into_iter().map(|entry| *entry.key()));
        let Some(cursor) = &cursor else { break };
        nodes.insert(cursor.rsplit(':').next().unwrap().to_owned());
    }
    assert!(found.into_iter().collect::<Vec<_>>() == kept);
    assert_eq!(nodes.len(), 3, "the cursor names the node: {nodes:?}");

    let engine = another(&cluster).await;
    let mut entries = engine.entries().page_size(400);
    let page = entries.next_page().await.unwrap().unwrap();
    let cursor = page.cursor().unwrap().to_owned();
    let (slot, target) = (0, cluster.node_of_slot(16_000));
    cluster.migrate_slot(slot, target);
    let mut elsewhere = another(&cluster).await.entries().after(cursor);
    let error = elsewhere.next_page().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidCursor, "{error}");
    assert_contains(&error, "begin the listing again");
    let count = another(&cluster).await.entries().count().await.unwrap();
    assert_eq!(count, kept.len() as u64);
}
