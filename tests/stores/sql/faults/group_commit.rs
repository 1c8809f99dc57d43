//! Concurrent writes to a file: one commit for all, and no reply before that commit.

use std::pin::pin;

use idem_runtime::key::{KeyBuilder, Operation};
use idem_runtime::store::{
    ClaimRequest, CompleteReply, Header, OutcomeKind, RecordKey, State, StoreError,
};
use idem_tests::shop::PATIENCE;

use crate::prelude::*;

/// A record key whose commit the file refuses; see [`spoil`].
fn spoilt(number: u64) -> RecordKey {
    let digest = KeyBuilder::new("spoilt", 64).key(&number).unwrap();
    RecordKey::new("fixture".into(), Operation::new("spoilt"), digest)
}

fn request() -> ClaimRequest {
    asks(Owner::random())
}

type Claimed = (RecordKey, ClaimRequest, Result<ClaimReply, StoreError>);

/// A store that has seen so many new keys that it inserts without a read first.
async fn warm(test_database: &TestDatabase) -> SqliteStore {
    let store = open::<Sqlite>(&test_database.url).await;
    let claims: JoinSet<_> = (1_000..1_200)
        .map(|number| {
            let store = store.clone();
            async move { store.claim(&elsewhere(number), &request()).await.unwrap() }
        })
        .collect();
    claims.join_all().await;
    test_database.sql("DELETE FROM idem_records").await;
    store
}

/// Queues one claim per key while another connection holds the file, then lets the file go.
async fn all_at_once(
    test_database: &TestDatabase,
    store: &SqliteStore,
    keys: impl Iterator<Item = RecordKey>,
) -> Vec<Claimed> {
    let held = Sqlite::hold(&test_database.url).await;
    let mut claims: Vec<_> = keys
        .map(|key| {
            let store = store.clone();
            Box::pin(async move {
                let request = request();
                let reply = store.claim(&key, &request).await;
                (key, request, reply)
            })
        })
        .collect();
    let begun = poll_fn(|cx| {
        for claim in &mut claims {
            assert!(claim.as_mut().poll(cx).is_pending(), "the file is held");
        }
        Poll::Ready(())
    });
    begun.await;
    let claims: Vec<_> = claims.into_iter().map(tokio::spawn).collect();
    drop(held);
    let mut told = Vec::new();
    for claim in claims {
        told.push(patiently("all are told", claim).await.unwrap());
    }
    told
}

/// How many transactions the log of the file holds.
fn commits(test_database: &TestDatabase) -> usize {
    let file = test_database.url.strip_prefix("sqlite:").unwrap();
    let log = std::fs::read(format!("{file}-wal")).unwrap();
    let number = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().unwrap());
    // https://sqlite.org/fileformat2.html#the_write_ahead_log
    let frame = 24 + usize::try_from(number(8)).unwrap();
    let frames = (32..=log.len() - frame).step_by(frame);
    let of_now = frames.take_while(|at| log[at + 8..at + 16] == log[16..24]);
    of_now.filter(|at| number(at + 4) != 0).count()
}

fn granted(claimed: &Claimed) -> bool {
    matches!(claimed.2, Ok(ClaimReply::Granted { .. }))
}

/// Owners of the claims in the file.
async fn holders(test_database: &TestDatabase) -> String {
    let owners = "SELECT coalesce(group_concat(hex(owner), ' '), '') FROM idem_records";
    test_database.sql(owners).await
}

fn digits(owner: &Owner) -> String {
    let digit = |byte: &u8| format!("{byte:02X}");
    owner.as_bytes().iter().map(digit).collect()
}

/// Panics unless exactly the owners recorded in the file were granted their claims.
async fn assert_report(test_database: &TestDatabase, claims: &[Claimed]) {
    let there = holders(test_database).await;
    for claim in claims {
        let has = there.contains(&digits(&claim.1.owner));
        assert_eq!(granted(claim), has, "{:?}", claim.2);
    }
}

