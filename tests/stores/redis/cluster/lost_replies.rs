//! Commands without a reply are sent again, and have no second effect.

use std::time::Duration;

use idem_runtime::store::author::{ClaimReply, ClaimRequest, CompleteReply, Header, Owner};
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::{OutcomeKind, RecordKey, Store, StoreError};
use idem_tests::claims::{finished, granted, unhurried};
use idem_tests::shop::{connected, patiently, until};

use crate::setup::{Behind, Keys, calls};

fn request(owner: Owner) -> ClaimRequest {
    let mut request = ClaimRequest::new(owner, Duration::from_hours(1), Duration::from_hours(24));
    request.dated = false;
    request
}

/// Retries until there is a reply, as the engine does.
async fn insist<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> T {
    let asking = async {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        }
    };
    patiently(what, asking).await
}

async fn claim(store: &dyn Store, key: &RecordKey, owner: Owner) -> Header {
    let request = request(owner);
    let reply = insist("a claim", async || {
        store.claim(key, &request, &unhurried()).await
    })
    .await;
    let header = granted(&request, &reply);
    assert_eq!(header.attempts, 1, "one claim is one attempt");
    header
}

/// Claims, completes and claims again; each command may be sent several times.
async fn once(store: &dyn Store, key: &RecordKey, fault: impl Fn()) {
    fault();
    let header = claim(store, key, Owner::random()).await;
    let done = finished(&header, OutcomeKind::Value, b"an answer");
    fault();
    let reply = insist("a completion", async || {
        store.complete(key, None, &done).await
    })
    .await;
    assert_eq!(reply, CompleteReply::Stored { late: false });
    let other = request(Owner::random());
    fault();
    let reply = insist("a replay", async || {
        store.claim(key, &other, &unhurried()).await
    })
    .await;
    let ClaimReply::Done { record, .. } = reply else {
        panic!("it is done: {reply:?}");
    };
    let seen = (record.header.attempts, record.header.fence);
    assert_eq!(seen, (1, header.fence));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_are_lost_change_nothing_twice() {
    let behind = Behind::a_proxy().await;
    let store = RedisStore::builder(behind.other_urls()[0].as_str())
        .response_timeout(Duration::from_secs(1));
    let store = connected(store).await;
    for number in 0..20 {
        let key = behind.keys.key(number);
        once(&store, &key, || behind.proxy.drop_next_reply_to(key.name())).await;
    }
    let node = behind.cluster.node_of_slot(0);
    let scripts = calls(node, "evalsha") + calls(node, "eval");
    let plain = calls(node, "set");
    // At least two of each were executed. Commands of scripts are counted as well.
    assert!(scripts + plain >= 20 * 6, "{scripts} and {plain}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_silent_is_replaced_and_no_other() {
    let behind = Behind::a_proxy().await;
    let Behind {
        cluster,
        proxy,
        keys,
    } = &behind;
    let store = RedisStore::builder(behind.other_urls()[0].as_str())
        .response_timeout(Duration::from_secs(1));
    let store = connected(store).await;
    once(&store, &keys.key(1), || ()).await;
    let other = Keys::on(cluster, cluster.node_of_slot(16_000), "other");
    once(&store, &other.key(1), || ()).await;
    let before = proxy.stats().connections;
    proxy.black_hole(true);
    // Three missed replies are the only sign that the connection is dead.
    let (key, other_key) = (keys.key(2), other.key(2));
    let beside = async {
        until("another connection", || proxy.stats().connections > before).await;
        once(&store, &other_key, || ()).await;
        proxy.black_hole(false);
    };
    tokio::join!(once(&store, &key, || ()), beside);
}
