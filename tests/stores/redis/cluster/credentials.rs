//! A password that changes on all nodes, and its provider.

use std::sync::Arc;

use idem_harness::ClusterSetup;
use idem_runtime::store::redis::RedisStore;
use idem_tests::secret::{ChangingSecret, change_acl_user};
use idem_tests::shop::{Shop, patient, persistent};

/// Each node is connected to by itself, also with the credentials of a seed that the store has no connection to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_password_refuses_no_call() {
    let (cluster, secret) = (ClusterSetup::start(), ChangingSecret::default());
    let cluster = Arc::new(cluster);
    let on_nodes = {
        let cluster = Arc::clone(&cluster);
        move |password: &str| {
            for node in cluster.nodes() {
                change_acl_user(node, password);
            }
        }
    };
    on_nodes(&secret.password());
    let url = format!("redis+cluster://{}", cluster.addrs()[0]);
    let store = RedisStore::builder(url).credentials(secret.provider("app"));
    let shop = Shop::on(patient(store).connect().await.unwrap(), persistent);
    let calls = |number: usize| {
        let shop = shop.clone();
        async move { drop(shop.pay(&number.to_string()).await.unwrap()) }
    };
    let changes = secret.change_under_load(on_nodes, calls).await;
    assert_eq!(shop.runs(), 200);
    assert!(secret.provided() > changes, "{}", secret.provided());
}
