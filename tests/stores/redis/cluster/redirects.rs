//! Commands whose slot has moved, or is in migration.

use std::time::Duration;

use bytes::Bytes;
use idem_harness::{ClusterSetup, RedisServer, SlotMigration};
use idem_runtime::store::redis::{Durability, RedisStore};
use idem_runtime::store::{
    ClaimReply, ClaimRequest, CompleteReply, Header, OutcomeKind, Owner, ReadReply, Record,
    RecordKey, ReleaseReply, Remains, RenewReply, ResolveReply, Store,
};
use idem_tests::claims::{complete, finished};
use tokio::task::JoinSet;

use crate::client::{Client, store};
use crate::setup::{Keys, all_errors, errors, other_than, shared};

/// Bytes that do not fit into the reply of a script.
const LARGE: usize = 20_000;

/// An operation on a key that already has a record, or on a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Claim,
    ClaimOfRunning,
    Renew,
    Complete,
    Replay,
    ReplayLarge,
    Adopt,
    Release,
    Read,
    Resolve,
}

const DEEDS: [Deed; 10] = [
    Deed::Claim,
    Deed::ClaimOfRunning,
    Deed::Renew,
    Deed::Complete,
    Deed::Replay,
    Deed::ReplayLarge,
    Deed::Adopt,
    Deed::Release,
    Deed::Read,
    Deed::Resolve,
];

pub(crate) fn request(owner: Owner) -> ClaimRequest {
    ClaimRequest::new(owner, Duration::from_hours(1), Duration::from_hours(24))
}

fn seen(record: &Bytes) -> Header {
    Record::decode(record.clone()).unwrap().header
}

/// A key, and the record prepared for the deed.
struct Case {
    deed: Deed,
    key: RecordKey,
    claim: Option<Header>,
    record: Bytes,
}

impl Case {
    /// Writes the records that the deed needs.
    async fn prepare(client: &Client, deed: Deed, key: RecordKey) -> Self {
        let claim = match deed {
            Deed::Claim => None,
            _ => Some(client.take(&key).await),
        };
        let answer = match deed {
            Deed::ReplayLarge | Deed::Adopt => vec![b'a'; LARGE],
            Deed::Resolve => Vec::new(),
            _ => b"an answer".to_vec(),
        };
        let outcome = match deed {
            Deed::Resolve => OutcomeKind::Unknown,
            _ => OutcomeKind::Value,
        };
        let mut record = Bytes::new();
        if let Some(claim) = &claim {
            record = finished(claim, outcome, &answer);
            if !matches!(
                deed,
                Deed::ClaimOfRunning | Deed::Renew | Deed::Complete | Deed::Release
            ) {
                complete(&*client.0, &key, &record).await;
            }
        }
        Self {
            deed,
            key,
            claim,
            record,
        }
    }

    /// Runs the deed, and checks its reply.
    async fn run(&self, store: &dyn Store) {
        let key = &self.key;
        let claim = || *self.claim.as_ref().unwrap();
        let context = format!("{:?}", self.deed);
        match self.deed {
            Deed::Claim => {
                let reply = store.claim(key, &request(Owner::random())).await.unwrap();
                let granted = matches!(reply, ClaimReply::Granted { attempt: 1, .. });
                assert!(granted, "{context}: {reply:?}");
            }
            Deed::ClaimOfRunning => {
                let reply = store.claim(key, &request(Owner::random())).await.unwrap();
                let running = matches!(reply, ClaimReply::Running { .. });
                assert!(running, "{context}: {reply:?}");
            }
            Deed::Renew => {
                let reply = store.renew(key, &claim()).await.unwrap();
                assert_eq!(reply, RenewReply::Renewed, "{context}");
            }
            Deed::Complete => {
                let reply = store.complete(key, &self.record).await.unwrap();
                assert_eq!(reply, CompleteReply::Stored { late: false }, "{context}");
            }
            Deed::Replay | Deed::ReplayLarge => {
                let reply = store.claim(key, &request(Owner::random())).await.unwrap();
                let ClaimReply::Done { record, .. } = reply else {
                    panic!("{context}: {reply:?}");
                };
                assert_eq!(record, Record::decode(self.record.clone()).unwrap());
            }
            Deed::Adopt => {
                let mut late = claim();
                late.owner = Owner::random();
                let other = finished(&late, OutcomeKind::Value, b"another");
                let reply = store.complete(key, &other).await.unwrap();
                let CompleteReply::Adopted { record, .. } = reply else {
                    panic!("{context}: {reply:?}");
                };
                assert_eq!(record, Record::decode(self.record.clone()).unwrap());
            }
            Deed::Release => {
                let reply = store
                    .release(key, &claim().owner, Remains::Request)
                    .await
                    .unwrap();
                assert_eq!(reply, ReleaseReply::Released, "{context}");
            }
            Deed::Read => {
                let reply = store.read(key).await.unwrap();
                let ReadReply::Found { record, .. } = reply else {
                    panic!("{context}: {reply:?}");
                };
                assert_eq!(record, Record::decode(self.record.clone()).unwrap());
            }
            Deed::Resolve => {
                let mut new = claim();
                new.owner = Owner::random();
                let new = finished(&new, OutcomeKind::Value, b"resolved");
                let reply = store
                    .resolve(key, &seen(&self.record), None, &new)
                    .await
                    .unwrap();
                assert_eq!(reply, ResolveReply::Resolved, "{context}");
            }
        }
    }
}

