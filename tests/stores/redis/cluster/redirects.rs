//! Commands whose slot has moved, or is in migration.

use std::time::Duration;

use bytes::Bytes;
use idem_harness::{ClusterSetup, Edition, SlotMigration};
use idem_runtime::store::author::{
    ClaimReply, ClaimRequest, CompleteReply, Header, Owner, ReadReply, Record, ReleaseReply,
    Remains, RenewReply, ResolveReply,
};
use idem_runtime::store::redis::{Durability, RedisStore};
use idem_runtime::store::{OutcomeKind, RecordKey, Store};
use idem_tests::claims::{complete, finished, unhurried};
use idem_tests::shop::PATIENCE;

use crate::client::{Client, store};
use crate::setup::{Keys, all_errors, errors, other_than, shared};

/// Bytes that do not fit into the reply of a script.
const LARGE: usize = 20_000;

/// An operation on a key with a record, or without.
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
    /// Completions without the script for all cases: by compare-and-set, or a staged answer.
    CompleteClaim,
    CompleteLarge,
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

/// These are sent in other forms first, whose number differs.
const SHORTCUTS: [Deed; 2] = [Deed::CompleteClaim, Deed::CompleteLarge];

pub(crate) fn request(owner: Owner) -> ClaimRequest {
    ClaimRequest::new(owner, Duration::from_hours(1), Duration::from_hours(24))
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
        let (outcome, answer) = match deed {
            Deed::ReplayLarge | Deed::Adopt | Deed::CompleteLarge => {
                (OutcomeKind::Value, vec![b'a'; LARGE])
            }
            Deed::Resolve => (OutcomeKind::Unknown, Vec::new()),
            _ => (OutcomeKind::Value, b"an answer".to_vec()),
        };
        let record = claim.map(|claim| finished(&claim, outcome, &answer));
        let record = record.unwrap_or_default();
        let needs_answer = [
            Deed::Replay,
            Deed::ReplayLarge,
            Deed::Adopt,
            Deed::Read,
            Deed::Resolve,
        ];
        if needs_answer.contains(&deed) {
            complete(&*client.0, &key, &record).await;
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
        let claims = async || {
            store
                .claim(key, &request(Owner::random()), &unhurried())
                .await
                .unwrap()
        };
        let claim = || self.claim.unwrap();
        // The record of another owner, with another answer.
        let other = || {
            let mut other = claim();
            other.owner = Owner::random();
            finished(&other, OutcomeKind::Value, b"another")
        };
        let is_whole = |found: &Record| *found.as_bytes() == self.record;
        let is_right = match self.deed {
            Deed::Claim => matches!(claims().await, ClaimReply::Granted { attempt: 1, .. }),
            Deed::ClaimOfRunning => matches!(claims().await, ClaimReply::Running { .. }),
            Deed::Renew => store.renew(key, &claim()).await.unwrap() == RenewReply::Renewed,
            Deed::Complete => {
                let reply = store.complete(key, None, &self.record).await.unwrap();
                reply == CompleteReply::Stored { late: false }
            }
            Deed::Replay | Deed::ReplayLarge => {
                matches!(claims().await, ClaimReply::Done { record, .. } if is_whole(&record))
            }
            Deed::Adopt => {
                let reply = store.complete(key, None, &other()).await.unwrap();
                matches!(reply, CompleteReply::Adopted { record, .. } if is_whole(&record))
            }
            Deed::CompleteClaim | Deed::CompleteLarge => {
                let reply = store.complete(key, Some(&claim()), &self.record).await;
                reply.unwrap() == CompleteReply::Stored { late: false }
            }
            Deed::Release => {
                let released = store
                    .release(key, &claim().owner, Remains::Request, None)
                    .await;
                released.unwrap() == ReleaseReply::Released
            }
            Deed::Read => {
                let reply = store.read(key).await.unwrap();
                matches!(reply, ReadReply::Found { record, .. } if is_whole(&record))
            }
            Deed::Resolve => {
                let seen = Record::decode(self.record.clone()).unwrap().header;
                let resolved = store.resolve(key, &seen, None, &other()).await;
                resolved.unwrap() == ResolveReply::Resolved
            }
        };
        assert!(is_right, "{:?}", self.deed);
    }
}

