//! The value under a key: foreign values, damaged records, large ones.

use std::sync::OnceLock;

use bytes::Bytes;
use idem_runtime::ErrorKind;
use idem_runtime::store::author::{Header, Remains, State};
use idem_runtime::store::{Fence, OutcomeKind, StoreError};
use idem_tests::claims::unhurried;

use crate::prelude::*;

fn server() -> &'static RedisServer {
    static SERVER: OnceLock<RedisServer> = OnceLock::new();
    SERVER.get_or_init(RedisServer::start)
}

/// A shop whose only record, of key `a`, is named; and the record.
async fn with_a_record() -> (Shop, String, Vec<u8>) {
    let shop = Shop::open(&server().url()).await;
    shop.pay("a").await.unwrap();
    let name = shop.record(server());
    let Reply::Bulk(record) = server().reply(&["GET", &name]) else {
        panic!("a record is a string");
    };
    (shop, name, record)
}

/// The value under the key as the server serializes it, and whether it never expires.
fn dump(name: &str) -> (Reply, bool) {
    let life = server().reply(&["PTTL", name]);
    (server().reply(&["DUMP", name]), life == Reply::Int(-1))
}

fn set(name: &str, value: &[u8]) {
    let command: [&[u8]; 5] = [b"SET", name.as_bytes(), value, b"EX", b"1000"];
    assert_eq!(server().cli(&command), "OK");
}

/// Every operation leaves the value in place, and no body runs.
async fn assert_left_alone(shop: &Shop, name: &str) {
    let before = dump(name);
    for _ in 0..2 {
        let error = shop.pay("a").await.unwrap_err().refused();
        assert_eq!(error.kind(), &ErrorKind::UnknownRecord, "{error}");
        assert!(!error.is_retryable());
    }
    assert_eq!(shop.runs(), 1, "only the first call of the test ran");
    assert_eq!(dump(name), before);
}

/// Strings of others, records of other layouts, and a record and a claim that are cut short or never expire.
#[tokio::test]
async fn strings_that_are_no_record_are_left_alone() {
    let (shop, name, record) = with_a_record().await;
    let with = |at: usize, byte| {
        let mut changed = record.clone();
        changed[at] = byte;
        changed
    };
    let others = [&b""[..], b"2", b"payload-marker", b"2P", &[0xff; 56]].map(<[u8]>::to_vec);
    let damaged = [
        with(0, b'1'),
        with(0, b'3'),
        with(1, b'Z'),
        record[..55].to_vec(),
    ];
    for value in others.into_iter().chain(damaged).chain([vec![b'2'; 9_000]]) {
        set(&name, &value);
        assert_left_alone(&shop, &name).await;
        server().cli(&["PERSIST", &name]);
        assert_left_alone(&shop, &name).await;
    }
    // As if its owner had vanished: still pending, and without an expiry.
    set(&name, &[b"2P", &record[2..56]].concat());
    server().cli(&["PERSIST", &name]);
    assert_left_alone(&shop, &name).await;
}

#[tokio::test]
async fn a_value_that_takes_a_running_calls_place_is_left_alone() {
    let values: [&[&str]; 3] = [&["SET", ""], &["SET", "payload-marker"], &["RPUSH", "2P"]];
    for value in values {
        for ending in [Ok(()), Err(Failure::Down)] {
            let shop = Shop::open(&server().url()).await;
            let mut place = String::new();
            let answer = shop
                .pay_by("a", async |_| {
                    place = shop.record(server());
                    server().cli(&["DEL", &place]);
                    server().cli(&[value[0], &place, value[1]]);
                    ending.clone()
                })
                .await;
            assert_eq!(answer.map(|_| ()), ending, "the caller gets its answer");
            assert_eq!(shop.events.count("unsaved"), ending.iter().count());
            assert_left_alone(&shop, &place).await;
        }
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_decoded_is_kept_and_not_run_again() {
    for body in [
        &b"{\"memo\":\"payload-marker\""[..],
        b"\"payload-marker\"",
        b"",
        b"{}",
    ] {
        let (shop, name, mut record) = with_a_record().await;
        record.truncate(56);
        record.extend_from_slice(body);
        set(&name, &record);
        let before = dump(&name);
        for _ in 0..2 {
            let error = shop.pay("a").await.unwrap_err().refused();
            assert_eq!(error.kind(), &ErrorKind::Undecodable, "{error}");
        }
        assert_eq!(shop.runs(), 1);
        assert_eq!(dump(&name), before);
    }
}

/// Bytes that the server has sent so far.
fn sent(server: &RedisServer) -> u64 {
    let stats = server.cli(&["INFO", "stats"]);
    let sent = stats
        .lines()
        .find_map(|line| line.strip_prefix("total_net_output_bytes:"));
    sent.expect("a server counts").trim().parse().unwrap()
}

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
    // The first plain claim fetches the record, because its size is unknown; no later one does.
    let first = sent(&server);
    for _ in 0..10 {
        assert_refused(
            store
                .claim(&key, &requests[0], &unhurried())
                .await
                .unwrap_err(),
        );
    }
    let begun = sent(&server);
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
    let fetched = sent(&server) - begun;
    assert!(fetched < 100_000, "{fetched} bytes were fetched");
    assert_eq!(server.cli(&["STRLEN", &name]), LARGE.to_string());
}

#[tokio::test]
async fn an_answer_beyond_the_read_limit_is_not_written() {
    let limited = |store: RedisStoreBuilder| store.max_record_bytes(10_000);
    let shop = Shop::open_with(&server().url(), limited, |engine| engine).await;
    let pay = || shop.pay_with_memo("a", 1, "m".repeat(20_000), async |_| Ok(()));
    assert_eq!(pay().await.unwrap().run, 1);
    let error = pay().await.unwrap_err().refused();
    assert_eq!(error.kind(), &ErrorKind::NotStored);
    assert_eq!(shop.runs(), 1);
}

/// A release in the last half-millisecond of a record must not lose the expiry with its state.
#[tokio::test]
async fn releases_keep_the_expiry_of_a_record() {
    let oldest = RedisServer::builder().version(Edition::Redis62);
    for server in [oldest.start(), RedisServer::start()] {
        let store = connect(server.url()).await.unwrap();
        for number in 0..200 {
            let (key, mut claim) = (crate::key(number), asks(Owner::random()));
            (claim.lease, claim.retain) = (Duration::from_millis(4), Duration::from_millis(8));
            store.claim(&key, &claim, &unhurried()).await.unwrap();
            // The server rounds what is left to the millisecond.
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
