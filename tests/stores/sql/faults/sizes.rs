//! Records larger than a store's read limit are refused without being fetched.

use idem_runtime::store::OutcomeKind;
use idem_runtime::store::StoreErrorKind::TooLarge;
use idem_tests::claims::{finished, granted};

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
