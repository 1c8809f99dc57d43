//! Through the application's own cluster client, which sends again by itself what had no reply.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use idem_harness::{ClusterSetup, RedisServer};
use idem_runtime::Fingerprint;
use idem_runtime::store::redis::{RedisSource, RedisStore, Server};
use idem_runtime::store::{
    AnswerTypes, ClaimReply, ClaimRequest, CompleteReply, Header, Needs, OutcomeKind, Owner,
    RecordKey, State, Store, StoreError,
};
use idem_tests::shop::{HASTE, connected, patient, patiently, until};
use redis::cluster::ClusterClient;
use redis::cluster_read_routing::RandomReplicaStrategy;

use crate::setup::{Behind, Keys, calls, other_than, primaries, shared};

async fn of(client: ClusterClient) -> RedisStore {
    patient(RedisStore::builder(client))
        .connect()
        .await
        .unwrap()
}

/// A store that asks again where the library has lost its command together with a connection, which it
/// says nothing of.
async fn hasty(source: impl Into<RedisSource>) -> RedisStore {
    connected(RedisStore::builder(source).response_timeout(HASTE)).await
}

fn request(owner: Owner) -> ClaimRequest {
    ClaimRequest {
        owner,
        fingerprint: Fingerprint::NONE,
        types: AnswerTypes::UNKNOWN,
        any_type: false,
        lease: Duration::from_hours(1),
        retain: Duration::from_hours(24),
        max_attempts: None,
        reconciles: false,
        needs: Needs::Nothing,
        dated: false,
    }
}

/// Asks until there is an answer, as the engine does.
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
    let ClaimReply::Granted { fence, attempt, .. } = reply else {
        panic!("nobody else wants the key: {reply:?}");
    };
    assert_eq!(attempt, 1, "one claim is one attempt");
    Header {
        state: State::Pending {
            lease: request.lease,
        },
        owner,
        fence,
        attempts: attempt,
        retain: request.retain,
        fingerprint: request.fingerprint,
        types: AnswerTypes::UNKNOWN,
    }
}

fn record(claim: &Header, answer: &[u8]) -> Bytes {
    let state = State::Done {
        outcome: OutcomeKind::Value,
        schema: 1,
    };
    let done = Header { state, ..*claim };
    [&done.encode()[..], answer].concat().into()
}

