//! Many requests at once: one statement or commit serves several of them, and each request gets its own outcome.

use std::future::ready;
use std::pin::Pin;

use idem_runtime::store::OutcomeKind;
use idem_runtime::store::author::CompleteReply;
use idem_tests::claims::{finished, granted, unhurried};

use super::prelude::*;

on_each_database!(
    each_request_gets_its_own_outcome,
    a_caller_that_is_dropped_cancels_no_other,
    a_bad_record_harms_no_other_request,
);
on_each_server!(
    a_record_of_an_open_transaction_delays_no_other_claim,
    each_key_is_granted_once_whatever_the_order,
);

/// More requests than one statement has.
const CROWD: u64 = 150;

/// A request of a store.
pub(crate) type Request<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// A store with two connections, for claims and endings: most requests wait; and that has seen so many new keys that it
/// inserts without a read first.
pub(crate) async fn narrow<B: Database>(test_database: &TestDatabase) -> SqlStore<B> {
    let store = open_with::<B>(&test_database.url, |store| store.connections(2)).await;
    let claims = (1_000..1_200).map(|number| claiming(&store, &elsewhere(number), Owner::random()));
    for reply in replies(sent(claims).await).await {
        reply.unwrap();
    }
    test_database.sql("DELETE FROM idem_records").await;
    store
}

/// The owner of the claim of this number.
pub(crate) fn owner(number: u64) -> Owner {
    Owner::from_bytes(u128::from(number + 1).to_be_bytes())
}

pub(crate) fn claiming<B: Database>(
    store: &SqlStore<B>,
    key: &RecordKey,
    owner: Owner,
) -> Request<ClaimReply> {
    let (store, key) = (store.clone(), key.clone());
    Box::pin(async move { store.claim(&key, &asks(owner), &unhurried()).await })
}

fn reading<B: Database>(store: &SqlStore<B>, number: u64) -> Request<ReadReply> {
    let store = store.clone();
    Box::pin(async move { store.read(&elsewhere(number)).await })
}

/// The requests after one poll of each: all are sent or queued.
pub(crate) async fn sent<T: Send + 'static>(
    requests: impl IntoIterator<Item = Request<T>>,
) -> Vec<Request<T>> {
    let mut requests: Vec<_> = requests.into_iter().collect();
    poll_fn(|cx| {
        for request in &mut requests {
            if let Poll::Ready(reply) = request.as_mut().poll(cx) {
                *request = Box::pin(ready(reply));
            }
        }
        Poll::Ready(())
    })
    .await;
    requests
}

/// Awaits the replies in tasks of their own.
pub(crate) async fn replies<T: Send + 'static>(
    sent: Vec<Request<T>>,
) -> Vec<Result<T, StoreError>> {
    let tasks: Vec<_> = sent.into_iter().map(tokio::spawn).collect();
    let mut replies = Vec::new();
    for task in tasks {
        replies.push(patiently("a request has its reply", task).await.unwrap());
    }
    replies
}

/// Sends one claim per key while another connection holds a file.
pub(crate) async fn claim_all<B: Database>(
    test_database: &TestDatabase,
    store: &SqlStore<B>,
    keys: impl Iterator<Item = RecordKey>,
) -> Vec<Result<ClaimReply, StoreError>> {
    let held = hold_file::<B>(test_database).await;
    let claims = (0..).zip(keys);
    let claims = claims.map(|(number, key)| claiming(store, &key, owner(number)));
    let claims = sent(claims).await;
    drop(held);
    replies(claims).await
}

/// Without it, the thread may reply to a write before the next.
pub(crate) async fn hold_file<B: Database>(test_database: &TestDatabase) -> Option<B::Conn> {
    if B::shared().is_some() {
        return None;
    }
    Some(B::hold(&test_database.url).await)
}

pub(crate) fn is_granted(reply: &Result<ClaimReply, StoreError>) -> bool {
    matches!(reply, Ok(ClaimReply::Granted { fresh: true, .. }))
}

async fn each_request_gets_its_own_outcome<B: Database>() {
    let test_database = TestDatabase::new::<B>();
    let store = narrow::<B>(&test_database).await;
    let answer = |number: u64| number.to_string().into_bytes();
    let claims = claim_all(&test_database, &store, (0..CROWD).map(elsewhere)).await;
    assert!(claims.iter().all(is_granted), "{claims:?}");
    // Every third key twice, and others that are absent.
    let numbers = (0..2 * CROWD).chain((0..CROWD).step_by(3));
    for _ in 0..20 {
        let reads = numbers.clone().map(|number| reading(&store, number));
        let reads = replies(sent(reads).await).await;
        for (number, reply) in numbers.clone().zip(reads) {
            let found = match reply.unwrap() {
                ReadReply::Absent => None,
                ReadReply::Found { record, .. } => Some(record.header.owner),
                other => panic!("{number}: {other:?}"),
            };
            assert_eq!(found, (number < CROWD).then(|| owner(number)));
        }
    }
    let held = hold_file::<B>(&test_database).await;
    // The owner of number 50 is another.
    let completions = (0..).zip(&claims).map(|(number, reply)| {
        let owner = owner(if number == 50 { 1_000 } else { number });
        let claim = granted(&asks(owner), reply.as_ref().unwrap());
        let record = finished(&claim, OutcomeKind::Value, &answer(number));
        let store = store.clone();
        let complete = async move { store.complete(&elsewhere(number), None, &record).await };
        Box::pin(complete) as Request<CompleteReply>
    });
    let completions = sent(completions).await;
    drop(held);
    for (number, reply) in (0..).zip(replies(completions).await) {
        match reply.unwrap() {
            CompleteReply::Stored { late: false } => assert_ne!(number, 50),
            CompleteReply::Superseded { .. } => assert_eq!(number, 50),
            other => panic!("{number}: {other:?}"),
        }
    }
    for (number, reply) in
        (0..).zip(claim_all(&test_database, &store, (0..CROWD).map(elsewhere)).await)
    {
        match reply.unwrap() {
            ClaimReply::Done { record, .. } => assert_eq!(record.body(), answer(number)),
            // The owner of this claim claims again.
            ClaimReply::Granted { attempt: 1, .. } => assert_eq!(number, 50),
            other => panic!("{number}: {other:?}"),
        }
    }
}

