//! The memory store under many keys: it evicts expired records, and refuses claims when it is full.

use std::time::Duration;

use allocation_counter::measure;
use futures_util::FutureExt;
use idem_runtime::clock::ManualClock;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Engine, ErrorKind, OnOutage};
use idem_tests::payment::{PayError, Receipt};

async fn pay(engine: &Engine, number: u32) -> Result<Receipt, PayError> {
    let call = engine.operation("pay").key(&number);
    call.run(|_| async { Ok(Receipt { run: number }) }).await
}

/// An engine with a claim deadline of 1 ms.
fn hasty(store: &MemoryStore) -> Engine {
    let engine = Engine::builder(store.clone()).claim_deadline(Duration::from_millis(1));
    engine.build().unwrap()
}

#[test]
fn a_million_keys_leave_nothing_behind() {
    const ROUND: u32 = 100_000;
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let engine = Engine::builder(store.clone()).clock(clock.clone());
    let engine = engine.build().unwrap();
    let finish = |number| {
        let paid = pay(&engine, number).now_or_never();
        paid.expect("a memory store replies at once").unwrap();
    };
    let (mut held, mut sizes) = (0, Vec::new());
    for round in 0..10 {
        let cost = measure(|| (round * ROUND..(round + 1) * ROUND).for_each(finish));
        assert!(store.len() <= 100_000, "{} in round {round}", store.len());
        held += cost.bytes_current;
        sizes.push(held);
        clock.advance(Duration::from_hours(25));
    }
    // The maps reach their size within the first rounds, except for a late doubling.
    let (early, late) = (sizes[4], sizes[9]);
    assert!(late <= early + early / 10, "memory grows: {sizes:?} bytes");
    // A few more calls evict the rest of the last round.
    let mut number = 10 * ROUND;
    while store.len() > 1_000 {
        finish(number);
        number += 1;
        clock.advance(Duration::from_hours(25));
        assert!(number < 11 * ROUND, "{} records are left", store.len());
    }
    assert!(store.bytes() < 1_000_000, "{} bytes", store.bytes());
}

/// One client sends invalid requests: those of another client are accepted all the same.
#[tokio::test]
async fn calls_that_fail_take_room_for_a_lease_and_not_for_their_ttl() {
    const ROOM: u32 = 1_000;
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone());
    let store = store.max_entries(1_000).build();
    let engine = hasty(&store);
    let fail = async |number: u32| {
        let call = engine.operation("pay").key(&number);
        let failed = call.run(|_| async { Err(PayError::Down) as Result<Receipt, _> });
        assert_eq!(failed.await, Err(PayError::Down));
    };
    // A thousand failed calls per half-minute.
    for round in 0..10 {
        for number in 0..ROOM {
            fail(round * ROOM + number).await;
        }
        clock.advance(Duration::from_secs(30));
    }
    pay(&engine, 10 * ROOM).await.unwrap();
    assert!(store.len() < 1_000, "{} records", store.len());
}

/// A flood of keys must not switch the protection off.
#[tokio::test]
async fn a_full_store_is_no_outage() {
    let store = MemoryStore::builder().max_entries(1).build();
    pay(&hasty(&store), 0).await.unwrap();
    let call = hasty(&store)
        .operation("pay")
        .key(&1)
        .on_outage(OnOutage::Run);
    let run = call.run(|_| async { unreachable!("it runs unprotected") as Result<Receipt, _> });
    let Err(PayError::Idem(error)) = run.await else {
        panic!("nothing ran")
    };
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
    assert!(error.is_retryable(), "{error}");
}

/// Large enough that its parts do not report each record.
#[tokio::test]
async fn a_larger_store_is_full_at_its_bound_and_not_before() {
    const BOUND: u32 = 10_000;
    let store = MemoryStore::builder().max_entries(10_000).build();
    let engine = Engine::new(store.clone());
    for number in 0..BOUND {
        pay(&engine, number).await.unwrap();
    }
    let error = pay(&hasty(&store), BOUND).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
    assert_eq!(store.len(), 10_000);
    assert_eq!(pay(&engine, 0).await, Ok(Receipt { run: 0 }));
}