/// A store that knows the nodes of all keys, on both of its routes.
async fn knowing(cluster: &ClusterSetup, keys: &Keys) -> RedisStore {
    let store = store(&cluster.urls()[0]).await;
    for number in 900..902 {
        store.read(&keys.key(number)).await.unwrap();
        let owner = Owner::random();
        store
            .release(&keys.key(number), &owner, Remains::Request)
            .await
            .unwrap();
    }
    store
}

#[tokio::test]
async fn every_operation_follows_a_slot_that_has_moved_once() {
    let cluster = ClusterSetup::start();
    let keys = Keys::new(&cluster, "moved");
    let client = Client::of(&cluster.urls()[0]).await;
    let mut cases = Vec::new();
    for (number, deed) in (0..).zip(DEEDS) {
        let case = Case::prepare(&client, deed, keys.key(number)).await;
        cases.push((case, knowing(&cluster, &keys).await));
    }
    let source = cluster.node_of_slot(keys.slot);
    cluster.migrate_slot(keys.slot, other_than(&cluster, source));
    for (case, store) in &cases {
        let before = all_errors(&cluster, "MOVED");
        case.run(store).await;
        let redirects = all_errors(&cluster, "MOVED") - before;
        assert_eq!(redirects, 1, "{:?}", case.deed);
    }
    // The stores know the new node now.
    let before = all_errors(&cluster, "MOVED");
    for (_, store) in &cases {
        for number in 2_000..2_005 {
            store.read(&keys.key(number)).await.unwrap();
        }
        Client(std::sync::Arc::new(store.clone()))
            .pass(&keys.key(2_000))
            .await;
    }
    // Each has two routes, of which one may not have been used before.
    let redirects = all_errors(&cluster, "MOVED") - before;
    assert!(redirects <= cases.len() as u64, "{redirects}");
    let before = all_errors(&cluster, "MOVED");
    for (_, store) in &cases {
        store.read(&keys.key(2_000)).await.unwrap();
        let owner = Owner::random();
        store
            .release(&keys.key(2_000), &owner, Remains::Request)
            .await
            .unwrap();
    }
    assert_eq!(all_errors(&cluster, "MOVED"), before);
}

#[tokio::test]
async fn a_call_during_a_slot_refresh_waits_for_it() {
    let cluster = shared();
    let store = store(&cluster.urls()[0]).await;
    let keys = Keys::new(&cluster, "together");
    let (one, other) = (keys.key(1), keys.key(2));
    // The first reads of the store: it does not know the cluster's slots yet.
    let (one, other) = tokio::join!(store.read(&one), store.read(&other));
    assert_eq!(one.unwrap(), ReadReply::Absent);
    assert_eq!(other.unwrap(), ReadReply::Absent);
}

#[tokio::test]
async fn a_known_slot_is_asked_for_once() {
    let cluster = ClusterSetup::start();
    let client = Client::of(&cluster.urls()[0]).await;
    let keys: Vec<_> = (0..200)
        .map(|number| Keys::new(&cluster, &format!("everywhere{number}")))
        .collect();
    client.pass(&keys[0].key(0)).await;
    let mut monitors: Vec<_> = cluster.nodes().iter().map(RedisServer::monitor).collect();
    let before = all_errors(&cluster, "MOVED");
    for keys in &keys {
        client.pass(&keys.key(1)).await;
    }
    assert_eq!(all_errors(&cluster, "MOVED"), before);
    let mut asked = 0;
    let mut scripts = 0;
    for monitor in &mut monitors {
        for command in monitor.commands() {
            let mine = command.args.iter().any(|arg| arg.contains("{everywhere"));
            // A replica executes the writes of its primary.
            scripts += usize::from(mine && command.name.starts_with("EVAL"));
            asked += usize::from(command.name == "CLUSTER" && command.args[0] == "slots");
        }
    }
    // Three each, and each of three scripts by its source on two of the nodes.
    assert!((600..=606).contains(&scripts), "{scripts}");
    assert_eq!(asked, 0, "nothing has moved");
}

