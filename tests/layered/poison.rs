//! What stands in the fast store is not what it should be.

use std::time::Duration;

use bytes::Bytes;
use idem_harness::RedisServer;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::{
    AnswerTypes, Fence, Front, HEADER, Header, Owner, ReadReply, RecordKey, State, Store,
};
use idem_runtime::{ErrorKind, Fingerprint, Operation};
use idem_tests::pay::{PayError, Receipt};

use crate::counted::Counted;
use crate::desk::{Desk, patient};

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_in_front_is_no_answer_and_stays() {
    let (server, durable) = (RedisServer::start(), Counted::memory());
    let desk = Desk::on(&server, &durable).await;
    let long = "2".repeat(HEADER);
    for (n, poison) in ["2", "nothing of ours", &long].into_iter().enumerate() {
        let (key, name) = (n.to_string(), Desk::copy_name(&n.to_string()));
        server.cli(&["SET", &name, poison, "PX", "100000"]);
        let first = desk.pay(&key).await.unwrap();
        desk.settle().await;
        assert_eq!(desk.pay(&key).await.unwrap(), first);
        assert_eq!(server.cli(&["GET", &name]), poison);
    }
    let name = Desk::copy_name("list");
    server.cli(&["RPUSH", &name, "an element"]);
    let first = desk.pay("list").await.unwrap();
    desk.settle().await;
    assert_eq!(desk.pay("list").await.unwrap(), first);
    assert_eq!(desk.runs.count(), 4);
    assert_eq!(desk.stats().failures, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_request_is_a_mismatch_whatever_is_copied() {
    let (server, durable) = (RedisServer::start(), Counted::memory());
    let desk = Desk::on(&server, &durable).await;
    desk.pay("a").await.unwrap();
    desk.settle().await;
    let body = async |_| Ok::<_, PayError>(Receipt { run: 99 });
    let call = desk.call("a").fingerprint("something else");
    let error = call.run(body).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Mismatch);
}

/// The copy of a completion whose caller compares nothing must not answer those who do.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_a_fingerprint_does_not_hide_a_mismatch() {
    let (server, durable) = (RedisServer::start(), Counted::memory());
    let desk = Desk::on(&server, &durable).await;
    let down = async |_| Err::<Receipt, _>(PayError::Down);
    // An attempt that counts: the record keeps what it asked for.
    let first = desk.call("a").count_errors(true);
    assert_eq!(first.run(down).await, Err(PayError::Down));
    let plain = || desk.engine.operation("pay").key("a");
    let answer = plain().run(async |_| Ok::<_, PayError>(Receipt { run: 1 }));
    answer.await.unwrap();
    for _ in 0..2 {
        desk.settle().await;
        let body = async |_| Ok::<_, PayError>(Receipt { run: 99 });
        let call = desk.call("a").fingerprint("something else");
        let error = call.run(body).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Mismatch);
        desk.pay("a").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_outcome_is_never_answered_from_the_fast_store() {
    let (server, durable) = (RedisServer::start(), Counted::memory());
    let desk = Desk::on(&server, &durable).await;
    let timed_out = async |_| Err::<Receipt, _>(PayError::TimedOut);
    assert_eq!(desk.call("a").run(timed_out).await, Err(PayError::TimedOut));
    for _ in 0..2 {
        desk.settle().await;
        let error = desk.pay("a").await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unknown { .. }));
        assert_eq!(server.cli(&["EXISTS", &Desk::copy_name("a")]), "0");
    }
    // Even if one gets there.
    let entry = desk.call("a").entry().await.unwrap().unwrap();
    let unknown = durable.read(&Desk::key("a")).await.unwrap();
    let ReadReply::Found { record, .. } = unknown else {
        panic!("{unknown:?}");
    };
    let name = Desk::copy_name("a");
    let bytes = record.as_bytes();
    server.reply(&[&b"SET"[..], name.as_bytes(), bytes, b"PX", b"100000"]);
    entry.resolve(&Receipt { run: 7 }).await.unwrap();
    assert_eq!(desk.pay("a").await.unwrap().run, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_claim_of_somebody_dead_in_front_keeps_nobody_out() {
    let (fast, durable) = (MemoryStore::new(), Counted::memory());
    let desk = Desk::with(fast.clone(), &durable, patient);
    let key = Desk::key("a");
    let copy = RecordKey::new("desk:+0".into(), Operation::new("pay"), *key.digest());
    let lease = Duration::from_mins(10);
    let dead = Header {
        state: State::Pending { lease },
        owner: Owner::random(),
        fence: Fence::new(u64::MAX),
        attempts: 1,
        retain: lease,
        fingerprint: Fingerprint::NONE,
        types: AnswerTypes::UNKNOWN,
    };
    let bytes = Bytes::copy_from_slice(&dead.encode());
    Front::keep(&fast, &copy, &bytes, lease).await.unwrap();
    desk.pay("a").await.unwrap();
    assert_eq!(desk.pay("a").await.unwrap().run, 1);
}
