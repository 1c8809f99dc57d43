//! Schedules of two processes of neighbouring steps, and what they cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use idem_runtime::DigestKeys;
use idem_runtime::conformance::Forward;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::{
    ClaimReply, ClaimRequest, Owner, ReadReply, RecordKey, ReleaseReply, Remains, Store,
    StoreFuture,
};
use tokio::sync::Semaphore;

use crate::stage::{NEW, OLD, Stage, soon};

/// Counts claims, reads and releases, and holds reads back: before the look at the record, and before the reply.
#[derive(Debug)]
struct Held {
    inner: MemoryStore,
    claims: AtomicU32,
    reads: AtomicU32,
    releases: AtomicU32,
    /// A read takes one.
    turns: Semaphore,
    /// One for each read that has come.
    come: Semaphore,
    /// A reply takes one.
    replies: Semaphore,
    /// One for each read that has looked.
    looked: Semaphore,
}

impl Held {
    fn new(turns: usize) -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryStore::new(),
            claims: AtomicU32::new(0),
            reads: AtomicU32::new(0),
            releases: AtomicU32::new(0),
            turns: Semaphore::new(turns),
            come: Semaphore::new(0),
            replies: Semaphore::new(MANY),
            looked: Semaphore::new(0),
        })
    }

    fn counted(&self) -> [u32; 3] {
        [&self.claims, &self.reads, &self.releases].map(|count| count.load(Ordering::SeqCst))
    }

    async fn have_come(&self, reads: u32) {
        let come = soon("the reads come", self.come.acquire_many(reads)).await;
        come.unwrap().forget();
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
            self.come.add_permits(1);
            self.turns.acquire().await.expect("it stays open").forget();
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
async fn a_secret_alone_costs_no_round_trip_and_two_cost_two() {
    for (keys, first, replay) in [
        (DigestKeys::plain(), [1, 0, 0], [1, 0, 0]),
        (DigestKeys::new(OLD), [1, 0, 0], [1, 0, 0]),
        (DigestKeys::new(NEW).also(OLD), [1, 2, 0], [1, 1, 0]),
    ] {
        let held = Held::new(MANY);
        let stage = Stage::on(held.clone());
        let engine = stage.engine(keys.clone());
        assert_eq!(stage.charge(&engine, "card", 5).await, Ok(1));
        assert_eq!(held.counted(), first, "{keys:?}");
        // What the memory store has at hand is not asked for at all: another engine has not seen it.
        let before = held.counted();
        assert_eq!(stage.charge(&engine, "card", 5).await, Ok(1));
        let cost: Vec<u32> = held
            .counted()
            .iter()
            .zip(before)
            .map(|(now, was)| now - was)
            .collect();
        assert!(cost == replay || cost == [0, 0, 0], "{keys:?}: {cost:?}");
    }
}

/// Both have looked, and found nothing; both claim, each under its own name; then both look again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_claim_at_once_see_each_other() {
    let held = Held::new(0);
    held.replies.forget_permits(MANY);
    let stage = Arc::new(Stage::on(held.clone()));
    let steps = [
        DigestKeys::new(OLD).also(NEW),
        DigestKeys::new(NEW).also(OLD),
    ];
    let callers = steps.map(|keys| {
        let (stage, engine) = (Arc::clone(&stage), stage.engine(keys));
        tokio::spawn(async move { stage.charge(&engine, "card", 5).await })
    });
    held.turns.add_permits(2);
    held.have_looked(2).await;
    held.have_come(2).await;
    held.replies.add_permits(MANY);
    // Each has its claim, and asks for the other's.
    held.have_come(2).await;
    assert_eq!(held.counted()[0], 2, "two claims");
    held.turns.add_permits(MANY);
    for caller in callers {
        let answer = soon("an answer", caller).await.unwrap();
        assert_eq!(answer, Ok(1), "{:?}", held.counted());
    }
    assert_eq!(stage.runs(), 1);
    assert!(held.counted()[2] >= 1, "one of them gave way");
}

/// The first is let go on before the second claims.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_looked_first_is_not_overtaken() {
    let held = Held::new(0);
    let stage = Arc::new(Stage::on(held.clone()));
    let old = stage.engine(DigestKeys::new(OLD).also(NEW));
    let new = stage.engine(DigestKeys::new(NEW).also(OLD));
    let late = {
        let stage = Arc::clone(&stage);
        tokio::spawn(async move { stage.charge(&new, "card", 5).await })
    };
    // It looked before the other began.
    held.have_come(1).await;
    held.turns.add_permits(1);
    held.have_come(1).await;
    // Its claim stands, and it has not looked again: the other sees it, and waits.
    let other = {
        let stage = Arc::clone(&stage);
        tokio::spawn(async move { stage.charge(&old, "card", 5).await })
    };
    held.have_come(1).await;
    held.turns.add_permits(MANY);
    for caller in [late, other] {
        assert_eq!(soon("an answer", caller).await.unwrap(), Ok(1));
    }
    assert_eq!(stage.runs(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_leaves_before_it_has_looked_gives_its_claim_back() {
    let held = Held::new(1);
    let stage = Stage::on(held.clone());
    let engine = stage.engine(DigestKeys::new(NEW).also(OLD));
    {
        let charge = stage.charge(&engine, "card", 5);
        tokio::select! {
            answer = charge => panic!("it was to wait: {answer:?}"),
            () = held.have_come(2) => {}
        }
    }
    assert_eq!(held.counted()[0], 1, "it had its claim");
    held.turns.add_permits(MANY);
    // Well within the lease of 30 s.
    assert_eq!(stage.charge(&engine, "card", 5).await, Ok(1));
    assert_eq!(stage.runs(), 1);
}
