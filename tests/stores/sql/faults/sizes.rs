//! Records larger than a store's read limit are refused without being fetched.

use idem_runtime::store::OutcomeKind;
use idem_runtime::store::StoreErrorKind::TooLarge;
use idem_tests::claims::{finished, granted};
use idem_tests::shop::happened;

use super::prelude::*;

on_each_database!(a_record_beyond_the_limit_is_not_sent);

const LIMIT: usize = 10_000;
const KEY: u64 = 7;

/// Each command on it reports its size. It is kept until it expires.
async fn a_record_beyond_the_limit_is_not_sent<B: Database>() {
    let (test_database, wide) = opened::<B>().await;
    let claimed = claim_of(&wide, KEY).await.unwrap();
    let other = granted(&asks(Owner::random()), &claimed);
    let large = format!("UPDATE idem_records SET state = 'D', body = {}", B::LARGE);
    test_database.sql(&large).await;
    let mut url = test_database.url.clone();
    let proxy = B::shared().map(|server| {
        let proxy = TcpProxy::start(server.addr());
        url = url.replace(&server.addr().to_string(), &proxy.addr().to_string());
        proxy
    });
    let narrow = open_with::<B>(&url, |store| store.max_record_bytes(LIMIT)).await;
    assert_eq!(narrow.max_record_bytes(), Some(LIMIT));
    let parts = [
        "the record has 15000056 bytes",
        "`max_record_bytes` is 10000",
    ];
    let key = elsewhere(KEY);
    for _ in 0..3 {
        assert_says(claim_of(&narrow, KEY).await, TooLarge, &parts);
    }
    assert_says(narrow.read(&key).await, TooLarge, &parts);
    assert_says(narrow.poll(&key).await, TooLarge, &parts);
    let answer = finished(&other, OutcomeKind::Value, b"");
    let completed = narrow.complete(&key, None, &answer).await;
    assert_says(completed, TooLarge, &parts);
    if let Some(proxy) = &proxy {
        let sent = proxy.stats().returned_bytes;
        assert!(sent < 100_000, "{sent} bytes came");
    }
    let ReadReply::Found { record, .. } = wide.read(&key).await.unwrap() else {
        panic!("it is kept")
    };
    assert_eq!(record.body().len(), 15_000_000);
    let expires = "UPDATE idem_records SET expires_us = 1";
    test_database.sql(expires).await;
    assert_eq!(narrow.read(&key).await.unwrap(), ReadReply::Absent);
    let claimed = claim_of(&narrow, KEY).await.unwrap();
    assert!(matches!(claimed, ClaimReply::Granted { .. }), "{claimed:?}");
}

/// The server refuses a longer completion at each attempt: the body would run again after the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_beyond_a_lowered_limit_of_the_server_leaves_a_tombstone() {
    for bytes in [1_100_000, 15_000_000] {
        let server = MySql::serve(&[]);
        let store = open::<MySql>(&server.password_url()).await;
        let fixture = Fixture::with(&store, |engine| engine.max_value_bytes(LIMIT * 2_000));
        let call = || fixture.engine.operation("large").key(&bytes);
        let large = "z".repeat(bytes);
        let body = async |_| {
            server.execute("SET GLOBAL max_allowed_packet = 1048576");
            server.execute("KILL USER app");
            Ok(large.clone())
        };
        let answer: Result<String, Error> = call().run(body).await;
        assert!(answer.is_ok_and(|answer| answer == large), "{bytes}");
        happened(&fixture.events, "completed tombstone", 1).await;
        let unsaved = fixture.events.count("unsaved: it is larger than 10");
        assert_eq!(unsaved, 1, "{:?}", fixture.events.all());
        let again: Result<String, Error> = call().run(async |_| unreachable!("answered")).await;
        assert_eq!(again.unwrap_err().kind(), &ErrorKind::NotStored, "{bytes}");
        // Connections of before the change, and shorter answers.
        fixture.pay("a").await.unwrap();
    }
}
