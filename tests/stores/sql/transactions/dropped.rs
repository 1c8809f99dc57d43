//! Calls in a caller's transaction whose future is dropped, at each poll.

use idem_tests::polls::{self, Dropped};

use super::prelude::*;

on_each_database!(a_dropped_call_leaves_all_or_nothing);
mod other_clients {
    use super::*;
    on_each_other_client!(a_dropped_call_leaves_all_or_nothing);
}

/// A later commit keeps an answer that its caller lacks; no second body runs; no reply to a message of the dropped call
/// reaches a later one.
async fn a_dropped_call_leaves_all_or_nothing<C: Client>() {
    let fixture = Fixture::<C>::new().await;
    for ended in [Ended::Commit, Ended::Rollback, Ended::Drop] {
        let mut conn = C::connect(&fixture.place.url).await;
        // A server may reply within a poll, and then there is no pending call to drop.
        for polls in 0.. {
            let key = &format!("{ended:?} after {polls} polls");
            let work =
                async |tx: &mut C::Tx<'_>| (dropped_after(&fixture, tx, key, polls).await, ended);
            let (answer, end) = C::in_transaction(&mut conn, work).await;
            if end.is_err() && !C::DISCARDS_REPLIES {
                assert!(answer.is_none(), "{key}");
                conn = C::connect(&fixture.place.url).await;
            } else {
                end.expect("the server is up");
            }
            // It follows the rollback of a dropped transaction.
            assert_eq!(
                conn.count("SELECT count(*) + 42 FROM shelves").await,
                42,
                "{key}"
            );
            let left = (fixture.orders(key).await, state(fixture.call(key)).await);
            let commits = matches!(ended, Ended::Commit);
            match left {
                (0, None) => assert!(answer.is_none() || !commits, "{key}"),
                (0 | 1, Some(EntryState::Unknown)) => assert!(answer.is_none() && commits, "{key}"),
                (1, Some(EntryState::Answered(_))) => assert!(commits, "{key}"),
                _ => panic!("{key}: {left:?}"),
            }
            let runs = fixture.runs.count();
            let again = async |tx: &mut C::Tx<'_>| {
                let again = fixture.call_that_ends(tx, |tx| tx, key, End::Value).await;
                (again.expect("it ends"), Ended::Commit)
            };
            let (again, end) = C::in_transaction(&mut conn, again).await;
            end.expect("the server is up");
            let runs = fixture.runs.count() - runs;
            match left.1 {
                None => assert_eq!((again.is_ok(), runs), (true, 1), "{key}"),
                Some(EntryState::Answered(_)) => {
                    assert_eq!((again.is_ok(), runs), (true, 0), "{key}");
                }
                Some(_) => {
                    assert_unknown(&refusal(again));
                    assert_eq!(runs, 0, "{key}");
                }
            }
            if answer.is_some() {
                assert!(polls > 0, "no call was dropped");
                break;
            }
        }
    }
}

/// The answer of a call, unless dropped after this many polls.
async fn dropped_after<C: Client>(
    fixture: &Fixture<C>,
    tx: &mut C::Tx<'_>,
    key: &str,
    polls: usize,
) -> Option<Answer> {
    let call = fixture.call(key).in_tx(tx);
    let call = Box::pin(call.run(async |tx: &mut C::Tx<'_>, _| {
        let run = fixture.runs.start();
        insert_by(tx, key).await?;
        Answer::Ok(run)
    }));
    polls::dropped_after(polls, Dropped::Woken, call).await
}
