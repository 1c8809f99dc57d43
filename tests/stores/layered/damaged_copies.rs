//! Damaged or foreign values in the fast store.

use bytes::Bytes;
use idem_runtime::store::{Fence, HEADER, Header, Owner, ReadCache, ReadReply, RecordKey, State};
use idem_runtime::{ErrorKind, key::Operation};

use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_copy_is_no_answer_and_stays() {
    let (server, _durable, fixture) = Fixture::alone().await;
    let long = "2".repeat(HEADER);
    for (n, poison) in ["2", "nothing of ours", &long].into_iter().enumerate() {
        let (key, name) = (n.to_string(), Fixture::copy_name(&n.to_string()));
        server.cli(&["SET", &name, poison, "PX", "100000"]);
        let first = fixture.pay(&key).await.unwrap();
        fixture.settle().await;
        assert_eq!(fixture.pay(&key).await.unwrap(), first);
        assert_eq!(server.cli(&["GET", &name]), poison);
    }
    let name = Fixture::copy_name("list");
    server.cli(&["RPUSH", &name, "an element"]);
    let first = fixture.pay("list").await.unwrap();
    fixture.settle().await;
    assert_eq!(fixture.pay("list").await.unwrap(), first);
    assert_eq!(fixture.runs.count(), 4);
    assert_eq!(fixture.stats().failures, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_request_is_a_mismatch_in_every_layer() {
    let (_server, _durable, fixture) = Fixture::alone().await;
    fixture.pay("a").await.unwrap();
    fixture.settle().await;
    let body = async |_| Ok::<_, PayError>(Receipt { run: 99 });
    let call = fixture.call("a").fingerprint("something else");
    let error = call.run(body).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Mismatch);
}

/// The copy of a completion without a fingerprint must not answer a call that has one.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_a_fingerprint_does_not_hide_a_mismatch() {
    let (_server, _durable, fixture) = Fixture::alone().await;
    let down = async |_| Err::<Receipt, _>(PayError::Down);
    // An attempt that counts: the record keeps its fingerprint.
    let first = fixture.call("a").count_errors(true);
    assert_eq!(first.run(down).await, Err(PayError::Down));
    let plain = || fixture.engine.operation("pay").key("a");
    let answer = plain().run(async |_| Ok::<_, PayError>(Receipt { run: 1 }));
    answer.await.unwrap();
    for _ in 0..2 {
        fixture.settle().await;
        let body = async |_| Ok::<_, PayError>(Receipt { run: 99 });
        let call = fixture.call("a").fingerprint("something else");
        let error = call.run(body).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Mismatch);
        fixture.pay("a").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_outcome_is_never_answered_from_the_fast_store() {
    let (server, durable, fixture) = Fixture::alone().await;
    let timed_out = async |_| Err::<Receipt, _>(PayError::TimedOut);
    assert_eq!(
        fixture.call("a").run(timed_out).await,
        Err(PayError::TimedOut)
    );
    for _ in 0..2 {
        fixture.settle().await;
        let error = fixture.pay("a").await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unknown { .. }));
        assert_eq!(server.cli(&["EXISTS", &Fixture::copy_name("a")]), "0");
    }
    // Even if a copy of it exists.
    let entry = fixture.call("a").entry().await.unwrap().unwrap();
    let unknown = durable.read(&Fixture::key("a")).await.unwrap();
    let ReadReply::Found { record, .. } = unknown else {
        panic!("{unknown:?}");
    };
    let name = Fixture::copy_name("a");
    let bytes = record.as_bytes();
    server.reply(&[&b"SET"[..], name.as_bytes(), bytes, b"PX", b"100000"]);
    entry.resolve(&Receipt { run: 7 }).await.unwrap();
    assert_eq!(fixture.pay("a").await.unwrap().run, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_claim_in_the_fast_store_blocks_no_caller() {
    let (fast, durable) = (MemoryStore::new(), Counted::memory());
    let fixture = Fixture::with(fast.clone(), &durable, patient);
    let key = Fixture::key("a");
    let copy = RecordKey::new("fixture:+0".into(), Operation::new("pay"), *key.digest());
    let lease = Duration::from_mins(10);
    let dead = Header::new(
        State::Pending { lease },
        Owner::random(),
        Fence::new(u64::MAX),
        lease,
    );
    let bytes = Bytes::copy_from_slice(&dead.encode());
    ReadCache::keep(&fast, &copy, &bytes, lease).await.unwrap();
    fixture.pay("a").await.unwrap();
    assert_eq!(fixture.pay("a").await.unwrap().run, 1);
}
