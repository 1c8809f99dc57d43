//! Records larger than a store's read limit are refused without being fetched.

use bytes::Bytes;
use idem_runtime::store::StoreErrorKind::TooLarge;
use idem_runtime::store::{Fence, Header, OutcomeKind, State};

use crate::prelude::*;

on_each_database!(
    a_record_beyond_the_limit_is_refused_and_kept,
    an_expired_record_beyond_the_limit_is_replaced;
    a_record_beyond_the_limit_is_not_sent
);

const LIMIT: usize = 10_000;
const KEY: u64 = 7;

/// SQL that makes each answer 15 MB long, which no server refuses by default.
fn large<B: Kind>() -> &'static str {
    match std::any::type_name::<B>().rsplit("::").next() {
        Some("Sqlite") => "UPDATE idem_records SET state = 'D', body = zeroblob(15000000)",
        Some("Postgres") => {
            "UPDATE idem_records SET state = 'D', body = decode(repeat('5a', 15000000), 'hex')"
        }
        _ => "UPDATE idem_records SET state = 'D', body = REPEAT('Z', 15000000)",
    }
}

/// A finished record of another owner than the stored one.
fn answer() -> Bytes {
    let header = Header::new(
        State::Done {
            outcome: OutcomeKind::Value,
            schema: 1,
        },
        Owner::random(),
        Fence::new(1),
        Duration::from_hours(1),
    );
    header.encode().to_vec().into()
}

/// Each command on the record reports its size.
async fn assert_refused<B: Kind>(narrow: &SqlStore<B>) {
    let parts = [
        "the record has 15000056 bytes",
        "`max_record_bytes` is 10000",
    ];
    for _ in 0..3 {
        assert_says(claim_of(narrow, KEY).await, TooLarge, &parts);
    }
    assert_says(narrow.read(&elsewhere(KEY)).await, TooLarge, &parts);
    assert_says(narrow.poll(&elsewhere(KEY)).await, TooLarge, &parts);
    let completed = narrow.complete(&elsewhere(KEY), &answer()).await;
    assert_says(completed, TooLarge, &parts);
}

async fn planted<B: Kind>(test_database: &TestDatabase) -> SqlStore<B> {
    let wide = open::<B>(&test_database.url).await;
    let claim = claim_of(&wide, KEY).await.unwrap();
    assert!(matches!(claim, ClaimReply::Granted { .. }), "{claim:?}");
    test_database.sql(large::<B>()).await;
    wide
}

async fn a_record_beyond_the_limit_is_refused_and_kept<B: Kind>() {
    let test_database = B::test_database();
    let wide = planted::<B>(&test_database).await;
    let narrow = open_with::<B>(&test_database.url, |store| store.max_record_bytes(LIMIT)).await;
    assert_eq!(narrow.max_record_bytes(), Some(LIMIT));
    assert_refused(&narrow).await;
    let ReadReply::Found { record, .. } = wide.read(&elsewhere(KEY)).await.unwrap() else {
        panic!("it is kept")
    };
    assert_eq!(record.body().len(), 15_000_000);
}

async fn an_expired_record_beyond_the_limit_is_replaced<B: Kind>() {
    let test_database = B::test_database();
    planted::<B>(&test_database).await;
    test_database
        .sql("UPDATE idem_records SET expires_us = 1")
        .await;
    let narrow = open_with::<B>(&test_database.url, |store| store.max_record_bytes(LIMIT)).await;
    assert_eq!(
        narrow.read(&elsewhere(KEY)).await.unwrap(),
        ReadReply::Absent
    );
    let claim = claim_of(&narrow, KEY).await.unwrap();
    assert!(matches!(claim, ClaimReply::Granted { .. }), "{claim:?}");
}

async fn a_record_beyond_the_limit_is_not_sent<B: Server>() {
    let server = B::serve(&[]);
    let wide = open::<B>(&server.url()).await;
    claim_of(&wide, KEY).await.unwrap();
    server.execute(large::<B>());
    let proxy = TcpProxy::start(server.addr());
    let url = server.url_at(proxy.addr());
    let narrow = open_with::<B>(&url, |store| store.max_record_bytes(LIMIT)).await;
    assert_refused(&narrow).await;
    let sent = proxy.stats().returned_bytes;
    assert!(sent < 100_000, "{sent} bytes came");
}
