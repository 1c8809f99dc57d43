//! A reset removes an answer for all processes, whatever fast stores hold.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use idem_runtime::store::RecordKey;
use idem_runtime::store::author::{Copied, Owner, ReadCache, ReadReply, State, StoreFuture};
use idem_runtime::testing::{Fault, StoreOperation};
use idem_runtime::{Engine, clock::ManualClock, store::layered::LayeredStore};
use idem_tests::shop::{connect, patiently, until};
use tokio::sync::Mutex;

use crate::prelude::*;

async fn reset(fixture: &Fixture, key: &str) {
    let entry = fixture.call(key).entry().await.unwrap().unwrap();
    entry.reset().await.unwrap();
}

/// Each process serves the answer from its copies.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_is_known_to_the_caches_of_other_processes() {
    let durable = memory();
    let [one, other] = [(); 2].map(|()| Fixture::with(MemoryStore::new(), &durable, patient));
    let other = other.sharing(&one);
    for run in 1..4 {
        for fixture in [&one, &other] {
            let hits = fixture.stats().hits;
            while fixture.stats().hits == hits {
                assert_eq!(fixture.pay("a").await.unwrap().run, run);
                fixture.settle().await;
            }
        }
        reset(&one, "a").await;
        assert_eq!(other.pay("a").await.unwrap().run, run + 1);
        assert_eq!(one.pay("a").await.unwrap().run, run + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_snapshot_does_not_bring_an_answer_back() {
    let (server, durable) = (RedisServer::start(), memory());
    let one = Fixture::on(&server, &durable).await;
    let other = Fixture::on(&server, &durable).await.sharing(&one);
    assert_eq!(one.pay("a").await.unwrap().run, 1);
    one.settle().await;
    assert_eq!(other.pay("a").await.unwrap().run, 1);
    assert_eq!(other.stats().hits, 1);
    server.cli(&["SAVE"]);
    reset(&one, "a").await;
    assert_eq!(one.pay("a").await.unwrap().run, 2);
    // As after a crash: writes since the snapshot are lost.
    server.kill();
    server.restart();
    let there = server.cli(&["EXISTS", &Fixture::copy_name("a")]);
    assert_eq!(there, "1", "the old copy is back");
    for fixture in [&one, &other, &Fixture::on(&server, &durable).await] {
        for _ in 0..10 {
            assert_eq!(fixture.pay("a").await.unwrap().run, 2);
        }
    }
}

/// Engines without notifications serve no copies after the reset has returned.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_while_the_fast_store_is_away_counts_for_engines_that_reach_it() {
    let (server, durable) = (RedisServer::start(), memory());
    let other = Fixture::on(&server, &durable).await;
    assert_eq!(other.pay("a").await.unwrap().run, 1);
    other.settle().await;
    assert_eq!(other.pay("a").await.unwrap().run, 1);
    let proxy = idem_harness::TcpProxy::start(server.addr());
    let cut_off = connect(proxy.url()).await.unwrap();
    let hasty = |store: LayeredStoreBuilder| store.patience(Duration::from_millis(50));
    let one = Fixture::with(cut_off, &durable, hasty).sharing(&other);
    proxy.black_hole(true);
    reset(&one, "a").await;
    for fixture in [&other, &one] {
        for _ in 0..10 {
            assert_eq!(fixture.pay("a").await.unwrap().run, 2);
        }
    }
}

/// The database has reset it, or has opened the epoch. A second close would take as long as the engine tries.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_whose_reply_is_lost_closes_the_epoch_once() {
    let durable = memory();
    let fixture = Fixture::with(MemoryStore::new(), &durable, patient);
    assert_eq!(fixture.pay("a").await.unwrap().run, 1);
    for (run, faults) in [
        (2, [Fault::ReplyLost, Fault::None]),
        (3, [Fault::None, Fault::ReplyLost]),
    ] {
        let claims = durable.count(StoreOperation::Claim);
        durable.fail(StoreOperation::Resolve, faults);
        reset(&fixture, "a").await;
        assert_eq!(durable.count(StoreOperation::Claim), claims + 1);
        assert_eq!(fixture.pay("a").await.unwrap().run, run);
        durable.heal();
    }
}

