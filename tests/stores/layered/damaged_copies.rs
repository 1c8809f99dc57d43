//! Damaged or foreign values in the fast store.

use idem_runtime::ErrorKind;
use idem_runtime::store::author::{HEADER, ReadReply};

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
