//! Reads that share a statement do not disturb each other.

use std::pin::Pin;

use idem_runtime::store::StoreError;
use tokio::runtime::Builder;
use tokio::task::block_in_place;

use crate::fixture::elsewhere as key;
use crate::prelude::*;

on_each_database!(a_reader_that_is_not_polled_blocks_no_other);

/// More reads than one statement serves.
const KEYS: u64 = 80;

async fn claimed<B: Kind>(store: &SqlStore<B>) {
    for number in 0..KEYS {
        let request = asks(Owner::from_bytes(owner(number)));
        let claim = store.claim(&key(number), &request).await.unwrap();
        assert!(matches!(claim, ClaimReply::Granted { .. }), "{claim:?}");
    }
}

fn owner(number: u64) -> [u8; 16] {
    u128::from(number + 1).to_be_bytes()
}

/// Replies to concurrent reads of all keys.
async fn told<B: Kind>(store: &SqlStore<B>) -> Vec<(u64, Result<ReadReply, StoreError>)> {
    let mut reading = JoinSet::new();
    for number in 0..KEYS {
        let store = store.clone();
        reading.spawn(async move { (number, store.read(&key(number)).await) });
    }
    patiently("all have read", reading.join_all()).await
}

fn assert_its_own(number: u64, reply: Result<ReadReply, StoreError>) {
    match reply {
        Ok(ReadReply::Found { record, .. }) => {
            assert_eq!(*record.header.owner.as_bytes(), owner(number));
        }
        other => panic!("{number}: {other:?}"),
    }
}

/// Without a wake-up, each round would last until a time-out, and all rounds together longer than this test waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_reads_all_complete() {
    let (_test_database, store) = opened::<Sqlite>().await;
    claimed(&store).await;
    let rounds = async {
        for _ in 0..100 {
            for (number, reply) in told(&store).await {
                assert_its_own(number, reply);
            }
        }
    };
    patiently("a hundred rounds", rounds).await;
}

/// Any column of SQLite holds any type.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_record_fails_only_its_own_reader() {
    let (test_database, store) = opened::<Sqlite>().await;
    claimed(&store).await;
    let last = u128::from(KEYS);
    test_database
        .sql(&format!(
            "UPDATE idem_records SET detail = 'damaged' WHERE owner = x'{last:032x}'"
        ))
        .await;
    for _ in 0..20 {
        for (number, reply) in told(&store).await {
            if number + 1 == KEYS {
                assert!(reply.is_err(), "{reply:?}");
            } else {
                assert_its_own(number, reply);
            }
        }
    }
}

/// With this delay, reads that arrive during a round trip share the next statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shared_read_waits_for_the_common_reply() {
    let server = Postgres::serve(&[("log_statement", "all")]);
    let proxy = TcpProxy::start(server.addr());
    let store = open::<Postgres>(&server.url_at(proxy.addr())).await;
    claimed(&store).await;
    let reads = || {
        let log = server.log();
        let lines = log.lines().filter(|line| line.contains(" execute "));
        lines.filter(|line| line.contains("SELECT")).count()
    };
    proxy.delay(Duration::from_millis(150));
    // At first the connections are made and their statements prepared, which takes more than one round trip.
    let mut sent = Vec::new();
    for _ in 0..4 {
        let before = reads();
        for (number, reply) in told(&store).await {
            assert_its_own(number, reply);
        }
        sent.push(reads() - before);
        if sent.last() < Some(&20) {
            return;
        }
    }
    panic!("{sent:?} statements for {KEYS} reads each");
}

/// The leader of a shared read may no longer be polled, because its runtime is blocked or another branch of a
/// `select!` was taken. Dropping it must not cancel the other reads either.
async fn a_reader_that_is_not_polled_blocks_no_other<B: Kind>() {
    let (_test_database, store) = opened::<B>().await;
    claimed(&store).await;
    // Takes one of the two connections.
    let here = key(0);
    let mut first = store.read(&here);
    // If this thread is suspended within the first poll, the reply may arrive before the poll ends.
    while poll_fn(|cx| Poll::Ready(Pin::new(&mut first).poll(cx).is_ready())).await {
        first = store.read(&here);
    }
    let elsewhere = Builder::new_current_thread().enable_all().build().unwrap();
    block_in_place(|| {
        elsewhere.block_on(async {
            // The leader on the other connection, and the next leader.
            for number in 1..3 {
                let store = store.clone();
                tokio::spawn(async move { store.read(&key(number)).await });
            }
            tokio::task::yield_now().await;
        });
    });
    let (first, others) = tokio::join!(first, told(&store));
    assert_its_own(0, first);
    for (number, reply) in others {
        assert_its_own(number, reply);
    }
    let mut since = JoinSet::new();
    for number in 0..KEYS {
        let store = store.clone();
        since.spawn(async move { (number, store.read(&key(number)).await) });
    }
    elsewhere.shutdown_background();
    for (number, reply) in patiently("all have read", since.join_all()).await {
        assert_its_own(number, reply);
    }
}
