//! Concurrent reads: a statement serves several of them, and each gets its own record.

use std::pin::Pin;

use idem_runtime::store::RecordKey;

use crate::prelude::*;

on_each_database!(
    each_reads_its_own,
    a_client_that_disconnects_cancels_no_other
);

/// More keys than one statement reads.
const KEYS: u64 = 150;

/// Claims every second key, and returns the owners.
async fn claimed<B: Kind>(store: &SqlStore<B>) -> Vec<(RecordKey, Option<Owner>)> {
    let mut all = Vec::new();
    for number in 0..KEYS {
        let key = elsewhere(number);
        let owner = (number % 2 == 0).then(Owner::random);
        if let Some(owner) = owner {
            let request = asks(owner);
            let claim = store.claim(&key, &request).await.unwrap();
            assert!(matches!(claim, ClaimReply::Granted { .. }), "{claim:?}");
        }
        all.push((key, owner));
    }
    all
}

/// Reads all keys at once, and each third key twice, after `leaving` of the reads have begun and been dropped.
async fn read_at_once<B: Kind>(
    store: &SqlStore<B>,
    keys: &[(RecordKey, Option<Owner>)],
    leaving: usize,
) {
    let mut asked: Vec<_> = (keys.iter())
        .chain(keys.iter().step_by(3))
        .map(|(key, owner)| (Some(Box::pin(store.read(key))), owner))
        .collect();
    let poll_all = poll_fn(|cx| {
        let mut left = false;
        for (reading, owner) in &mut asked {
            let Some(read) = reading else { continue };
            match Pin::new(read).poll(cx) {
                Poll::Pending => left = true,
                Poll::Ready(reply) => {
                    *reading = None;
                    let found = match reply.unwrap() {
                        ReadReply::Absent => None,
                        ReadReply::Found { record, .. } => Some(record.header.owner),
                        other => panic!("{other:?}"),
                    };
                    assert_eq!(found, **owner);
                }
            }
        }
        // The statement of the first reads is on its way, and the others wait for it.
        for (reading, _) in asked.iter_mut().take(leaving) {
            *reading = None;
        }
        if left { Poll::Pending } else { Poll::Ready(()) }
    });
    patiently("all have read", poll_all).await;
}

async fn each_reads_its_own<B: Kind>() {
    let (_test_database, store) = opened::<B>().await;
    let keys = claimed(&store).await;
    for _ in 0..5 {
        read_at_once(&store, &keys, 0).await;
    }
}

async fn a_client_that_disconnects_cancels_no_other<B: Kind>() {
    let (_test_database, store) = opened::<B>().await;
    let keys = claimed(&store).await;
    for leaving in [1, 2, 3, 64, 66] {
        read_at_once(&store, &keys, leaving).await;
    }
}

/// Counts statements for several keys in a log of all statements.
async fn is_asked_for_several<B: Server>(url: &str, seen: impl Fn() -> usize) {
    let store = open::<B>(url).await;
    let keys = claimed(&store).await;
    assert_eq!(seen(), 0);
    read_at_once(&store, &keys, 0).await;
    let (most, least) = (20, 200_usize.div_ceil(64));
    // The server writes its log with a delay.
    until("the statements are in the log", || seen() >= least).await;
    assert!(seen() < most, "{}", seen());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_is_asked_for_several() {
    let server = Postgres::serve(&[("log_statement", "all")]);
    let seen = || {
        let log = server.log();
        let lines = log.lines().filter(|line| line.contains(" execute "));
        lines.filter(|line| line.contains("unnest(")).count()
    };
    is_asked_for_several::<Postgres>(&server.url(), seen).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_is_asked_for_several() {
    let server = MySql::serve(&[("general-log", "1"), ("log-output", "TABLE")]);
    let seen = || {
        let count = server.execute(
            "SELECT count(*) FROM mysql.general_log WHERE command_type = 'Execute' \
             AND argument LIKE '%record_key IN (%' AND argument NOT LIKE '%general_log%'",
        );
        count.trim().parse().unwrap()
    };
    is_asked_for_several::<MySql>(&server.url(), seen).await;
}