/// Claims, finishes and asks again; each of the three may be sent several times.
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
    let store = hasty(ClusterClient::new(cluster.urls()).unwrap()).await;
    killed_connections_change_nothing_twice(&cluster, &store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_our_own_that_are_killed_change_nothing_twice() {
    let cluster = Arc::new(ClusterSetup::start());
    let store = hasty(cluster.urls()[0].as_str()).await;
    killed_connections_change_nothing_twice(&cluster, &store).await;
}

/// Kills all connections again and again, but not before something was answered: a machine that is busier
/// with other things than the terminator would never get as far as an answer.
async fn killed_connections_change_nothing_twice(cluster: &Arc<ClusterSetup>, store: &dyn Store) {
    let keys: Vec<_> = (0..6)
        .map(|number| Keys::new(cluster, &format!("killed{number}")))
        .collect();
    let (answered, answers) = std::sync::mpsc::channel();
    let terminator = std::thread::spawn({
        let cluster = Arc::clone(cluster);
        move || {
            let mut killed = 0_u32;
            while answers.recv().is_ok() {
                for node in primaries(&cluster) {
                    let count = node.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                    killed += count.parse::<u32>().unwrap();
                }
                // What was answered meanwhile is no reason to kill twice.
                while answers.try_recv().is_ok() {}
            }
            killed
        }
    });
    for number in 0..100 {
        for keys in &keys {
            once(store, &keys.key(number)).await;
            answered.send(()).unwrap();
        }
    }
    drop(answered);
    let killed = terminator.join().unwrap();
    eprintln!("{killed} connections killed");
    assert!(killed > 0);
}

async fn lost_replies_change_nothing_twice(behind: &Behind, store: &dyn Store) {
    let Behind { proxy, keys, .. } = behind;
    for number in 0..20 {
        let key = keys.key(number);
        let name = key.name();
        // A claim, its completion, and another claim: the reply to each is lost.
        let header = {
            proxy.drop_next_reply_to(&name);
            claim(store, &key, Owner::random()).await
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
    // At least two of each were executed. What scripts set is counted as well.
    assert!(scripts + plain >= 20 * 6, "{scripts} and {plain}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_are_lost_change_nothing_twice() {
    let behind = Behind::a_proxy().await;
    let store = hasty(ClusterClient::new(behind.other_urls()).unwrap()).await;
    lost_replies_change_nothing_twice(&behind, &store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_are_lost_on_a_way_of_our_own_change_nothing_twice() {
    let behind = Behind::a_proxy().await;
    let store = RedisStore::builder(behind.other_urls()[0].as_str())
        .response_timeout(Duration::from_secs(1));
    let store = connected(store).await;
    lost_replies_change_nothing_twice(&behind, &store).await;
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
    // Nothing but three silences says that the connection is of no use.
    let (key, other_key) = (keys.key(2), other.key(2));
    let beside = async {
        until("another connection", || proxy.stats().connections > before).await;
        once(&store, &other_key).await;
        proxy.black_hole(false);
    };
    tokio::join!(once(&store, &key), beside);
}

#[tokio::test]
async fn a_client_that_reads_from_replicas_does_not_do_so_here() {
    let cluster = ClusterSetup::start();
    let client = redis::cluster::ClusterClientBuilder::new(cluster.urls())
        .read_routing_strategy(RandomReplicaStrategy)
        .build()
        .unwrap();
    let store = of(client).await;
    let owners = primaries(&cluster).map(RedisServer::port);
    let large = vec![b'a'; 20_000];
    for number in 0..30 {
        let keys = Keys::new(&cluster, &format!("read{number}"));
        let key = keys.key(1);
        let header = claim(&store, &key, Owner::random()).await;
        store.renew(&key, &header).await.unwrap();
        let stored = store.complete(&key, &record(&header, &large)).await;
        assert_eq!(stored.unwrap(), CompleteReply::Stored { late: false });
        let again = store.claim(&key, &request(Owner::random())).await.unwrap();
        assert!(matches!(again, ClaimReply::Done { .. }), "{again:?}");
        store.read(&key).await.unwrap();
    }
    let replicas = cluster
        .nodes()
        .iter()
        .filter(|node| !owners.contains(&node.port()));
    for replica in replicas {
        for command in ["evalsha", "eval", "get"] {
            assert_eq!(calls(replica, command), 0, "{command}");
        }
    }
}

#[tokio::test]
async fn a_cluster_client_is_never_told_that_its_server_is_a_replica() {
    let cluster = shared();
    for _ in 0..10 {
        let client = redis::cluster::ClusterClientBuilder::new(cluster.urls())
            .read_routing_strategy(RandomReplicaStrategy)
            .build()
            .unwrap();
        let store = of(client).await;
        let report = store.report();
        let primary = |server: &Server| server.role() == Some("master");
        assert!(report.servers().all(primary), "{report}");
        let replica = |warning: &String| warning.contains("replica");
        assert!(!store.warnings().iter().any(replica), "{report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_is_followed_by_a_cluster_client() {
    let cluster = ClusterSetup::start();
    let keys = Keys::new(&cluster, "library");
    let store = of(ClusterClient::new(cluster.urls()).unwrap()).await;
    once(&store, &keys.key(0)).await;
    let source = cluster.node_of_slot(keys.slot);
    let target = other_than(&cluster, source);
    let migration = cluster.begin_migration(keys.slot, target);
    target.cli(&["SCRIPT", "FLUSH"]);
    once(&store, &keys.key(1)).await;
    migration.move_key(keys.key(0).name());
    let reply = store.claim(&keys.key(0), &request(Owner::random())).await;
    assert!(matches!(reply, Ok(ClaimReply::Done { .. })), "{reply:?}");
    migration.finish();
    once(&store, &keys.key(2)).await;
}
