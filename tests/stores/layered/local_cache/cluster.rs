//! On a cluster: every node publishes every reset.

use std::sync::Arc;
use std::time::Duration;

use idem_harness::{ClusterSetup, RedisServerBuilder};
use idem_runtime::cache::LocalCache;
use idem_tests::shop::{PASSWORD, connect, until};

use super::fixture::Fixture;
use super::redis::taken_back;

fn cluster() -> ClusterSetup {
    let cluster = ClusterSetup::builder();
    cluster
        .node_timeout(Duration::from_mins(1))
        .nodes(RedisServerBuilder::append_only_every_second)
        .start()
}

async fn fixture(url: &str) -> Fixture {
    let store = Arc::new(connect(url).await.unwrap());
    let lasting = LocalCache::new().max_age(Duration::from_hours(24));
    Fixture::with(store, lasting, idem_tests::shop::persistent).await
}

#[tokio::test]
async fn resets_of_keys_anywhere_are_notified() {
    let cluster = cluster();
    let one = fixture(&cluster.nodes()[0].url()).await;
    let other = fixture(&cluster.nodes()[1].url()).await.sharing(&one);
    // With three primaries, each has some of these 12 keys.
    for key in 0..12 {
        taken_back(&one, &other, &key.to_string()).await;
    }
    let subscribers = || {
        let count = |node: &idem_harness::RedisServer| {
            let list = node.cli(&["CLIENT", "LIST", "TYPE", "pubsub"]);
            list.lines().filter(|line| !line.is_empty()).count()
        };
        cluster.nodes().iter().map(count).sum::<usize>()
    };
    assert_eq!(subscribers(), 2, "one node is enough");
    for node in cluster.nodes() {
        node.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    }
    for fixture in [&one, &other] {
        until("the loss is noticed", || fixture.stats().entries == 0).await;
        until("the cache opens", || fixture.stats().is_open).await;
    }
    taken_back(&other, &one, "again").await;
}

#[tokio::test]
async fn the_documented_rights_are_enough_and_others_are_warned_of() {
    let cluster = cluster();
    let set_user = |rights: &str| {
        let rules = format!(
            "ACL SETUSER app reset on >{PASSWORD} ~idem:* +eval +evalsha +get +getrange +set +time \
             +pttl +pexpire +strlen +exists +hello +info +cluster|slots +asking &idem:* +spublish \
             +ssubscribe +sunsubscribe {rights}"
        );
        for node in cluster.nodes() {
            node.cli(&rules.split_whitespace().collect::<Vec<_>>());
        }
    };
    let url = cluster.nodes()[0].url_as("app", PASSWORD);
    set_user("+publish +subscribe +unsubscribe");
    let one = fixture(&url).await;
    let other = fixture(&url).await.sharing(&one);
    taken_back(&one, &other, "a").await;
    let warnings = |fixture: &Fixture| {
        let told = fixture.told.all().into_iter();
        told.filter(|told| told.starts_with("warning")).count()
    };
    assert_eq!((warnings(&one), warnings(&other)), (0, 0));
    // The rights to wait for a key are not the rights to cache answers.
    set_user("");
    let third = fixture(&url).await;
    until("both are warned of", || warnings(&third) == 2).await;
}
