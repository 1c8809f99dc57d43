//! Concurrent claims and completions: one statement serves those that wait for a connection, and each call gets its own
//! outcome.

use std::future::ready;
use std::pin::Pin;

use idem_runtime::store::{CompleteReply, Header, OutcomeKind, RecordKey, StoreError};
use idem_tests::claims::{finished, granted};

use crate::prelude::*;

on_each_server!(
    a_record_of_an_open_transaction_delays_no_other_claim,
    each_key_is_granted_once_whatever_the_order,
    a_caller_that_is_dropped_cancels_no_other,
    a_record_that_cannot_be_read_harms_no_other_claim,
    a_stale_owner_harms_no_other_completion,
    a_large_answer_harms_no_other_completion,
);

/// More calls than one statement has.
const CALLS: u64 = 100;

/// A store with one connection for claims, and one for endings: nearly all calls wait.
async fn narrow<B: Kind>(url: &str) -> SqlStore<B> {
    open_with(url, |store| store.connections(2)).await
}

type Claiming = Pin<Box<dyn Future<Output = Result<ClaimReply, StoreError>> + Send>>;

/// One claim for each key, all of them queued or sent.
async fn queued<B: Kind>(
    store: &SqlStore<B>,
    keys: impl IntoIterator<Item = RecordKey>,
) -> Vec<(RecordKey, Owner, Claiming)> {
    let mut claims: Vec<_> = keys
        .into_iter()
        .map(|key| {
            let (store, owner) = (store.clone(), Owner::random());
            let claimed = key.clone();
            let claim: Claiming =
                Box::pin(async move { store.claim(&claimed, &asks(owner)).await });
            (key, owner, claim)
        })
        .collect();
    poll_fn(|cx| {
        for (.., claim) in &mut claims {
            if let Poll::Ready(reply) = claim.as_mut().poll(cx) {
                *claim = Box::pin(ready(reply));
            }
        }
        Poll::Ready(())
    })
    .await;
    claims
}

/// Awaits the replies in tasks of their own.
async fn replies(claims: Vec<(RecordKey, Owner, Claiming)>) -> Vec<(RecordKey, Owner, ClaimReply)> {
    let claims: Vec<_> = (claims.into_iter())
        .map(|(key, owner, claim)| (key, owner, tokio::spawn(claim)))
        .collect();
    let mut replies = Vec::new();
    for (key, owner, claim) in claims {
        let reply = patiently("a claim has its reply", claim).await.unwrap();
        replies.push((key, owner, reply.unwrap()));
    }
    replies
}

fn is_granted(reply: &ClaimReply) -> bool {
    matches!(reply, ClaimReply::Granted { fresh: true, .. })
}

fn done(owner: Owner, reply: &ClaimReply, answer: &[u8]) -> bytes::Bytes {
    let claim: Header = granted(&asks(owner), reply);
    finished(&claim, OutcomeKind::Value, answer)
}

/// Completes all of them at once.
async fn completed<B: Kind>(
    store: &SqlStore<B>,
    records: impl IntoIterator<Item = (RecordKey, bytes::Bytes)>,
) -> Vec<CompleteReply> {
    let tasks: Vec<_> = (records.into_iter())
        .map(|(key, record)| {
            let store = store.clone();
            tokio::spawn(async move { store.complete(&key, &record).await })
        })
        .collect();
    let mut replies = Vec::new();
    for task in tasks {
        let reply = patiently("a completion has its reply", task).await.unwrap();
        replies.push(reply.unwrap());
    }
    replies
}

async fn a_record_of_an_open_transaction_delays_no_other_claim<B: Server>() {
    let test_database = B::test_database();
    let store = narrow::<B>(&test_database.url).await;
    let held = elsewhere(CALLS / 2);
    store.claim(&held, &asks(Owner::random())).await.unwrap();
    for sql in [
        "CREATE TABLE held AS SELECT * FROM idem_records",
        "DELETE FROM idem_records",
    ] {
        test_database.sql(sql).await;
    }
    // As a call in a transaction does.
    let insert = "BEGIN; INSERT INTO idem_records SELECT * FROM held";
    let transaction = B::hold_by(&test_database.url, insert).await;
    let mut claims = queued(&store, (0..CALLS).map(elsewhere)).await;
    let waiting = claims.remove(usize::try_from(CALLS / 2).unwrap());
    for (key, _, reply) in replies(claims).await {
        assert!(is_granted(&reply), "{key:?}: {reply:?}");
    }
    drop((transaction, waiting));
}

