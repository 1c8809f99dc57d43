//! Those who read together do each other no harm.

use std::time::Duration;

use idem_harness::TcpProxy;
use idem_runtime::Fingerprint;
use idem_runtime::store::sql::{Postgres, SqlStore, Sqlite};
use idem_runtime::store::{ClaimReply, ClaimRequest, Owner, ReadReply, Store, StoreError};
use idem_tests::shop::patiently;
use tokio::task::JoinSet;

use crate::home::{Kind, Server, open};
use crate::till::elsewhere;

/// As many as go together, and some more.
const KEYS: u64 = 80;

async fn claimed<B: Kind>(store: &SqlStore<B>) {
    for number in 0..KEYS {
        let request = ClaimRequest {
            owner: Owner::from_bytes(owner(number)),
            fingerprint: Fingerprint::NONE,
            lease: Duration::from_mins(1),
            retain: Duration::from_mins(2),
            max_attempts: None,
            reconciles: false,
            starts: false,
            dated: true,
        };
        let claim = store.claim(&elsewhere(number), &request).await.unwrap();
        assert!(matches!(claim, ClaimReply::Granted { .. }), "{claim:?}");
    }
}

fn owner(number: u64) -> [u8; 16] {
    u128::from(number + 1).to_be_bytes()
}

/// What each who reads at once is told.
async fn told<B: Kind>(store: &SqlStore<B>) -> Vec<(u64, Result<ReadReply, StoreError>)> {
    let mut reading = JoinSet::new();
    for number in 0..KEYS {
        let store = store.clone();
        reading.spawn(async move { (number, store.read(&elsewhere(number)).await) });
    }
    patiently("all have read", reading.join_all()).await
}

fn assert_its_own(number: u64, reply: Result<ReadReply, StoreError>) {
    match reply {
        Ok(ReadReply::Found { record, .. }) => {
            assert_eq!(*record.header.owner.as_bytes(), owner(number));
        }
        other => panic!("{number}: {other:?}"),
    }
}

/// Any column of SQLite holds any type.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_record_is_the_trouble_of_who_asks_for_it() {
    let home = Sqlite::home();
    let store = open::<Sqlite>(&home.url).await;
    claimed(&store).await;
    let last = u128::from(KEYS);
    home.sql(&format!(
        "UPDATE idem_records SET detail = 'damaged' WHERE owner = x'{last:032x}'"
    ))
    .await;
    for _ in 0..20 {
        for (number, reply) in told(&store).await {
            if number + 1 == KEYS {
                assert!(reply.is_err(), "{reply:?}");
            } else {
                assert_its_own(number, reply);
            }
        }
    }
}

/// At such a distance a reply to whoever takes others along comes when those have waited for two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_taken_along_waits_for_that_reply() {
    let server = Postgres::serve(&[("log_statement", "all")]);
    let proxy = TcpProxy::start(server.addr());
    let store = open::<Postgres>(&server.url_at(proxy.addr())).await;
    claimed(&store).await;
    let reads = || {
        let log = server.log();
        let lines = log.lines().filter(|line| line.contains(" execute "));
        lines.filter(|line| line.contains("SELECT")).count()
    };
    // Its connections are made, and its statements prepared.
    told(&store).await;
    let before = reads();
    proxy.delay(Duration::from_millis(150));
    for (number, reply) in told(&store).await {
        assert_its_own(number, reply);
    }
    let sent = reads() - before;
    assert!(sent < 20, "{sent} statements for {KEYS} reads");
}
