//! What a person reads who made a mistake in the settings.

use idem_harness::{ClusterSetup, RedisServer, SentinelSetup};
use idem_runtime::store::StoreErrorKind;
use idem_runtime::store::redis::{RedisStore, RedisStoreBuilder};
use idem_tests::shop::{PASSWORD, refused};

use super::url_of;

/// What the store says of a mistake in its settings.
async fn says(builder: RedisStoreBuilder, kind: StoreErrorKind, part: &str) {
    let (said, message) = refused(builder).await;
    assert_eq!(said, kind, "{message}");
    assert!(message.contains(part), "{message}");
}

#[tokio::test]
async fn a_url_to_something_else_is_told_what_that_is() {
    let server = RedisServer::start();
    let at = server.addr();
    let refused = StoreErrorKind::Refused;
    let sentinel = RedisStore::builder(format!("redis+sentinel://{at}/service"));
    says(sentinel, refused, "this is no sentinel").await;
    let cluster = RedisStore::builder(format!("redis+cluster://{at}"));
    says(cluster, refused, "is no cluster; write `redis://").await;
    let user = RedisStore::builder(format!("redis://user@{at}"));
    says(user, refused, "user without a password").await;
    let unknown = RedisStore::builder("redis://no-such-host.invalid");
    says(unknown, StoreErrorKind::Unavailable, "DNS").await;
}

#[tokio::test]
async fn a_cluster_has_one_database() {
    let cluster = ClusterSetup::start();
    let builder = RedisStore::builder(format!("redis://{}/1", cluster.addrs()[0]));
    says(builder, StoreErrorKind::Refused, "one database only").await;
}

#[tokio::test]
async fn sentinels_have_a_password_of_their_own() {
    let group = SentinelSetup::builder()
        .sentinels(|sentinel| sentinel.password("sentinel-marker,@/?"))
        .start();
    let builder = || RedisStore::builder(url_of(group.sentinel_addrs()));
    let part = "sentinel_credentials";
    says(builder(), StoreErrorKind::Refused, part).await;
    let wrong = builder().sentinel_credentials(None, PASSWORD);
    says(wrong, StoreErrorKind::Refused, part).await;
    let right = builder().sentinel_credentials(None, "sentinel-marker,@/?");
    right.connect().await.unwrap();
}