/// It may be executed later, and must find no copies then.
#[tokio::test]
async fn a_reset_of_which_nothing_is_known_leaves_the_epoch_closed() {
    let durable = memory();
    let fixture = Fixture::with(MemoryStore::new(), &durable, patient);
    assert_eq!(fixture.pay("a").await.unwrap().run, 1);
    let key = Fixture::key("a");
    let ReadReply::Found { record, .. } = durable.read(&key).await.unwrap() else {
        panic!("no record");
    };
    let mut header = record.header;
    (header.state, header.owner) = (State::Released, Owner::from_bytes([9; 16]));
    let released = Bytes::copy_from_slice(&header.encode());
    durable.fail(StoreOperation::Resolve, [Fault::Lost; 2]);
    let reset = fixture.store.resolve(&key, &record.header, None, &released);
    reset.await.unwrap_err();
    assert_eq!(durable.count(StoreOperation::Resolve), 2, "and no opening");
}

/// The first reset's answer would be copied into the second's epoch.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_beside_another_one_leaves_the_epoch_closed() {
    let durable = memory();
    let fixture = Fixture::with(MemoryStore::new(), &durable, patient);
    assert_eq!(fixture.pay("a").await.unwrap().run, 1);
    assert_eq!(fixture.pay("b").await.unwrap().run, 2);
    durable.fail(StoreOperation::Resolve, [Fault::Held]);
    let resolved = || durable.count(StoreOperation::Resolve);
    let second = async {
        until("the first reset is sent", || resolved() == 1).await;
        reset(&fixture, "b").await;
        assert_eq!(resolved(), 2, "and no opening");
        durable.deliver();
    };
    tokio::join!(reset(&fixture, "a"), second);
    assert_eq!(fixture.pay("a").await.unwrap().run, 3);
    assert_eq!(fixture.pay("b").await.unwrap().run, 4);
}

/// Its replies to calls are delayed.
#[derive(Clone, Debug)]
struct Delayed {
    copies: MemoryStore,
    /// How many copies were read.
    read: Arc<AtomicUsize>,
    /// While it is locked, no reply arrives.
    network: Arc<Mutex<()>>,
}

impl ReadCache for Delayed {
    fn look<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Copied> {
        StoreFuture::pending(async move {
            let found = self.copies.look(key).await;
            self.read.fetch_add(1, Ordering::SeqCst);
            drop(self.network.lock().await);
            found
        })
    }

    changes_its_copies!();
}

/// The same of a process that was suspended after its reading.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_arrives_after_a_reset_is_no_answer() {
    let durable = memory();
    let one = Fixture::with(MemoryStore::new(), &durable, patient);
    let fast = Delayed {
        copies: MemoryStore::new(),
        read: Arc::default(),
        network: Arc::default(),
    };
    let other = Fixture::with(fast.clone(), &durable, patient).sharing(&one);
    while other.stats().hits == 0 {
        assert_eq!(other.pay("a").await.unwrap().run, 1);
        other.settle().await;
    }
    let delayed = fast.network.lock().await;
    let reads = || fast.read.load(Ordering::SeqCst);
    let before = reads();
    let reading = async {
        loop {
            // No copy is read where the epoch was read too long ago.
            let paid = other.pay("a").await.unwrap();
            if reads() > before {
                break paid.run;
            }
        }
    };
    let resetting = async {
        until("a copy is read", || reads() > before).await;
        reset(&one, "a").await;
        assert_eq!(one.pay("a").await.unwrap().run, 2);
        drop(delayed);
    };
    let both = Box::pin(async { tokio::join!(reading, resetting) });
    let (run, ()) = patiently("both have an answer", both).await;
    assert_eq!(run, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_waits_for_the_pause_beyond_the_claim_deadline() {
    let durable = memory();
    let layers = LayeredStore::builder(MemoryStore::new(), durable.clone());
    let store = layers.trust(Duration::from_millis(50)).build();
    let clock = ManualClock::new();
    let deadline = Duration::from_secs(1);
    let engine = Engine::builder(store).clock(clock.clone());
    let engine = engine.claim_deadline(deadline).build().unwrap();
    let call = || engine.operation("pay").public().key("a");
    let paid = call().run(async |_| Ok::<_, PayError>(1));
    paid.await.unwrap();
    let entry = call().entry().await.unwrap().unwrap();
    let claims = durable.count(StoreOperation::Claim);
    let passing = async {
        let is_closed = || durable.count(StoreOperation::Claim) > claims;
        until("the epoch is closed", is_closed).await;
        clock.advance(deadline);
    };
    tokio::join!(entry.reset(), passing).0.unwrap();
}
