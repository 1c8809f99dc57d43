//! The example's store in cases beyond the conformance suite: errors, restarts and waiting calls.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use idem_examples::zookeeper_store::place::{self, LARGEST, Place};
use idem_examples::zookeeper_store::store::ZooKeeperStore;
use idem_harness::{TcpProxy, ZooKeeperServer};
use idem_runtime::key::{KeyDigest, Operation};
use idem_runtime::store::author::{
    Admission, ClaimReply, ClaimRequest, CompleteReply, HEADER, Header, Owner, ReadReply,
    RenewReply, State, Watch,
};
use idem_runtime::store::{Fence, OutcomeKind, RecordKey, Store, StoreErrorKind};
use tokio::runtime::Builder;
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode};

const OWNER: Owner = Owner::from_bytes([1; 16]);
/// Deadline of events that happen at once, or never.
const PATIENCE: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_hours(1);

/// Shared by all tests but the killing one; each has its root.
static SERVER: LazyLock<ZooKeeperServer> = LazyLock::new(ZooKeeperServer::start);

async fn connect(addr: SocketAddr, root: &str) -> ZooKeeperStore {
    let store = ZooKeeperStore::connect(&addr.to_string()).await;
    store.unwrap().under(root)
}

async fn shared(root: &str) -> ZooKeeperStore {
    connect(SERVER.addr(), root).await
}

async fn client() -> Client {
    let client = Client::connect(&SERVER.addr().to_string()).await;
    client.unwrap()
}

fn key(number: u8) -> RecordKey {
    let digest = KeyDigest::from_bytes([number; 32]);
    RecordKey::new("shop".into(), Operation::new("pay"), digest)
}

fn patient() -> Admission {
    Admission::new(Duration::from_mins(1))
}

fn ask() -> ClaimRequest {
    let mut request = ClaimRequest::new(OWNER, Duration::from_mins(1), HOUR);
    request.max_attempts = NonZeroU16::new(5);
    request
}

fn answer(bytes: usize) -> Bytes {
    let header = Header::new(
        State::Done {
            outcome: OutcomeKind::Value,
            schema: 0,
        },
        OWNER,
        Fence::new(1),
        HOUR,
    );
    [&header.encode()[..], &vec![b'x'; bytes - HEADER]]
        .concat()
        .into()
}

#[tokio::test]
async fn the_largest_record_is_taken_and_a_larger_one_refused() {
    let store = shared("/largest").await;
    let stored = store
        .complete(&key(1), None, &answer(LARGEST))
        .await
        .unwrap();
    assert_eq!(stored, CompleteReply::Stored { late: true });
    let ReadReply::Found { record, .. } = store.read(&key(1)).await.unwrap() else {
        panic!("it is there")
    };
    assert_eq!(record.as_bytes(), answer(LARGEST));

    let error = store.complete(&key(2), None, &answer(LARGEST + 1)).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::TooLarge);
    assert_eq!(store.read(&key(2)).await.unwrap(), ReadReply::Absent);
}

#[tokio::test]
async fn a_node_that_may_not_be_written_is_a_refusal() {
    let (root, client) = ("/refused", client().await);
    let store = shared(root).await;
    let place = Place::of(root, &key(1));
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let closed = CreateMode::Persistent.with_acls(Acls::anyone_read());
    client.mkdir(&place.shard, &open).await.unwrap();
    let expired = place::data(&answer(HEADER), Duration::ZERO);
    client.create(&place.node, &expired, &closed).await.unwrap();

    let error = store.claim(&key(1), &ask(), &patient()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(error.to_string().starts_with("a claim: the ACL"), "{error}");
    // The session is usable again.
    let claimed = store.claim(&key(2), &ask(), &patient()).await.unwrap();
    assert!(matches!(claimed, ClaimReply::Granted { attempt: 1, .. }));
}

#[tokio::test]
async fn a_sweep_goes_through_all_shards_and_leaves_what_is_alive() {
    // The root that a connection creates; no other test uses it.
    let (root, client) = ("/idem", client().await);
    let store = shared(root).await;
    assert_eq!(store.sweep().await.unwrap(), 0);
    for number in 0..6 {
        store
            .complete(&key(number), None, &answer(100))
            .await
            .unwrap();
    }
    for number in 0..3 {
        let expired = place::data(&answer(100), Duration::ZERO);
        let node = Place::of(root, &key(number)).node;
        client.set_data(&node, &expired, None).await.unwrap();
    }
    let stranger = Place::of(root, &key(5)).node;
    let put = client.set_data(&stranger, b"a stranger", None);
    put.await.unwrap();
    assert_eq!(store.sweep().await.unwrap(), 3);
    assert_eq!(store.sweep().await.unwrap(), 0);
    assert!(client.check_stat(&stranger).await.unwrap().is_some());
    let found = store.read(&key(3)).await.unwrap();
    assert!(matches!(found, ReadReply::Found { .. }));
}

#[tokio::test]
async fn who_watches_on_a_connection_that_breaks_is_told_to_look() {
    let proxy = TcpProxy::start(SERVER.addr());
    let store = connect(proxy.addr(), "/cut").await;
    let mut watch = store.watch(&key(1)).await.unwrap().unwrap();
    proxy.cut();
    told(&mut watch).await;
    let other = shared("/cut").await;
    other.complete(&key(1), None, &answer(100)).await.unwrap();
    told(&mut watch).await;
}

/// Fails without a notification, rather than waiting for ever.
async fn told(watch: &mut Watch) {
    let told = timeout(PATIENCE, watch.changed()).await;
    told.expect("somebody tells");
}

/// Runs `work` in a runtime that ends with it.
fn in_a_runtime<T>(work: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(work)
}

#[test]
fn a_store_outlives_the_runtime_in_which_it_connected() {
    let root = "/outlives";
    let store = in_a_runtime(shared(root));
    let other = in_a_runtime(async {
        // The session has ended with its runtime, which the first call detects.
        let error = store.read(&key(1)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert_eq!(store.read(&key(1)).await.unwrap(), ReadReply::Absent);
        let mut watch = store.watch(&key(1)).await.unwrap().unwrap();
        let other = shared(root).await;
        other.complete(&key(1), None, &answer(100)).await.unwrap();
        told(&mut watch).await;
        other
    });
    in_a_runtime(async {
        store.watch(&key(2)).await.unwrap_err();
        let mut watch = store.watch(&key(2)).await.unwrap().unwrap();
        other
            .complete(&key(2), None, &answer(100))
            .await
            .unwrap_err();
        other.complete(&key(2), None, &answer(100)).await.unwrap();
        told(&mut watch).await;
    });
}

#[tokio::test]
async fn renewals_do_not_wait_for_the_calls() {
    let store = shared("/renewed").await;
    let ClaimReply::Granted { fence, attempt, .. } =
        store.claim(&key(1), &ask(), &patient()).await.unwrap()
    else {
        panic!("nothing stands there")
    };
    let request = ask();
    let mut claim = Header::new(
        State::Pending {
            lease: request.lease,
        },
        OWNER,
        fence,
        request.retain,
    );
    claim.attempts = attempt;
    claim.fingerprint = request.fingerprint;
    let (sent, done) = std::sync::mpsc::channel();
    let renewing = std::thread::spawn({
        let store = store.clone();
        move || sent.send(in_a_runtime(store.renew(&key(1), &claim)))
    });
    // This thread, and with it the runtime that connected, is busy until the renewal has completed.
    assert_eq!(
        done.recv_timeout(PATIENCE).unwrap().unwrap(),
        RenewReply::Renewed
    );
    renewing.join().unwrap().unwrap();
}
