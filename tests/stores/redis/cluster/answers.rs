//! Answers that are stored without the script, while their slot is in migration.

use idem_harness::{ClusterSetup, Edition};
use idem_runtime::store::{CompleteReply, Header, OutcomeKind, ReadReply, RecordKey, Store};
use idem_tests::claims::finished;

use crate::client::{Client, store};
use crate::setup::{Keys, other_than};

/// Stores such an answer, as the engine does.
async fn complete(store: &dyn Store, key: &RecordKey, claim: &Header, size: usize) {
    let record = finished(claim, OutcomeKind::Value, &vec![b'a'; size]);
    let reply = store.complete_claim(key, claim, &record).await.unwrap();
    assert_eq!(reply, CompleteReply::Stored { late: false }, "{size} bytes");
    let found = store.read(key).await.unwrap();
    let is_whole =
        matches!(found, ReadReply::Found { record: found, .. } if *found.as_bytes() == record);
    assert!(is_whole, "{size} bytes");
}

/// Completes claims that have been moved, and claims that have not, with small and large answers.
async fn half_way(cluster: &ClusterSetup) {
    let keys = Keys::new(cluster, "answers");
    let client = Client::of(&cluster.urls()[0]).await;
    let store = store(&cluster.urls()[0]).await;
    let mut claims = Vec::new();
    for number in 0..4 {
        let key = keys.key(number);
        let claim = client.take(&key).await;
        claims.push((key, claim));
    }
    let source = cluster.node_of_slot(keys.slot);
    let migration = cluster.begin_migration(keys.slot, other_than(cluster, source));
    for (at, (key, claim)) in claims.iter().enumerate() {
        if at < 2 {
            migration.move_key(key.name());
        }
        complete(&store, key, claim, [10, 20_000][at % 2]).await;
    }
    migration.finish();
    for (key, _) in &claims {
        let found = store.read(key).await.unwrap();
        assert!(matches!(found, ReadReply::Found { .. }), "{found:?}");
    }
}

#[tokio::test]
async fn answers_of_a_slot_that_is_half_way_are_stored() {
    half_way(&ClusterSetup::start()).await;
    // Its servers compare and set.
    let cluster = ClusterSetup::builder().nodes(|node| node.version(Edition::Valkey));
    half_way(&cluster.start()).await;
}