async fn each_key_is_granted_once_whatever_the_order<B: Server>() {
    const KEYS: u64 = 200;
    let test_database = B::test_database();
    let stores = [
        narrow::<B>(&test_database.url).await,
        open::<B>(&test_database.url).await,
    ];
    for round in 0..50 {
        let key = |number| elsewhere(round * KEYS + number);
        let there = queued(&stores[0], (0..KEYS).map(key)).await;
        let back = queued(&stores[1], (0..KEYS).rev().map(key)).await;
        let (there, mut back) = tokio::join!(replies(there), replies(back));
        back.reverse();
        for ((key, _, one), (_, _, other)) in there.iter().zip(&back) {
            let grants = usize::from(is_granted(one)) + usize::from(is_granted(other));
            assert_eq!(grants, 1, "{key:?}: {one:?} and {other:?}");
        }
    }
}

async fn a_caller_that_is_dropped_cancels_no_other<B: Server>() {
    let test_database = B::test_database();
    let store = narrow::<B>(&test_database.url).await;
    for (round, leaving) in [1, 2, 3, 30, 64, 66].into_iter().enumerate() {
        let keys = (0..CALLS).map(|number| elsewhere(round as u64 * CALLS + number));
        let mut claims: Vec<_> = (queued(&store, keys).await.into_iter())
            .map(|(.., claim)| Some(claim))
            .collect();
        let mut grants = 0;
        let poll_all = poll_fn(|cx| {
            let mut left = false;
            for claiming in &mut claims {
                let Some(claim) = claiming else { continue };
                match claim.as_mut().poll(cx) {
                    Poll::Pending => left = true,
                    Poll::Ready(reply) => {
                        assert!(is_granted(&reply.unwrap()));
                        (*claiming, grants) = (None, grants + 1);
                    }
                }
            }
            // After the first reply: a statement for many has just begun.
            if grants > 0 {
                for claiming in claims.iter_mut().skip(1).take(leaving) {
                    *claiming = None;
                }
            }
            if left { Poll::Pending } else { Poll::Ready(()) }
        });
        patiently("all others have their replies", poll_all).await;
        assert!(grants >= 100 - leaving);
    }
}

async fn a_record_that_cannot_be_read_harms_no_other_claim<B: Server>() {
    let test_database = B::test_database();
    let store = open_with::<B>(&test_database.url, |store| {
        store.connections(2).max_record_bytes(2 << 10)
    })
    .await;
    let life = Duration::from_mins(1);
    let (unreadable, large) = (elsewhere(20), elsewhere(70));
    store.plant(&unreadable, b"nonsense", life).await.unwrap();
    let claim = store.claim(&large, &asks(Owner::random())).await.unwrap();
    let record = done(Owner::random(), &claim, &[b'x'; 8 << 10]);
    store.plant(&large, &record, life).await.unwrap();
    let claims = queued(&store, (0..CALLS).map(elsewhere)).await;
    let claims: Vec<_> = (claims.into_iter())
        .map(|(key, _, claim)| (key, tokio::spawn(claim)))
        .collect();
    for (key, claim) in claims {
        let reply = patiently("a claim has its reply", claim).await.unwrap();
        if key == unreadable {
            assert!(matches!(reply, Ok(ClaimReply::Unreadable(_))), "{reply:?}");
        } else if key == large {
            assert!(reply.is_err(), "{reply:?}");
        } else {
            assert!(is_granted(&reply.unwrap()), "{key:?}");
        }
    }
}

async fn a_stale_owner_harms_no_other_completion<B: Server>() {
    let test_database = B::test_database();
    let store = narrow::<B>(&test_database.url).await;
    let claims = replies(queued(&store, (0..CALLS).map(elsewhere)).await).await;
    let records = (claims.iter().enumerate()).map(|(number, (key, owner, reply))| {
        let owner = if number == 50 {
            Owner::random()
        } else {
            *owner
        };
        (key.clone(), done(owner, reply, b"answer"))
    });
    let replies = completed(&store, records).await;
    for (number, reply) in replies.iter().enumerate() {
        if number == 50 {
            assert!(
                matches!(reply, CompleteReply::Superseded { .. }),
                "{reply:?}"
            );
        } else {
            assert_eq!(*reply, CompleteReply::Stored { late: false }, "{number}");
        }
    }
    for (number, (key, ..)) in claims.iter().enumerate() {
        let found = store.peek(key).await.unwrap().unwrap();
        assert_eq!(found.ends_with(b"answer"), number != 50, "{number}");
    }
}

