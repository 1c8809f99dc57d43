//! The rights that a restricted user needs on a cluster.

use idem_harness::ClusterSetup;
use idem_runtime::store::author::ReadReply;
use idem_runtime::store::{Store, StoreErrorKind};
use idem_tests::shop::{PASSWORD, connect};

use crate::client::{Client, told};
use crate::setup::{Keys, durable, other_than};

/// The rights that the documentation of `RedisStore` lists.
const DOCUMENTED: &str = "~idem:* +eval +evalsha +get +getrange +set +time +pttl +pexpire +strlen \
                          +exists +hello +info +cluster|slots +asking &idem:* +spublish \
                          +ssubscribe +sunsubscribe";

fn set_user(cluster: &ClusterSetup, rules: &str) {
    let setting = format!("ACL SETUSER app reset on >{PASSWORD} {rules}");
    for node in cluster.nodes() {
        node.cli(&setting.split_whitespace().collect::<Vec<_>>());
    }
}

fn url(cluster: &ClusterSetup) -> String {
    cluster.nodes()[0].url_as("app", PASSWORD)
}

#[tokio::test]
async fn the_documented_rights_are_enough() {
    let cluster = durable();
    set_user(&cluster, DOCUMENTED);
    for (number, url) in [url(&cluster), format!("{}?protocol=resp3", url(&cluster))]
        .iter()
        .enumerate()
    {
        let store = connect(url).await.unwrap();
        assert_eq!(store.warnings(), Vec::<String>::new());
        let client = Client::of(url).await;
        let keys = Keys::new(&cluster, &format!("rights{number}"));
        let mut watch = client.watch(&keys.key(1)).await;
        client.pass(&keys.key(1)).await;
        told(&mut watch).await;
        let source = cluster.node_of_slot(keys.slot);
        let migration = cluster.begin_migration(keys.slot, other_than(&cluster, source));
        client.pass(&keys.key(2)).await;
        migration.finish();
        client.pass(&keys.key(3)).await;
    }
}

/// The rights to see slots, and to follow a migrating slot.
#[tokio::test]
async fn a_user_without_a_right_of_a_cluster_gets_its_name() {
    let cluster = durable();
    set_user(&cluster, &DOCUMENTED.replace("+cluster|slots", ""));
    let mut errors = vec![connect(url(&cluster)).await.unwrap_err()];
    set_user(&cluster, &DOCUMENTED.replace("+asking", ""));
    let store = connect(url(&cluster)).await.unwrap();
    let keys = Keys::new(&cluster, "asking");
    assert_eq!(store.read(&keys.key(1)).await.unwrap(), ReadReply::Absent);
    let source = cluster.node_of_slot(keys.slot);
    let migration = cluster.begin_migration(keys.slot, other_than(&cluster, source));
    errors.push(store.read(&keys.key(1)).await.unwrap_err());
    migration.finish();
    assert_eq!(store.read(&keys.key(1)).await.unwrap(), ReadReply::Absent);
    for error in errors {
        assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
        assert!(error.to_string().contains("lacks a right"), "{error}");
    }
}

#[tokio::test]
async fn a_user_without_the_right_to_subscribe_polls() {
    let cluster = durable();
    for right in ["+ssubscribe", "&idem:*"] {
        set_user(&cluster, &DOCUMENTED.replace(&format!("{right} "), ""));
        let client = Client::of(&url(&cluster)).await;
        let keys = Keys::new(&cluster, "untold");
        assert!(
            client.try_watch(&keys.key(1)).await.unwrap().is_none(),
            "{right}"
        );
        client.pass(&keys.key(1)).await;
        let warned = |said| {
            client
                .0
                .warnings()
                .iter()
                .any(|warning| warning.contains(said))
        };
        assert!(warned("waiting calls poll"), "{right}");
        assert!(warned("does not let this user subscribe"), "{right}");
        cluster.cli(keys.key(1).name(), &["DEL", &keys.key(1).name()]);
    }
}

#[tokio::test]
async fn a_user_without_the_right_to_unsubscribe_is_still_notified() {
    let cluster = durable();
    set_user(&cluster, &DOCUMENTED.replace(" +sunsubscribe", ""));
    let client = Client::of(&url(&cluster)).await;
    let keys = Keys::new(&cluster, "ears");
    for _ in 0..3 {
        drop(client.watch(&keys.key(1)).await);
        let mut watch = client.watch(&keys.key(1)).await;
        client.pass(&keys.key(1)).await;
        told(&mut watch).await;
    }
}