/// From now on no transaction with a record of this operation can be committed; only the commit itself fails.
async fn spoil(test_database: &TestDatabase) {
    test_database
        .sql("CREATE TABLE parents (id INTEGER PRIMARY KEY)")
        .await;
    test_database
        .sql("CREATE TABLE children (id INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED)")
        .await;
    test_database
        .sql(
            "CREATE TRIGGER spoils AFTER INSERT ON idem_records WHEN new.op = 'spoilt' \
         BEGIN INSERT INTO children VALUES (1); END",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_are_one_commit() {
    let test_database = Sqlite::test_database();
    let store = warm(&test_database).await;
    let before = commits(&test_database);
    let claims = all_at_once(&test_database, &store, (0..200).map(elsewhere)).await;
    assert!(claims.iter().all(granted));
    assert_report(&test_database, &claims).await;
    // The first claim is committed alone; claims that arrive while the group waits for the file follow it.
    let claimed = commits(&test_database) - before;
    assert!((1..=3).contains(&claimed), "{claimed} commits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_go_together_and_each_is_its_own() {
    let test_database = Sqlite::test_database();
    let store = warm(&test_database).await;
    let claims = all_at_once(&test_database, &store, (0..100).map(elsewhere)).await;
    let held = Sqlite::hold(&test_database.url).await;
    let mut completions: Vec<_> = claims
        .into_iter()
        .enumerate()
        .map(|(number, (key, request, reply))| {
            let Ok(ClaimReply::Granted { fence, .. }) = reply else {
                panic!("{reply:?}");
            };
            // One completion carries a wrong owner.
            let owner = if number == 50 {
                Owner::random()
            } else {
                request.owner
            };
            let mut done = Header::new(
                State::Done {
                    outcome: OutcomeKind::Error,
                    schema: 0,
                },
                owner,
                fence,
                request.retain,
            );
            done.fingerprint = request.fingerprint;
            let mut record = done.encode().to_vec();
            record.extend(number.to_string().bytes());
            let store = store.clone();
            Box::pin(async move { store.complete(&key, &record.into()).await })
        })
        .collect();
    let begun = poll_fn(|cx| {
        for completion in &mut completions {
            assert!(completion.as_mut().poll(cx).is_pending());
        }
        Poll::Ready(())
    });
    begun.await;
    drop(held);
    for (number, completion) in completions.into_iter().enumerate() {
        let reply = patiently("it is told", completion).await.unwrap();
        match reply {
            CompleteReply::Stored { late: false } => assert_ne!(number, 50),
            CompleteReply::Superseded { .. } => assert_eq!(number, 50),
            other => panic!("{other:?}"),
        }
    }
    for number in 0..100 {
        let reply = store.claim(&elsewhere(number), &request()).await.unwrap();
        match reply {
            ClaimReply::Done { record, .. } => {
                assert_eq!(record.body(), number.to_string().as_bytes());
            }
            other => assert_eq!(number, 50, "{other:?}"),
        }
    }
}

/// Includes a claim committed alone, whose row exists before its commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_commit_fails_is_not_granted() {
    let test_database = Sqlite::test_database();
    let store = warm(&test_database).await;
    spoil(&test_database).await;
    let reply = store.claim(&spoilt(0), &request()).await;
    assert!(reply.is_err(), "{reply:?}");
    let claims = all_at_once(&test_database, &store, (0..50).map(spoilt)).await;
    assert!(!claims.iter().any(granted));
    assert_eq!(holders(&test_database).await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_spoils_the_commit_does_not_spoil_the_others() {
    let test_database = Sqlite::test_database();
    let store = warm(&test_database).await;
    spoil(&test_database).await;
    let keys = (0..50).map(|number| match number {
        20 => spoilt(number),
        _ => elsewhere(number),
    });
    let claims = all_at_once(&test_database, &store, keys).await;
    assert_eq!(claims.iter().filter(|claim| granted(claim)).count(), 49);
    assert_report(&test_database, &claims).await;
}

/// A claim of an existing record, queued among claims of absent ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_meets_a_record_does_not_keep_the_others() {
    let test_database = Sqlite::test_database();
    let store = warm(&test_database).await;
    let there = async |key| store.claim(&key, &request()).await.unwrap();
    there(elsewhere(7)).await;
    let keys = (0..60).map(elsewhere).chain((0..3).map(elsewhere));
    let claims = all_at_once(&test_database, &store, keys).await;
    assert_eq!(claims.iter().filter(|claim| granted(claim)).count(), 59);
    assert_report(&test_database, &claims).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_fills_up_within_a_group_stores_the_claims_that_fit() {
    use std::str::FromStr as _;
    let test_database = Sqlite::test_database();
    drop(open::<Sqlite>(&test_database.url).await);
    let pages: u32 = test_database
        .sql("PRAGMA page_count")
        .await
        .parse()
        .unwrap();
    let options = sqlx::sqlite::SqliteConnectOptions::from_str(&test_database.url).unwrap();
    let options = options.pragma("max_page_count", (pages + 6).to_string());
    let source = SqlSource::options(options);
    let store = SqliteStore::builder(source).response_timeout(PATIENCE);
    let store = store.connect().await.unwrap();
    let claims = all_at_once(&test_database, &store, (0..200).map(elsewhere)).await;
    assert_report(&test_database, &claims).await;
    let (granted, refused): (Vec<_>, Vec<_>) = claims.into_iter().partition(granted);
    assert!(!granted.is_empty() && !refused.is_empty());
    for (_, _, reply) in refused {
        let full = idem_runtime::store::StoreErrorKind::Full;
        assert_says(reply, full, &["a claim", "room"]);
    }
    test_database.sql("DELETE FROM idem_records").await;
    let more = store.claim(&elsewhere(1_000), &request()).await.unwrap();
    assert!(matches!(more, ClaimReply::Granted { .. }), "{more:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_leaves_the_queue_blocks_no_other() {
    let test_database = Sqlite::test_database();
    let store = warm(&test_database).await;
    let held = Sqlite::hold(&test_database.url).await;
    let requests: Vec<_> = (0..40)
        .map(|number| (elsewhere(number), request()))
        .collect();
    let mut claims: Vec<_> = requests
        .iter()
        .map(|(key, request)| Some(store.claim(key, request)))
        .collect();
    let begun = poll_fn(|cx| {
        for claim in claims.iter_mut().flatten() {
            assert!(pin!(claim).poll(cx).is_pending());
        }
        Poll::Ready(())
    });
    begun.await;
    // The first claim, which was sent alone, and every other one.
    for left in claims.iter_mut().step_by(2) {
        drop(left.take());
    }
    drop(held);
    for claim in claims.into_iter().flatten() {
        let reply = patiently("it is told", claim).await.unwrap();
        assert!(matches!(reply, ClaimReply::Granted { .. }), "{reply:?}");
    }
    // Their owners may claim again, and have one attempt each.
    for (key, request) in &requests {
        let reply = store.claim(key, request).await.unwrap();
        assert!(
            matches!(reply, ClaimReply::Granted { attempt: 1, .. }),
            "{reply:?}"
        );
    }
}

/// A claim that was sent alone, and whose caller does not poll for its reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_stalls_delays_no_other() {
    let test_database = Sqlite::test_database();
    let store = warm(&test_database).await;
    // Or the store's thread may reply before the first poll ends.
    let held = Sqlite::hold(&test_database.url).await;
    let (key, request) = (elsewhere(0), request());
    let mut still = store.claim(&key, &request);
    poll_fn(|cx| {
        assert!(pin!(&mut still).poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    drop(held);
    for number in 1..20 {
        let request = self::request();
        let key = elsewhere(number);
        let claim = store.claim(&key, &request);
        let reply = patiently("it is told", claim).await.unwrap();
        assert!(matches!(reply, ClaimReply::Granted { .. }), "{reply:?}");
    }
    let reply = still.await.unwrap();
    assert!(matches!(reply, ClaimReply::Granted { .. }), "{reply:?}");
}

/// The store's thread has the file open, and closes it when it ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_thread_ends_with_the_store() {
    let test_database = Sqlite::test_database();
    let store = warm(&test_database).await;
    let file = test_database.url.strip_prefix("sqlite:").unwrap();
    let open = || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let open = open.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
        open.filter(|path| path.as_os_str() == file).count()
    };
    assert!(open() > 1);
    drop(store);
    patiently("the file is closed", async {
        while open() > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
