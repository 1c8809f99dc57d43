//! Large records, and the expiry of released ones. Values that are no record have cases of the conformance suite.

use bytes::Bytes;
use idem_runtime::ErrorKind;
use idem_runtime::store::author::{Header, Remains, State};
use idem_runtime::store::{Fence, OutcomeKind, StoreError};
use idem_tests::claims::unhurried;

use crate::prelude::*;

/// A record of 64 MB, which another client of the server wrote.
#[tokio::test]
async fn a_record_beyond_the_limit_is_not_fetched() {
    const LARGE: usize = 64 << 20;
    let server = RedisServer::start();
    let store = patient(RedisStore::builder(server.url())).max_record_bytes(10_000);
    let store = store.connect().await.unwrap();
    let key = crate::key(1);
    let done = |number| {
        let state = State::Done {
            outcome: OutcomeKind::Value,
            schema: 1,
        };
        let owner = Owner::from_bytes([number; 16]);
        Header::new(state, owner, Fence::new(1), Duration::from_hours(1)).encode()
    };
    let requests = [false, true].map(|dated| {
        let mut request = asks(Owner::random());
        request.dated = dated;
        request
    });
    let name = key.name();
    server.cli(&[&b"SETRANGE"[..], name.as_bytes(), b"0", &done(1)]);
    server.cli(&["SETRANGE", &name, &(LARGE - 1).to_string(), "x"]);
    server.cli(&["PEXPIRE", &name, "3600000"]);
    let assert_refused = |error: StoreError| {
        assert_eq!(error.kind(), StoreErrorKind::TooLarge, "{error}");
        let expected = format!("the record has {LARGE} bytes; `max_record_bytes` is 10000");
        assert_eq!(error.to_string(), expected);
    };
    let sent = || -> u64 {
        let bytes = server.info("stats", "total_net_output_bytes");
        bytes.parse().unwrap()
    };
    // The first plain claim fetches the record, because its size is unknown; no later one does.
    let first = sent();
    for _ in 0..10 {
        assert_refused(
            store
                .claim(&key, &requests[0], &unhurried())
                .await
                .unwrap_err(),
        );
    }
    let begun = sent();
    assert!(begun - first < 3 * LARGE as u64 / 2, "{}", begun - first);
    for _ in 0..3 {
        for request in &requests {
            assert_refused(store.claim(&key, request, &unhurried()).await.unwrap_err());
        }
        assert_refused(store.read(&key).await.unwrap_err());
        assert_refused(store.poll(&key).await.unwrap_err());
        let other = Bytes::copy_from_slice(&done(2));
        assert_refused(store.complete(&key, None, &other).await.unwrap_err());
    }
    let fetched = sent() - begun;
    assert!(fetched < 100_000, "{fetched} bytes were fetched");
    assert_eq!(server.cli(&["STRLEN", &name]), LARGE.to_string());
}

#[tokio::test]
async fn an_answer_beyond_the_read_limit_is_not_written() {
    let limited = |store: RedisStoreBuilder| store.max_record_bytes(10_000);
    let server = RedisServer::start();
    let shop = Shop::open_with(&server.url(), limited, |engine| engine).await;
    let pay = || shop.pay_with_memo("a", 1, "m".repeat(20_000), async |_| Ok(()));
    assert_eq!(pay().await.unwrap().run, 1);
    let error = pay().await.unwrap_err().refused();
    assert_eq!(error.kind(), &ErrorKind::NotStored);
    assert_eq!(shop.runs(), 1);
}

/// A late release must not lose the expiry with the state.
#[tokio::test]
async fn releases_keep_the_expiry_of_a_record() {
    let oldest = RedisServer::builder().version(Edition::Redis62);
    for server in [oldest.start(), RedisServer::start()] {
        let store = connect(server.url()).await.unwrap();
        for number in 0..200 {
            let (key, mut claim) = (crate::key(number), asks(Owner::random()));
            (claim.lease, claim.retain) = (Duration::from_millis(4), Duration::from_millis(8));
            store.claim(&key, &claim, &unhurried()).await.unwrap();
            // The server rounds the remaining life to the millisecond.
            let left = || server.reply(&["PTTL", &key.name()]).as_int();
            while matches!(left(), Some(2..)) {}
            let _ = store
                .release(&key, &claim.owner, Remains::Request, None)
                .await;
        }
        let names = server.cli(&["KEYS", "idem:*"]);
        let endless = names
            .lines()
            .filter(|name| server.cli(&["PTTL", name]) == "-1");
        assert_eq!(endless.count(), 0, "records that never expire");
    }
}