async fn a_large_answer_harms_no_other_completion<B: Server>() {
    let test_database = B::test_database();
    let store = narrow::<B>(&test_database.url).await;
    let claims = replies(queued(&store, (0..CALLS).map(elsewhere)).await).await;
    // Of all sizes up to 8 MiB.
    let answer = |number: usize| vec![b'a'; (1 << (number % 24)) - 1 + number / 24];
    let records = (claims.iter().enumerate())
        .map(|(number, (key, owner, reply))| (key.clone(), done(*owner, reply, &answer(number))));
    for reply in completed(&store, records).await {
        assert_eq!(reply, CompleteReply::Stored { late: false });
    }
    for (number, (key, ..)) in claims.iter().enumerate() {
        let found = store.peek(key).await.unwrap().unwrap();
        assert!(found.ends_with(&answer(number)), "{number}");
    }
}

/// Claims and completes many at once. Each statement for several of them is in the log of the server.
async fn is_sent_for_several<B: Server>(url: &str, seen: impl Fn() -> [usize; 2]) {
    let store = narrow::<B>(url).await;
    let claims = replies(queued(&store, (0..CALLS).map(elsewhere)).await).await;
    assert!(claims.iter().all(|(.., reply)| is_granted(reply)));
    let records =
        (claims.iter()).map(|(key, owner, reply)| (key.clone(), done(*owner, reply, b"answer")));
    for reply in completed(&store, records).await {
        assert_eq!(reply, CompleteReply::Stored { late: false });
    }
    // The server writes its log with a delay.
    until("the statements are in the log", || {
        seen().iter().all(|statements| *statements > 0)
    })
    .await;
    let [claims, completions] = seen();
    // Claims were queued before the first of them was sent.
    assert_eq!(claims, 2);
    assert!(completions < 20, "{completions}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_has_one_statement_for_several() {
    let server = Postgres::serve(&[("log_statement", "all")]);
    let seen = || {
        let log = server.log();
        ["INSERT INTO", "UPDATE"].map(|verb| {
            let lines = log.lines().filter(|line| line.contains(" execute "));
            lines
                .filter(|line| line.contains("unnest(") && line.contains(verb))
                .count()
        })
    };
    is_sent_for_several::<Postgres>(&server.url(), seen).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_has_one_statement_for_several() {
    let server = MySql::serve(&[("general-log", "1"), ("log-output", "TABLE")]);
    let seen = || {
        ["INSERT", "UPDATE"].map(|verb| {
            let count = server.execute(&format!(
                "SELECT count(*) FROM mysql.general_log WHERE command_type = 'Query' \
                 AND argument LIKE 'SET STATEMENT innodb_lock_wait_timeout%FOR {verb} %'"
            ));
            count.trim().parse().unwrap()
        })
    };
    is_sent_for_several::<MySql>(&server.url(), seen).await;
}

/// A batch that the server refuses for one of its calls is repeated call by call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_record_harms_no_other_claim() {
    let test_database = Postgres::test_database();
    let store = narrow::<Postgres>(&test_database.url).await;
    for sql in [
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN IF get_byte(NEW.record_key, 47) % 16 = 0 THEN RAISE EXCEPTION 'no'; END IF; RETURN NEW; END $$",
        "CREATE TRIGGER refuses BEFORE INSERT ON idem_records FOR EACH ROW EXECUTE FUNCTION refuse()",
    ] {
        test_database.sql(sql).await;
    }
    let claims = queued(&store, (0..CALLS).map(elsewhere)).await;
    for (key, _, claim) in claims {
        let reply = patiently("a claim has its reply", tokio::spawn(claim)).await;
        let refused = key.digest().as_bytes()[31] % 16 == 0;
        match reply.unwrap() {
            Ok(reply) => assert!(is_granted(&reply) && !refused, "{reply:?}"),
            Err(error) => assert!(refused, "{error}"),
        }
    }
}