/// Uses both routes to the node of a key.
async fn knows(store: &RedisStore, key: &RecordKey) {
    store.read(key).await.unwrap();
    let released = store
        .release(key, &Owner::random(), Remains::Request, None)
        .await;
    released.unwrap();
}

#[tokio::test]
async fn every_operation_follows_a_slot_that_has_moved_once() {
    let cluster = ClusterSetup::start();
    let keys = Keys::new(&cluster, "moved");
    let client = Client::of(&cluster.urls()[0]).await;
    let mut cases = Vec::new();
    for (number, deed) in (0..).zip(DEEDS) {
        let case = Case::prepare(&client, deed, keys.key(number)).await;
        let store = store(&cluster.urls()[0]).await;
        knows(&store, &keys.key(900)).await;
        cases.push((case, store));
    }
    let source = cluster.node_of_slot(keys.slot);
    cluster.migrate_slot(keys.slot, other_than(&cluster, source));
    for (case, store) in &cases {
        let before = all_errors(&cluster, "MOVED");
        case.run(store).await;
        let redirects = all_errors(&cluster, "MOVED") - before;
        assert_eq!(redirects, 1, "{:?}", case.deed);
    }
    // Of the two routes of each store, one may not have been used before.
    for most in [cases.len() as u64, 0] {
        let before = all_errors(&cluster, "MOVED");
        for (_, store) in &cases {
            knows(store, &keys.key(2_000)).await;
        }
        let redirects = all_errors(&cluster, "MOVED") - before;
        assert!(redirects <= most, "{redirects}");
    }
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

/// All operations on keys in migration, on moved keys and on others.
async fn half_way(store: &RedisStore, client: &Client, cluster: &ClusterSetup, keys: &Keys) {
    let mut cases = Vec::new();
    for (number, deed) in (0..).zip(DEEDS.into_iter().chain(SHORTCUTS)) {
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
    for case in cases.iter().flat_map(|(stays, goes)| [stays, goes]) {
        let found = store.read(&case.key).await.unwrap();
        let ReadReply::Found { record, .. } = found else {
            panic!("{:?}: {found:?}", case.deed);
        };
        let is_whole = *record.as_bytes() == case.record;
        assert!(
            is_whole || !SHORTCUTS.contains(&case.deed),
            "{:?}",
            case.deed
        );
    }
}

async fn one_half_way(store: &RedisStore, migration: &SlotMigration<'_>, case: &Case, asks: bool) {
    let (source, target) = (migration.source(), migration.target());
    // Makes the target answer the first try with NOSCRIPT.
    target.cli(&["SCRIPT", "FLUSH"]);
    let seen = || {
        [
            errors(source, "ASK"),
            errors(target, "NOSCRIPT"),
            errors(source, "MOVED"),
        ]
    };
    let before = seen();
    case.run(store).await;
    if SHORTCUTS.contains(&case.deed) {
        return;
    }
    let after = seen();
    // By digest, by source, and a large answer by itself.
    let large = matches!(case.deed, Deed::ReplayLarge | Deed::Adopt);
    let asked = u64::from(asks) * if large { 3 } else { 2 };
    let expected = [before[0] + asked, before[1] + u64::from(asks), before[2]];
    assert_eq!(after, expected, "{:?}", case.deed);
}

#[tokio::test]
async fn every_operation_finds_keys_of_a_slot_that_is_half_way() {
    // The other one compares and sets.
    let valkey = ClusterSetup::builder().nodes(|node| node.version(Edition::Valkey));
    for cluster in [ClusterSetup::start(), valkey.start()] {
        let keys = Keys::new(&cluster, "half-way");
        let client = Client::of(&cluster.urls()[0]).await;
        let store = store(&cluster.urls()[0]).await;
        knows(&store, &keys.key(900)).await;
        half_way(&store, &client, &cluster, &keys).await;
    }
}

#[tokio::test]
async fn writes_that_wait_for_a_replica_find_keys_of_a_slot_that_is_half_way() {
    let cluster = ClusterSetup::start();
    let keys = Keys::new(&cluster, "kept");
    let client = Client::of(&cluster.urls()[0]).await;
    let store = RedisStore::builder(cluster.urls()[0].as_str())
        .response_timeout(PATIENCE)
        .durability(Durability::Replicated(1));
    let store = store.connect().await.unwrap();
    half_way(&store, &client, &cluster, &keys).await;
}
