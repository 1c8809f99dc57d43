//! What looks cost, and what may happen between a look and a claim.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idem_runtime::DigestKeys;
use idem_runtime::clock::ManualClock;
use idem_runtime::conformance::Forward;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::{
    ClaimReply, ClaimRequest, Owner, ReadReply, RecordKey, ReleaseReply, Remains, Store,
    StoreFuture,
};
use tokio::sync::Semaphore;

use crate::stage::{NEW, OLD, Stage, soon};

/// Counts claims, reads and releases, and holds the replies to reads back.
#[derive(Debug)]
struct Held {
    inner: MemoryStore,
    claims: AtomicU32,
    reads: AtomicU32,
    releases: AtomicU32,
    /// A reply takes one.
    replies: Semaphore,
    /// One for each read that has looked.
    looked: Semaphore,
}

impl Held {
    fn new(replies: usize) -> Arc<Self> {
        Self::with(MemoryStore::new(), replies)
    }

    fn with(inner: MemoryStore, replies: usize) -> Arc<Self> {
        Arc::new(Self {
            inner,
            claims: AtomicU32::new(0),
            reads: AtomicU32::new(0),
            releases: AtomicU32::new(0),
            replies: Semaphore::new(replies),
            looked: Semaphore::new(0),
        })
    }

    fn counted(&self) -> [u32; 3] {
        [&self.claims, &self.reads, &self.releases].map(|count| count.load(Ordering::SeqCst))
    }

    async fn have_looked(&self, reads: u32) {
        let looked = soon("the reads look", self.looked.acquire_many(reads)).await;
        looked.unwrap().forget();
    }
}

impl Forward for Held {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn claim<'a>(
        &'a self,
        key: &'a RecordKey,
        request: &'a ClaimRequest,
    ) -> StoreFuture<'a, ClaimReply> {
        self.claims.fetch_add(1, Ordering::SeqCst);
        self.inner.claim(key, request)
    }

    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        StoreFuture::pending(async move {
            let reply = self.inner.read(key).await;
            self.looked.add_permits(1);
            let gate = self.replies.acquire().await;
            gate.expect("it stays open").forget();
            reply
        })
    }

    fn release<'a>(
        &'a self,
        key: &'a RecordKey,
        owner: &'a Owner,
        remains: Remains,
    ) -> StoreFuture<'a, ReleaseReply> {
        self.releases.fetch_add(1, Ordering::SeqCst);
        self.inner.release(key, owner, remains)
    }
}

const MANY: usize = 10_000;

#[tokio::test]
async fn a_secret_alone_costs_no_round_trip_and_a_former_one_costs_one() {
    let after = DigestKeys::new(NEW).formerly(OLD);
    for (before, keys, first, replay) in [
        // What the memory store has at hand is not asked for.
        (None, DigestKeys::plain(), [1, 0, 0], [0, 0, 0]),
        (None, DigestKeys::new(OLD), [1, 0, 0], [0, 0, 0]),
        (None, after.clone(), [1, 1, 0], [0, 0, 0]),
        (Some(OLD), after, [1, 1, 0], [1, 1, 0]),
    ] {
        let held = Held::new(MANY);
        let stage = Stage::on(held.clone());
        if let Some(secret) = before {
            stage
                .charge(&stage.engine(secret), "card", 5)
                .await
                .unwrap();
        }
        let engine = stage.engine(keys.clone());
        for cost in [first, replay] {
            let before = held.counted();
            assert_eq!(stage.charge(&engine, "card", 5).await, Ok(1));
            let now = held.counted();
            let spent = [0, 1, 2].map(|at| now[at] - before[at]);
            assert_eq!(spent, cost, "{keys:?}");
        }
    }
}

/// The answer from before expires between the look and the claim: no call begins anew under the former name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_expires_after_the_look_leaves_its_name() {
    let clock = ManualClock::new();
    let held = Held::with(MemoryStore::builder().clock(clock.clone()).build(), MANY);
    let stage = Arc::new(Stage::on(held.clone()));
    let before = stage.engine(OLD);
    let short = Stage::call(&before, "card", 5).ttl(Duration::from_mins(1));
    assert_eq!(stage.charged(short, Ok(())).await, Ok(1));

    held.replies.forget_permits(MANY);
    let after = stage.engine(DigestKeys::new(NEW).formerly(OLD));
    let charge = {
        let (stage, after) = (Arc::clone(&stage), after.clone());
        tokio::spawn(async move { stage.charge(&after, "card", 5).await })
    };
    held.have_looked(1).await;
    clock.advance(Duration::from_secs(61));
    held.replies.add_permits(MANY);
    assert_eq!(soon("an answer", charge).await.unwrap(), Ok(2));
    assert_eq!(held.counted(), [3, 2, 1], "claims, reads, releases");

    // It stands under the new name: without the former secret it is found.
    let last = stage.engine(NEW);
    assert_eq!(stage.charge(&last, "card", 5).await, Ok(2));
}
