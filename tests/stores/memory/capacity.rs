//! The memory store under many keys: it evicts expired records, and refuses claims when it is full.

use std::time::Duration;

use idem_runtime::clock::ManualClock;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::{ClaimReply, ClaimRequest, Header, Owner, RecordKey, State, Store};
use idem_runtime::{
    Engine, ErrorKind, OnOutage,
    key::{KeyDigest, Operation},
    store::OutcomeKind,
};
use idem_tests::payment::{PayError, Receipt};

/// Resident pages of this process.
fn resident_pages() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse().unwrap()
}

async fn pay(engine: &Engine, number: u32) -> Result<Receipt, PayError> {
    let call = engine.operation("pay").key(&number);
    call.run(|_| async { Ok(Receipt { run: number }) }).await
}

/// An engine with a claim deadline of 1 ms.
fn hasty(store: &MemoryStore) -> Engine {
    let engine = Engine::builder(store.clone()).claim_deadline(Duration::from_millis(1));
    engine.build().unwrap()
}

/// Claims and completes a new key directly on the store.
async fn finish(store: &MemoryStore, number: u32) {
    let mut digest = [0; 32];
    digest[..4].copy_from_slice(&number.to_le_bytes());
    let key = RecordKey::new(
        "memory".into(),
        Operation::new("pay"),
        KeyDigest::from_bytes(digest),
    );
    let request = ClaimRequest::new(
        Owner::from_bytes(digest[..16].try_into().unwrap()),
        Duration::from_secs(30),
        Duration::from_hours(24),
    );
    let ClaimReply::Granted { fence, attempt, .. } = store.claim(&key, &request).await.unwrap()
    else {
        panic!("the key is new")
    };
    let mut header = Header::new(
        State::Done {
            outcome: OutcomeKind::Value,
            schema: 0,
        },
        request.owner,
        fence,
        request.retain,
    );
    header.attempts = attempt;
    header.fingerprint = request.fingerprint;
    let record = [&header.encode()[..], b"200"].concat().into();
    store.complete(&key, &record).await.unwrap();
}

#[tokio::test]
async fn a_million_keys_leave_nothing_behind() {
    const ROUND: u32 = 100_000;
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let mut resident = Vec::new();
    for round in 0..10 {
        for number in 0..ROUND {
            finish(&store, round * ROUND + number).await;
        }
        assert!(
            store.len() <= 100_000,
            "{} records in round {round}",
            store.len()
        );
        resident.push(resident_pages());
        clock.advance(Duration::from_hours(25));
    }
    // The maps reach their size within the first rounds, except for one that doubles late. A leak of one round's
    // records would be three times this margin.
    let (early, late) = (resident[4], resident[9]);
    assert!(
        late <= early + early / 10,
        "memory grows: {resident:?} pages"
    );
    // A few more calls evict the rest of the last round.
    let mut number = 10 * ROUND;
    while store.len() > 1_000 {
        finish(&store, number).await;
        number += 1;
        clock.advance(Duration::from_hours(25));
        assert!(number < 11 * ROUND, "{} records are left", store.len());
    }
    assert!(store.bytes() < 1_000_000, "{} bytes", store.bytes());
}

#[tokio::test]
async fn a_full_store_refuses_new_keys_and_keeps_its_promises() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone());
    let store = store.max_entries(100).build();
    let engine = Engine::new(store.clone());
    for number in 0..100 {
        pay(&engine, number).await.unwrap();
    }
    let error = pay(&hasty(&store), 100).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
    let PayError::Idem(error) = error else {
        unreachable!()
    };
    assert!(
        error
            .to_string()
            .contains("the memory store is full (100 of 100 records"),
        "{error}"
    );
    for number in 0..100 {
        let replayed = pay(&engine, number).await;
        assert_eq!(
            replayed,
            Ok(Receipt { run: number }),
            "a live record is never dropped"
        );
    }
    clock.advance(Duration::from_hours(24));
    pay(&engine, 100).await.unwrap();
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

#[tokio::test]
async fn an_answer_finds_room_even_when_its_claim_took_the_last() {
    let store = MemoryStore::builder().max_bytes(300).build();
    let engine = Engine::new(store.clone());
    let long = "x".repeat(10_000);
    let first = engine.operation("long").key(&1);
    let first = first
        .run(|_| async { Ok::<_, PayError>(long.clone()) })
        .await;
    assert_eq!(first.as_ref(), Ok(&long));
    let again = engine.operation("long").key(&1);
    let again = again.run(|_| async { unreachable!("stored") as Result<String, PayError> });
    assert_eq!(again.await, Ok(long));
    let error = pay(&hasty(&store), 1).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
}