/// Callers that leave before the first reply, and after it. Then a statement for many has begun.
async fn a_caller_that_is_dropped_cancels_no_other<B: Database>() {
    let test_database = TestDatabase::new::<B>();
    let store = narrow::<B>(&test_database).await;
    let rounds = [1, 2, 3, 30, 64, 66].map(|leaving| [(leaving, false), (leaving, true)]);
    for (round, (leaving, late)) in (0..).zip(rounds.into_iter().flatten()) {
        let row = format!("{leaving} leave after a reply: {late}");
        let key = |number| elsewhere(round * CROWD + number);
        let held = hold_file::<B>(&test_database).await;
        let claims = (0..CROWD).map(|number| claiming(&store, &key(number), owner(number)));
        let mut claims = sent(claims).await;
        drop(held);
        if late {
            let first = replies(vec![claims.remove(0)]).await;
            assert!(is_granted(&first[0]), "{row}: {first:?}");
        }
        claims.drain(..leaving);
        for reply in replies(claims).await {
            assert!(is_granted(&reply), "{row}: {reply:?}");
        }
        // The owners that left may claim again, and have one attempt each.
        for number in 0..CROWD {
            let reply = claiming(&store, &key(number), owner(number)).await.unwrap();
            let same = matches!(reply, ClaimReply::Granted { attempt: 1, .. });
            assert!(same, "{row}, {number}: {reply:?}");
        }
    }
}

/// An unreadable record, one beyond the limit, and another owner's.
async fn a_bad_record_harms_no_other_request<B: Database>() {
    let test_database = TestDatabase::new::<B>();
    narrow::<B>(&test_database).await;
    let store = open_with::<B>(&test_database.url, |store| {
        store.connections(2).max_record_bytes(2 << 10)
    })
    .await;
    let life = Duration::from_mins(1);
    let (unreadable, large, taken) = (20, 70, 7);
    let key = elsewhere(unreadable);
    store.plant(&key, b"nonsense", life).await.unwrap();
    let claim = granted(&asks(owner(0)), &claim_of(&store, large).await.unwrap());
    let record = finished(&claim, OutcomeKind::Value, &[b'x'; 8 << 10]);
    store.plant(&elsewhere(large), &record, life).await.unwrap();
    claim_of(&store, taken).await.unwrap();
    let claims = claim_all(&test_database, &store, (0..CROWD).map(elsewhere)).await;
    let reads = (0..CROWD).map(|number| reading(&store, number));
    let reads = replies(sent(reads).await).await;
    for (number, (claim, read)) in (0..).zip(claims.into_iter().zip(reads)) {
        if number == unreadable {
            assert!(matches!(claim, Ok(ClaimReply::Unreadable(_))), "{claim:?}");
            assert!(matches!(read, Ok(ReadReply::Unreadable(_))), "{read:?}");
        } else if number == large {
            assert!(claim.is_err() && read.is_err(), "{claim:?}, {read:?}");
        } else {
            let runs = matches!(claim, Ok(ClaimReply::Running { .. }));
            assert!(
                is_granted(&claim) || runs && number == taken,
                "{number}: {claim:?}"
            );
            assert!(
                matches!(read, Ok(ReadReply::Found { .. })),
                "{number}: {read:?}"
            );
        }
    }
}

async fn a_record_of_an_open_transaction_delays_no_other_claim<B: Server>() {
    let test_database = TestDatabase::new::<B>();
    let store = narrow::<B>(&test_database).await;
    claim_of(&store, 75).await.unwrap();
    for sql in [
        "CREATE TABLE held AS SELECT * FROM idem_records",
        "DELETE FROM idem_records",
    ] {
        test_database.sql(sql).await;
    }
    // As a call in a transaction does.
    let insert = "BEGIN; INSERT INTO idem_records SELECT * FROM held";
    let transaction = B::connection_after(&test_database.url, insert).await;
    let claims = (0..CROWD).map(|number| claiming(&store, &elsewhere(number), owner(number)));
    let mut claims = sent(claims).await;
    // Polled as well: a future that is not would keep a permit that it was given.
    let waiting = tokio::spawn(claims.remove(75));
    for reply in replies(claims).await {
        assert!(is_granted(&reply), "{reply:?}");
    }
    drop(transaction);
    waiting.abort();
}

async fn each_key_is_granted_once_whatever_the_order<B: Server>() {
    const KEYS: u64 = 200;
    let test_database = TestDatabase::new::<B>();
    let stores = [
        narrow::<B>(&test_database).await,
        open::<B>(&test_database.url).await,
    ];
    for round in 0..50 {
        let claim =
            |number, store| claiming(store, &elsewhere(round * KEYS + number), Owner::random());
        let there = (0..KEYS).map(|number| claim(number, &stores[0]));
        let there = sent(there).await;
        let back = (0..KEYS).rev().map(|number| claim(number, &stores[1]));
        let back = sent(back).await;
        let (there, mut back) = tokio::join!(replies(there), replies(back));
        back.reverse();
        for (one, other) in there.iter().zip(&back) {
            let grants = usize::from(is_granted(one)) + usize::from(is_granted(other));
            assert_eq!(grants, 1, "{one:?} and {other:?}");
        }
    }
}