/// All deeds on keys of a slot in migration, on moved keys and on keys that have stayed.
async fn half_way(store: &RedisStore, client: &Client, cluster: &ClusterSetup, keys: &Keys) {
    let mut cases = Vec::new();
    for (number, deed) in (0..).zip(DEEDS) {
        let stays = Case::prepare(client, deed, keys.key(number)).await;
        let goes = Case::prepare(client, deed, keys.key(100 + number)).await;
        cases.push((stays, goes));
    }
    let source = cluster.node_of_slot(keys.slot);
    let migration = cluster.begin_migration(keys.slot, other_than(cluster, source));
    for (stays, goes) in &cases {
        migration.move_key(goes.key.name());
        one_half_way(store, &migration, stays, stays.deed == Deed::Claim).await;
        one_half_way(store, &migration, goes, true).await;
    }
    migration.finish();
    for number in 0..2 * DEEDS.len() as u64 {
        let key = keys.key(number % 10 + number / 10 * 100);
        let found = store.read(&key).await.unwrap();
        assert!(matches!(found, ReadReply::Found { .. }), "{found:?}");
    }
}

async fn one_half_way(store: &RedisStore, migration: &SlotMigration<'_>, case: &Case, asks: bool) {
    let (source, target) = (migration.source(), migration.target());
    // Makes the target answer the first try with NOSCRIPT.
    target.cli(&["SCRIPT", "FLUSH"]);
    let before = [
        errors(source, "ASK"),
        errors(target, "NOSCRIPT"),
        errors(source, "MOVED"),
    ];
    case.run(store).await;
    let after = [
        errors(source, "ASK"),
        errors(target, "NOSCRIPT"),
        errors(source, "MOVED"),
    ];
    // By digest, by source, and a large answer by itself.
    let large = matches!(case.deed, Deed::ReplayLarge | Deed::Adopt);
    let asked = u64::from(asks) * if large { 3 } else { 2 };
    assert_eq!(after[0] - before[0], asked, "{:?}", case.deed);
    assert_eq!(after[1] - before[1], u64::from(asks), "{:?}", case.deed);
    assert_eq!(after[2], before[2], "{:?}", case.deed);
}

#[tokio::test]
async fn every_operation_finds_keys_of_a_slot_that_is_half_way() {
    let cluster = ClusterSetup::start();
    let keys = Keys::new(&cluster, "half-way");
    let client = Client::of(&cluster.urls()[0]).await;
    let store = knowing(&cluster, &keys).await;
    half_way(&store, &client, &cluster, &keys).await;
}

#[tokio::test]
async fn writes_that_wait_for_a_replica_find_keys_of_a_slot_that_is_half_way() {
    let cluster = ClusterSetup::start();
    let keys = Keys::new(&cluster, "kept");
    let client = Client::of(&cluster.urls()[0]).await;
    let store = RedisStore::builder(cluster.urls()[0].as_str())
        .response_timeout(Duration::from_secs(20))
        .durability(Durability::Replicated(1));
    let store = store.connect().await.unwrap();
    half_way(&store, &client, &cluster, &keys).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_claims_during_a_migration_one_is_granted() {
    let cluster = shared();
    let keys = Keys::new(&cluster, "race");
    let (one, other) = (
        Client::of(&cluster.urls()[1]).await,
        Client::of(&cluster.urls()[4]).await,
    );
    let source = cluster.node_of_slot(keys.slot);
    let migration = cluster.begin_migration(keys.slot, other_than(&cluster, source));
    let mut rounds = JoinSet::new();
    for number in 0..200 {
        let key = keys.key(number);
        for client in [&one, &other] {
            let (store, key) = (client.0.clone(), key.clone());
            rounds.spawn(async move {
                let owner = Owner::random();
                // A claim of a key in migration is retried, as the engine does.
                loop {
                    match store.claim(&key, &request(owner)).await {
                        Ok(ClaimReply::Granted { attempt, .. }) => {
                            assert_eq!(attempt, 1);
                            return (number, 1);
                        }
                        Ok(ClaimReply::Running { .. }) => return (number, 0),
                        Ok(other) => panic!("{other:?}"),
                        Err(error) => assert!(error.is_transient(), "{error}"),
                    }
                }
            });
        }
        if number % 10 == 5 {
            tokio::task::block_in_place(|| migration.move_keys(3));
        }
        if number == 150 {
            // Later claims overlap with the change of the slot's owner.
            break;
        }
    }
    tokio::task::block_in_place(|| migration.finish());
    let mut granted = [0; 200];
    while let Some(round) = rounds.join_next().await {
        let (number, count) = round.unwrap();
        granted[usize::try_from(number).unwrap()] += count;
    }
    assert!(
        granted[..=150].iter().all(|count| *count == 1),
        "{granted:?}"
    );
}
