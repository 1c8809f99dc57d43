//! Mistakes in a URL or a setting: the error names the remedy.

use idem_harness::{ClusterSetup, SentinelSetup};
use idem_tests::sentinel_url;
use idem_tests::shop::assert_no_store;

use crate::prelude::*;

#[tokio::test]
async fn a_url_to_another_kind_of_server_is_refused() {
    let server = RedisServer::start();
    let at = server.addr();
    let refused = StoreErrorKind::Refused;
    let sentinel = RedisStore::builder(format!("redis+sentinel://{at}/service"));
    assert_no_store(sentinel, refused, "this is no sentinel").await;
    let cluster = RedisStore::builder(format!("redis+cluster://{at}"));
    assert_no_store(cluster, refused, "is no cluster; write `redis://").await;
    let user = RedisStore::builder(format!("redis://user@{at}"));
    assert_no_store(user, refused, "user without a password").await;
    let unknown = RedisStore::builder("redis://no-such-host.invalid");
    assert_no_store(unknown, StoreErrorKind::Unavailable, "DNS").await;
}

#[tokio::test]
async fn a_cluster_has_one_database() {
    let cluster = ClusterSetup::start();
    let builder = RedisStore::builder(format!("redis://{}/1", cluster.addrs()[0]));
    assert_no_store(builder, StoreErrorKind::Refused, "one database only").await;
}

#[tokio::test]
async fn sentinels_have_a_password_of_their_own() {
    let group = SentinelSetup::builder()
        .sentinels(|sentinel| sentinel.password("sentinel-marker,@/?"))
        .start();
    let builder = || RedisStore::builder(sentinel_url(&group));
    let part = "sentinel_credentials";
    assert_no_store(builder(), StoreErrorKind::Refused, part).await;
    let wrong = builder().sentinel_credentials(None, PASSWORD);
    assert_no_store(wrong, StoreErrorKind::Refused, part).await;
    let right = builder().sentinel_credentials(None, "sentinel-marker,@/?");
    right.connect().await.unwrap();
}
