//! Mistakes in a URL or a setting: the error names the remedy.

use idem_harness::{ClusterSetup, SentinelSetup};
use idem_tests::sentinel_url;

use crate::prelude::*;

async fn assert_refused(builder: RedisStoreBuilder, kind: StoreErrorKind, part: &str) {
    let (actual, message) = refused(builder).await;
    assert_eq!(actual, kind, "{message}");
    assert!(message.contains(part), "{message}");
}

#[tokio::test]
async fn a_url_to_another_kind_of_server_is_refused() {
    let server = RedisServer::start();
    let at = server.addr();
    let refused = StoreErrorKind::Refused;
    let sentinel = RedisStore::builder(format!("redis+sentinel://{at}/service"));
    assert_refused(sentinel, refused, "this is no sentinel").await;
    let cluster = RedisStore::builder(format!("redis+cluster://{at}"));
    assert_refused(cluster, refused, "is no cluster; write `redis://").await;
    let user = RedisStore::builder(format!("redis://user@{at}"));
    assert_refused(user, refused, "user without a password").await;
    let unknown = RedisStore::builder("redis://no-such-host.invalid");
    assert_refused(unknown, StoreErrorKind::Unavailable, "DNS").await;
}

#[tokio::test]
async fn a_cluster_has_one_database() {
    let cluster = ClusterSetup::start();
    let builder = RedisStore::builder(format!("redis://{}/1", cluster.addrs()[0]));
    assert_refused(builder, StoreErrorKind::Refused, "one database only").await;
}

#[tokio::test]
async fn sentinels_have_a_password_of_their_own() {
    let group = SentinelSetup::builder()
        .sentinels(|sentinel| sentinel.password("sentinel-marker,@/?"))
        .start();
    let builder = || RedisStore::builder(sentinel_url(&group));
    let part = "sentinel_credentials";
    assert_refused(builder(), StoreErrorKind::Refused, part).await;
    let wrong = builder().sentinel_credentials(None, PASSWORD);
    assert_refused(wrong, StoreErrorKind::Refused, part).await;
    let right = builder().sentinel_credentials(None, "sentinel-marker,@/?");
    right.connect().await.unwrap();
}
