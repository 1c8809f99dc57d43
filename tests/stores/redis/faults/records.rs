//! The value under a key: foreign values, damaged records, large ones.

use std::sync::OnceLock;

use bytes::Bytes;
use idem_runtime::store::{Fence, Header, OutcomeKind, ReadReply, Remains, State, StoreError};
use idem_runtime::{ErrorKind, key::KeyDigest};
use idem_tests::shop::assert_contains;

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

#[tokio::test]
async fn values_of_another_type_are_left_alone() {
    for value in [
        ["RPUSH", "2P", "payload-marker"],
        ["HSET", "field", "payload-marker"],
        ["SADD", "2D", "payload-marker"],
        ["ZADD", "1", "payload-marker"],
        ["XADD", "*", "payload-marker value"],
    ] {
        let (shop, name, _) = with_a_record().await;
        server().cli(&["DEL", &name]);
        let [command, rest @ ..] = value;
        let mut words = vec![command, &*name];
        words.extend(rest.iter().flat_map(|word| word.split(' ')));
        server().cli(&words);
        assert_left_alone(&shop, &name).await;
    }
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
async fn an_answer_without_an_expiry_is_given_and_left_alone() {
    let (shop, name, _) = with_a_record().await;
    server().cli(&["PERSIST", &name]);
    let before = dump(&name);
    shop.pay("a").await.unwrap();
    assert_eq!(shop.runs(), 1);
    assert_eq!(dump(&name), before);
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

#[tokio::test]
async fn answers_of_any_size_are_replayed() {
    let shop = Shop::open(&server().url()).await;
    // Around the 8 KiB that a script returns, and far beyond.
    let sizes = (8_000..8_250).step_by(10).chain([9_000, 200 << 10]);
    for size in sizes {
        let key = size.to_string();
        let pay = || shop.pay_with_memo(&key, 1, "m".repeat(size), async |_| Ok(()));
        let first = pay().await.unwrap();
        assert_eq!(first.memo.len(), size);
        assert_eq!(pay().await, Ok(first));
    }
}

#[tokio::test]
async fn an_overtaken_call_adopts_a_large_answer() {
    let shop = Shop::open(&server().url()).await;
    let minute = Duration::from_mins(1);
    let memo = "m".repeat(200 << 10);
    let mut winner = None;
    let answer = shop
        .pay_by("a", async |_| {
            shop.advance(server(), minute);
            let other = shop.pay_with_memo("a", 1, memo, async |_| Ok(()));
            winner = Some(other.await);
            Ok(())
        })
        .await;
    assert_eq!(Some(answer), winner);
    assert_eq!(shop.events.count("adopted"), 1);
}

#[tokio::test]
async fn a_record_beyond_the_limit_is_refused_and_kept() {
    // Written by a process with another limit.
    let wide = Shop::open(&server().url()).await;
    let first = wide.pay_with_memo("a", 1, "m".repeat(20_000), async |_| Ok(()));
    let first = first.await;
    let store = patient(RedisStore::builder(server().url())).max_record_bytes(10_000);
    let store = store.connect().await.unwrap();
    let narrow = Shop::with_prefix(wide.prefix(), store, |engine| engine);
    let name = wide.record(server());
    let before = dump(&name);
    let error = narrow.pay("a").await.unwrap_err().refused();
    assert_eq!(error.kind(), &ErrorKind::TooLarge);
    assert_contains(&error, "`max_record_bytes` is 10000");
    assert_eq!((wide.runs(), narrow.runs()), (1, 0));
    assert_eq!(dump(&name), before);
    let replay = wide.pay_with_memo("a", 1, String::new(), async |_| Ok(()));
    assert_eq!(replay.await, first);
}

#[tokio::test]
async fn a_waiting_call_does_not_fetch_a_record_beyond_the_limit() {
    let shop = Shop::open(&server().url()).await;
    let memo = "m".repeat(20_000);
    shop.pay_with_memo("a", 1, memo, async |_| Ok(()))
        .await
        .unwrap();
    let Reply::Bulk(record) = server().reply(&["GET", &shop.record(server())]) else {
        panic!("a record is a string");
    };
    let operation = Operation::new("shop.look");
    let key = RecordKey::new(
        shop.prefix().into(),
        operation,
        KeyDigest::from_bytes([7; 32]),
    );
    set(&key.name(), &record);
    let limited = async |limit| {
        let store = patient(RedisStore::builder(server().url())).max_record_bytes(limit);
        store.connect().await.unwrap()
    };
    let just = limited(record.len()).await.poll(&key).await.unwrap();
    let ReadReply::Found { record: found, .. } = just else {
        panic!("there is a record: {just:?}");
    };
    assert_eq!(found.as_bytes(), record);
    let narrow = limited(record.len() - 1).await;
    let error = narrow.poll(&key).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::TooLarge);
    assert_contains(&error, "`max_record_bytes` is");
}

/// Bytes that the server has sent so far.
fn sent(server: &RedisServer) -> u64 {
    let stats = server.cli(&["INFO", "stats"]);
    let sent = stats
        .lines()
        .find_map(|line| line.strip_prefix("total_net_output_bytes:"));
    sent.expect("a server counts").trim().parse().unwrap()
}

/// A writer of Redis plants a record of 64 MB.
#[tokio::test]
async fn a_record_beyond_the_limit_is_not_fetched() {
    const LARGE: usize = 64 << 20;
    let server = RedisServer::start();
    let store = patient(RedisStore::builder(server.url())).max_record_bytes(10_000);
    let store = store.connect().await.unwrap();
    let digest = KeyDigest::from_bytes([7; 32]);
    let key = RecordKey::new("planted".into(), Operation::new("shop.look"), digest);
    let done = |number| {
        Header::new(
            State::Done {
                outcome: OutcomeKind::Value,
                schema: 1,
            },
            Owner::from_bytes([number; 16]),
            Fence::new(1),
            Duration::from_hours(1),
        )
    };
    let ask = |dated| {
        let mut ask = ClaimRequest::new(
            Owner::random(),
            Duration::from_secs(30),
            Duration::from_hours(1),
        );
        ask.dated = dated;
        ask
    };
    let name = key.name();
    let header = done(1).encode();
    let command: [&[u8]; 4] = [b"SETRANGE", name.as_bytes(), b"0", &header];
    server.cli(&command);
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
        assert_refused(store.claim(&key, &ask(false)).await.unwrap_err());
    }
    let begun = sent(&server);
    assert!(
        begun - first < 3 * LARGE as u64 / 2,
        "{} bytes",
        begun - first
    );
    for _ in 0..3 {
        assert_refused(store.claim(&key, &ask(false)).await.unwrap_err());
        assert_refused(store.claim(&key, &ask(true)).await.unwrap_err());
        assert_refused(store.read(&key).await.unwrap_err());
        assert_refused(store.poll(&key).await.unwrap_err());
        let other = Bytes::copy_from_slice(&done(2).encode());
        assert_refused(store.complete(&key, &other).await.unwrap_err());
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

#[tokio::test]
async fn engines_of_one_prefix_share_their_records_and_others_do_not() {
    let shop = Shop::open(&server().url()).await;
    let beside = shop.beside_hasty(&server().url()).await;
    let elsewhere = Shop::open(&server().url()).await;
    // A longer prefix that starts with this one is a different prefix.
    let store = connect(server().url()).await.unwrap();
    let longer = Shop::with_prefix(&format!("{}:x", shop.prefix()), store, |engine| engine);
    let answer = shop.pay("a").await;
    assert_eq!(beside.pay("a").await, answer);
    assert_ne!(elsewhere.pay("a").await, answer);
    assert_ne!(longer.pay("a").await, answer);
    let runs = [&shop, &beside, &elsewhere, &longer].map(Shop::runs);
    assert_eq!(runs, [1, 0, 1, 1]);
}

/// Releases in the last half-millisecond of a record, whose expiry must not be lost with its state.
async fn releases_keep_the_expiry_of_a_record(server: RedisServer) {
    let store = connect(server.url()).await.unwrap();
    for number in 0..400 {
        let mut claim = asks(Owner::random());
        claim.lease = Duration::from_millis(4);
        claim.retain = Duration::from_millis(8);
        let key = crate::key(number);
        let began = Instant::now();
        store.claim(&key, &claim).await.unwrap();
        let late = Duration::from_micros(7_500 + 5 * u64::try_from(number).unwrap());
        while began.elapsed() < late {
            std::hint::spin_loop();
        }
        let _ = store.release(&key, &claim.owner, Remains::Request).await;
    }
    let names = server.cli(&["KEYS", "idem:*"]);
    let endless: Vec<_> = names
        .split_whitespace()
        .filter(|name| server.cli(&["PTTL", name]) == "-1")
        .collect();
    assert!(endless.is_empty(), "{} records never expire", endless.len());
}

#[tokio::test]
async fn releases_keep_the_expiry_of_a_record_on_redis_6() {
    let server = RedisServer::builder().version(Edition::Redis62);
    releases_keep_the_expiry_of_a_record(server.start()).await;
}

#[tokio::test]
async fn releases_keep_the_expiry_of_a_record_on_redis_7() {
    releases_keep_the_expiry_of_a_record(RedisServer::start()).await;
}
