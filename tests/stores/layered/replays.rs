//! The cost of calls.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use idem_runtime::clock::ManualClock;
use idem_runtime::store::RecordKey;
use idem_runtime::store::author::{CompleteReply, Header, ReadReply, StoreFuture};
use idem_runtime::store::layered::LayeredStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::testing::Forward;
use idem_runtime::{Engine, Error};
use idem_tests::shop;
use idem_tests::shop::{connected, patiently, until};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::fixture::PREFIX;
use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_is_one_command_and_no_question_to_the_durable_store() {
    let (server, durable, fixture) = Fixture::alone().await;
    let first = fixture.pay("a").await.unwrap();
    assert_eq!(asked(&durable), (1, 1), "a first call claims and completes");
    fixture.settle().await;
    fixture.pay("a").await.unwrap(); // the script is known from here on
    let mut monitor = server.monitor();
    monitor.names();
    let before = asked(&durable);
    for _ in 0..3 {
        assert_eq!(fixture.pay("a").await.unwrap(), first);
        assert_eq!(monitor.names(), ["EVALSHA"]);
    }
    assert_eq!(asked(&durable), before);
    assert_eq!(fixture.runs.count(), 1);
    assert_eq!(fixture.stats().hits, 4);
    let large = async || {
        let call = fixture.call("large");
        let text = call.run(async |_| Ok::<_, PayError>("x".repeat(20_000)));
        text.await.unwrap()
    };
    let first = large().await;
    fixture.settle().await;
    assert_eq!(large().await, first);
    monitor.names();
    assert_eq!(large().await, first);
    assert_eq!(monitor.names(), ["EVALSHA", "GETRANGE"]);
}

/// A copy that outlived its record would answer a new call.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_ends_with_the_life_that_its_answer_chose() {
    let (server, time) = (RedisServer::start(), ManualClock::new());
    let durable = Faulty::new(MemoryStore::builder().clock(time.clone()).build());
    let fixture = Fixture::on(&server, &durable).await;
    let (name, minutes) = (Fixture::copy_name("a"), Duration::from_mins);
    let pay = async || {
        let call = fixture.call("a").ttl_of(|_: &Receipt| minutes(60));
        let run = async |_| {
            let run = fixture.runs.start();
            Ok::<_, PayError>(Receipt { run })
        };
        call.run(run).await.unwrap().run
    };
    for run in [1, 2] {
        assert_eq!(pay().await, run);
        fixture.settle().await;
        let left: u64 = server.cli(&["PTTL", &name]).parse().unwrap();
        assert!(Duration::from_millis(left) <= minutes(60), "{left} ms");
        time.advance(minutes(59));
        server.advance(minutes(59), PREFIX);
        let before = asked(&durable);
        assert_eq!(pay().await, run);
        assert_eq!(asked(&durable), before, "the copy replies");
        // The record first: the copy is over by then.
        server.advance(minutes(1), PREFIX);
        assert_eq!(server.cli(&["EXISTS", &name]), "0");
        time.advance(minutes(1));
    }
}

