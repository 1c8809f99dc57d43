//! A password that changes or expires, and its provider.

use idem_harness::{ClusterSetup, SentinelSetup};
use idem_runtime::credentials::{Credentials, CredentialsProvider};
use idem_tests::secret::{ChangingSecret, change_acl_user};
use idem_tests::sentinel_url;
use idem_tests::shop::{assert_contains, assert_no_marker, patiently};
use tokio::task::block_in_place;

use crate::prelude::*;
use crate::relay::Relay;

/// All servers of a group.
type Servers<G> = fn(&G) -> Vec<&RedisServer>;

/// 200 calls while the password changes ten times.
async fn calls_are_answered<G: Send + Sync + 'static>(
    secret: &ChangingSecret,
    store: RedisStoreBuilder,
    group: &Arc<G>,
    servers: Servers<G>,
) {
    let store = patient(store.credentials(secret.provider("app")));
    let store = store.connect().await.unwrap();
    let shop = Shop::on(store.clone(), persistent);
    let calls = |number: usize| {
        let shop = shop.clone();
        async move { drop(shop.pay(&number.to_string()).await.unwrap()) }
    };
    let group = Arc::clone(group);
    let on_all = move |password: &str| change_all(&servers(&group), password);
    let changes = secret.change_under_load(on_all, calls).await;
    assert_eq!(shop.runs(), 200);
    assert!(secret.provided() > changes, "{}", secret.provided());
    assert_no_marker(&format!("{store:?} {:?}", shop.events.all()));
}

fn change_all(servers: &[&RedisServer], password: &str) {
    for server in servers {
        change_acl_user(server, password);
    }
}

/// Without the provider a cut connection is refused until a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_password_refuses_no_call() {
    let (server, secret) = (
        RedisServer::builder().tls().start(),
        ChangingSecret::default(),
    );
    change_acl_user(&server, &secret.password());
    let server = Arc::new(server);
    // A user without a password in the URL needs the provider.
    let plain = RedisStore::builder(format!("redis://app@{}", server.addr()));
    let tls = RedisStore::builder(server.tls_url());
    let tls = tls.root_certificate(server.certificates().ca_pem());
    for store in [plain, tls] {
        calls_are_answered(&secret, store, &server, |server| vec![server]).await;
    }
}

/// The sentinels and the servers have the same user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_password_of_sentinels_and_servers_refuses_no_call() {
    let (group, secret) = (Arc::new(SentinelSetup::start()), ChangingSecret::default());
    let all: Servers<SentinelSetup> =
        |group| group.servers().iter().chain(group.sentinels()).collect();
    change_all(&all(&group), &secret.password());
    for sentinel in group.sentinels() {
        sentinel.cli(&["ACL", "SETUSER", "default", "off"]);
    }
    let store = RedisStore::builder(sentinel_url(&group));
    let store = store.sentinel_credentials_provider(secret.provider("app"));
    calls_are_answered(&secret, store, &group, all).await;
}

/// Each node is connected to by itself, also by a seed's credentials.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_password_of_a_cluster_refuses_no_call() {
    let (cluster, secret) = (Arc::new(ClusterSetup::start()), ChangingSecret::default());
    let all: Servers<ClusterSetup> = |cluster| cluster.nodes().iter().collect();
    change_all(&all(&cluster), &secret.password());
    let store = RedisStore::builder(format!("redis+cluster://{}", cluster.addrs()[0]));
    calls_are_answered(&secret, store, &cluster, all).await;
}

/// Another connection than that of the calls: it subscribes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_password_ends_no_notification() {
    let (server, secret) = (RedisServer::start(), ChangingSecret::default());
    change_acl_user(&server, &secret.password());
    let store = RedisStore::builder(server.url()).credentials(secret.provider("app"));
    let store = patient(store).connect().await.unwrap();
    for number in 0..3 {
        let key = crate::key(number);
        // While its connection is made again, the store has none to subscribe on.
        let watching = async {
            loop {
                match store.watch(&key).await {
                    Ok(Some(watch)) => return watch,
                    _ => tokio::task::yield_now().await,
                }
            }
        };
        let mut watch = patiently("it is watched", watching).await;
        block_in_place(|| server.cli(&["PUBLISH", &key.name(), "D"]));
        patiently("it is notified", watch.changed()).await;
        block_in_place(|| secret.change(|password| change_acl_user(&server, password)));
    }
}

/// As with tokens that expire while a connection lives.
#[tokio::test]
async fn a_login_that_expires_on_a_living_connection_refuses_no_call() {
    let (server, secret) = (RedisServer::start(), ChangingSecret::default());
    change_acl_user(&server, &secret.password());
    server.cli(&["ACL", "SETUSER", "default", "off"]);
    let relay = Relay::start(&[&server]);
    let store = RedisStore::builder(format!("redis://{}", relay.addr()));
    let store = patient(store.credentials(secret.provider("app")));
    let shop = Shop::on(store.connect().await.unwrap(), persistent);
    for number in 0..5 {
        let provided = secret.provided();
        // Before the claim, and before the completion.
        relay.expire();
        let key = number.to_string();
        shop.pay_while(&key, || relay.expire()).await.unwrap();
        assert!(secret.provided() >= provided + 2, "{}", secret.provided());
    }
    assert_eq!((shop.runs(), shop.events.count("unsaved")), (5, 0));
}

/// The server that refuses, or the provider, may soon have another password.
#[tokio::test]
async fn a_provider_that_fails_or_is_refused_is_reported() {
    let server = RedisServer::start();
    let builder = |provider: CredentialsProvider| {
        RedisStore::builder(server.url())
            .credentials(provider)
            .connect()
    };
    let fails = || async { Err::<Credentials, _>(std::io::Error::other("the vault is sealed")) };
    let error = builder(fails.into()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert_contains(&error, "connecting to Redis at 127.0.0.1");
    assert_contains(&error, "the provider of credentials failed");
    let source = std::error::Error::source(&error).unwrap();
    assert_contains(source, "the vault is sealed");

    let wrong = ChangingSecret::default();
    let error = builder(wrong.provider("app")).await.unwrap_err();
    assert_eq!(wrong.provided(), 2);
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    idem_tests::shop::assert_discreet(&error);
}
