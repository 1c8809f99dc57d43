//! Commands whose reply is lost with a connection are sent again, and have no second effect.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use idem_harness::ClusterSetup;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::{
    ClaimReply, ClaimRequest, CompleteReply, Header, OutcomeKind, Owner, RecordKey, Store,
    StoreError,
};
use idem_tests::claims::{finished, granted};
use idem_tests::shop::{HASTE, connected, patiently, until};

use crate::setup::{Behind, Keys, calls, primaries};

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
    let reply = insist("a claim", async || store.claim(key, &request).await).await;
    let header = granted(&request, &reply);
    assert_eq!(header.attempts, 1, "one claim is one attempt");
    header
}

fn record(claim: &Header, answer: &[u8]) -> Bytes {
    finished(claim, OutcomeKind::Value, answer)
}

/// Claims, completes and claims again; each command may be sent several times.
async fn once(store: &dyn Store, key: &RecordKey) {
    let header = claim(store, key, Owner::random()).await;
    let done = record(&header, b"an answer");
    let reply = insist("a completion", async || store.complete(key, &done).await).await;
    assert_eq!(reply, CompleteReply::Stored { late: false });
    let other = request(Owner::random());
    let reply = insist("a replay", async || store.claim(key, &other).await).await;
    let ClaimReply::Done { record, .. } = reply else {
        panic!("it is done: {reply:?}");
    };
    assert_eq!(record.header.attempts, 1);
    assert_eq!(record.header.fence, header.fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_killed_change_nothing_twice() {
    let cluster = Arc::new(ClusterSetup::start());
    let store = RedisStore::builder(cluster.urls()[0].as_str()).response_timeout(HASTE);
    let store = connected(store).await;
    let keys: Vec<_> = (0..6)
        .map(|number| Keys::new(&cluster, &format!("killed{number}")))
        .collect();
    // Kills all connections repeatedly, but not before a command was answered: on a busy machine the terminator alone
    // would make progress otherwise.
    let (answered, answers) = std::sync::mpsc::channel();
    let terminator = std::thread::spawn({
        let cluster = Arc::clone(&cluster);
        move || {
            let mut killed = 0_u32;
            while answers.recv().is_ok() {
                for node in primaries(&cluster) {
                    let count = node.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                    killed += count.parse::<u32>().unwrap();
                }
                // Replies received meanwhile must not cause a second kill.
                while answers.try_recv().is_ok() {}
            }
            killed
        }
    });
    for number in 0..100 {
        for keys in &keys {
            once(&store, &keys.key(number)).await;
            answered.send(()).unwrap();
        }
    }
    drop(answered);
    let killed = terminator.join().unwrap();
    eprintln!("{killed} connections killed");
    assert!(killed > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_are_lost_change_nothing_twice() {
    let behind = Behind::a_proxy().await;
    let store = RedisStore::builder(behind.other_urls()[0].as_str())
        .response_timeout(Duration::from_secs(1));
    let store = connected(store).await;
    let Behind { proxy, keys, .. } = &behind;
    for number in 0..20 {
        let key = keys.key(number);
        let name = key.name();
        // A claim, its completion, and another claim: the reply to each is lost.
        let header = {
            proxy.drop_next_reply_to(&name);
            claim(&store, &key, Owner::random()).await
        };
        proxy.drop_next_reply_to(&name);
        let done = record(&header, b"an answer");
        let reply = insist("a completion", async || store.complete(&key, &done).await).await;
        assert_eq!(reply, CompleteReply::Stored { late: false });
        proxy.drop_next_reply_to(&name);
        let other = request(Owner::random());
        let reply = insist("a replay", async || store.claim(&key, &other).await).await;
        let ClaimReply::Done { record, .. } = reply else {
            panic!("it is done: {reply:?}");
        };
        assert_eq!(
            (record.header.attempts, record.header.fence),
            (1, header.fence)
        );
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
    once(&store, &keys.key(1)).await;
    let other = Keys::on(cluster, cluster.node_of_slot(16_000), "other");
    once(&store, &other.key(1)).await;
    let before = proxy.stats().connections;
    proxy.black_hole(true);
    // Three missed replies are the only sign that the connection is dead.
    let (key, other_key) = (keys.key(2), other.key(2));
    let beside = async {
        until("another connection", || proxy.stats().connections > before).await;
        once(&store, &other_key).await;
        proxy.black_hole(false);
    };
    tokio::join!(once(&store, &key), beside);
}