/// Finds a copy beyond the limit of its fast store.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_over_the_limit_of_the_fast_store_has_no_copy() {
    let (server, durable) = (RedisServer::start(), memory());
    let fast = RedisStore::builder(server.url()).max_record_bytes(10_000);
    let fixture = Fixture::with(connected(fast).await, &durable, patient);
    let pay = async || {
        let call = fixture.call("large");
        let text = call.run(async |_| Ok::<_, PayError>("x".repeat(20_000)));
        text.await.unwrap()
    };
    let first = pay().await;
    fixture.settle().await;
    assert_eq!(pay().await, first);
    let copies = server.cli(&["EXISTS", &Fixture::copy_name("large")]);
    assert_eq!((&*copies, fixture.stats().failures), ("0", 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_rights_are_enough() {
    let rights = "on >secret ~fixture:* +eval +evalsha +get +getrange +set +time +pttl +pexpire \
                  +strlen +exists +hello +info resetchannels &fixture:* +publish +subscribe +unsubscribe";
    let server = RedisServer::builder().acl_user("app", rights).start();
    let url = server.url_as("app", "secret");
    let store = shop::patient(RedisStore::builder(url)).checked_prefix("fixture");
    let durable = memory();
    let fixture = Fixture::with(store.connect().await.unwrap(), &durable, patient);
    let first = fixture.pay("a").await.unwrap();
    fixture.settle().await;
    assert_eq!(fixture.pay("a").await.unwrap(), first);
    assert_eq!(asked(&durable), (1, 1));
    fixture.store.forget(&Fixture::key("a")).await.unwrap();
    assert_eq!(fixture.pay("a").await.unwrap(), first);
    assert_eq!(asked(&durable), (2, 1));
    fixture.settle().await;
    assert_eq!(fixture.stats().failures, 0);
    assert_eq!(server.cli(&["ACL", "LOG"]), "");
}

/// Counts the reads of records of calls; the clock causes those of the epoch.
#[derive(Debug)]
struct CountedReads(MemoryStore, AtomicUsize);

impl Forward for CountedReads {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        let is_of_call = key.operation().as_str() == "pay";
        self.1.fetch_add(usize::from(is_of_call), Ordering::SeqCst);
        self.0.read(key)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_calls_poll_the_fast_store_and_are_notified_there() {
    let reads = Arc::new(CountedReads(MemoryStore::new(), AtomicUsize::new(0)));
    let (server, durable) = (RedisServer::start(), Faulty::new(reads.clone()));
    let first = Fixture::on(&server, &durable).await;
    let mut others = Vec::new();
    for _ in 0..8 {
        let other = Fixture::on(&server, &durable).await.sharing(&first);
        others.push(Arc::new(other));
    }
    let (begun, goes_on) = (Notify::new(), Notify::new());
    let body = async |_| {
        let run = first.runs.start();
        begun.notify_one();
        goes_on.notified().await;
        Ok::<_, PayError>(Receipt { run })
    };
    let leads = first.call("a").run(body);
    let waits = async {
        begun.notified().await;
        let mut waiting = JoinSet::new();
        for other in &others {
            let other = Arc::clone(other);
            waiting.spawn(async move { other.pay("a").await });
        }
        let hits = || others.iter().map(|other| other.stats().hits).sum::<u64>();
        until("they have looked often", || hits() >= 20).await;
        let (reads, hits) = (reads.1.load(Ordering::SeqCst) as u64, hits());
        assert!(
            reads <= hits,
            "{reads} reads of the durable store, {hits} not"
        );
        goes_on.notify_one();
        let answers = patiently("all are told", waiting.join_all()).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap().run == 1));
    };
    let (answer, ()) = tokio::join!(leads, waits);
    assert_eq!(answer.unwrap().run, 1);
    assert_eq!(first.runs.count(), 1);
}

/// Notes whether each completion brings its claim, for the compare-and-set of Redis.
#[derive(Debug)]
struct Completed(MemoryStore, Mutex<Vec<bool>>);

impl Forward for Completed {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn complete<'a>(
        &'a self,
        key: &'a RecordKey,
        claim: Option<&'a Header>,
        record: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        self.1.lock().unwrap().push(claim.is_some());
        self.0.complete(key, claim, record)
    }
}

#[tokio::test]
async fn a_completion_brings_its_claim_to_the_durable_store() {
    let durable = Arc::new(Completed(MemoryStore::new(), Mutex::default()));
    let engine = Engine::new(LayeredStore::new(MemoryStore::new(), durable.clone()));
    let call = engine.operation("pay").key(&"a");
    call.run(|_| async { Ok::<_, Error>(1) }).await.unwrap();
    assert_eq!(*durable.1.lock().unwrap(), [true]);
}
