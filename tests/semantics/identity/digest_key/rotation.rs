//! Processes with a new secret, on the records of the processes that were stopped before.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use idem_runtime::{Engine, ErrorKind, admin::EntryState, claim::Acquired};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::fixture::{ChargeError, Fixture, Kind, NEW, OLD, patiently, refusal};

/// The engines before and after each change, on a store of their own: a secret is introduced, changed, and given up.
async fn each_change(kind: Kind) -> Vec<(Fixture, Engine, Engine)> {
    let mut stages = Vec::new();
    for (old, new) in [(None, Some(NEW)), (Some(OLD), Some(NEW)), (Some(OLD), None)] {
        let fixture = Fixture::new(kind).await;
        let (before, after) = (fixture.engine(old), fixture.engine_after(old, new));
        stages.push((fixture, before, after));
    }
    stages
}

pub(crate) async fn an_answer_from_before_is_replayed(kind: Kind) {
    for (fixture, before, after) in each_change(kind).await {
        assert_eq!(fixture.charge(&before, "card", 5).await, Ok(1));
        drop(before);
        for _ in 0..2 {
            assert_eq!(fixture.charge(&after, "card", 5).await, Ok(1));
        }
        assert_eq!(fixture.events.count("formerdigestkey"), 2);
        // A key first called after the change has the new name alone.
        for _ in 0..2 {
            assert_eq!(fixture.charge(&after, "other card", 5).await, Ok(2));
        }
        assert_eq!(fixture.events.count("formerdigestkey"), 2);
    }
}

/// A process was stopped in the middle of a body.
pub(crate) async fn an_abandoned_attempt_from_before_is_taken_over(kind: Kind) {
    for (_stage, before, after) in each_change(kind).await {
        let lease = Duration::from_secs(1);
        let call = |engine| Fixture::call(engine, "card", 5).lease(lease);
        let Ok(Acquired::Run(claim)) = call(&before).begin().await else {
            panic!("the first call claims");
        };
        let derived = claim.context().derive_key("charge");
        drop(claim);
        let again = call(&after)
            .run(|cx| async move { Ok::<_, ChargeError>((cx.attempt(), cx.derive_key("charge"))) });
        let (attempt, again) = patiently("the lease lapses", again).await.unwrap();
        assert_eq!((attempt, again), (2, derived));
    }
}

pub(crate) async fn a_counted_attempt_from_before_counts(kind: Kind) {
    for (fixture, before, after) in each_change(kind).await {
        let call = |engine| {
            let call = Fixture::call(engine, "card", 5).count_errors(true);
            call.max_attempts(NonZeroU16::new(1))
        };
        let down = fixture.charged(call(&before), Err(ChargeError::Down)).await;
        assert_eq!(down, Err(ChargeError::Down));
        let again = refusal(fixture.charged(call(&after), Ok(())).await);
        assert!(matches!(again, ErrorKind::Exhausted { .. }), "{again:?}");
    }
}

pub(crate) async fn another_request_is_refused(kind: Kind) {
    for (fixture, before, after) in each_change(kind).await {
        assert_eq!(fixture.charge(&before, "card", 5).await, Ok(1));
        let other = refusal(fixture.charge(&after, "card", 6).await);
        assert!(matches!(other, ErrorKind::Mismatch), "{other:?}");
        // A system error keeps the key with its request, too.
        let call = Fixture::call(&before, "other card", 5).run(|cx| async move {
            let _ = cx.derive_key("charge");
            Err::<u32, _>(ChargeError::Down)
        });
        assert_eq!(call.await, Err(ChargeError::Down));
        let other = refusal(fixture.charge(&after, "other card", 6).await);
        assert!(matches!(other, ErrorKind::Mismatch), "{other:?}");
        assert_eq!(fixture.charge(&after, "other card", 5).await, Ok(2));
    }
}

/// Callers of two new processes begin at once, for cards from before (finished and released) and for others.
pub(crate) async fn callers_at_once_start_one_body(kind: Kind) {
    const EACH: usize = 20;
    let fixture = Arc::new(Fixture::new(kind).await);
    let first = fixture.engine(Some(OLD));
    assert_eq!(fixture.charge(&first, "card 0", 5).await, Ok(1));
    let released = Fixture::call(&first, "card 1", 5).count_errors(true);
    let down = fixture.charged(released, Err(ChargeError::Down)).await;
    assert_eq!(down, Err(ChargeError::Down));
    let engines = [(); 2].map(|()| fixture.engine_after(Some(OLD), Some(NEW)));
    for card in 0..6_u32 {
        let together = Arc::new(Barrier::new(2 * EACH));
        let mut callers = JoinSet::new();
        for engine in &engines {
            for _ in 0..EACH {
                let (fixture, engine) = (Arc::clone(&fixture), engine.clone());
                let together = Arc::clone(&together);
                callers.spawn(async move {
                    together.wait().await;
                    fixture.charge(&engine, &format!("card {card}"), 5).await
                });
            }
        }
        let answers = patiently("all are answered", callers.join_all()).await;
        assert_eq!(answers, vec![Ok(card + 1); 2 * EACH]);
    }
}

pub(crate) async fn an_entry_from_before_is_found_and_settled(kind: Kind) {
    for (fixture, before, after) in each_change(kind).await {
        assert_eq!(fixture.charge(&before, "card", 5).await, Ok(1));
        let call = || Fixture::call(&after, "card", 5);
        let entry = call().entry().await.unwrap();
        entry
            .expect("the record from before")
            .reset()
            .await
            .unwrap();
        let entry = call().entry().await.unwrap().expect("it is released");
        assert_eq!(entry.state(), EntryState::Released);
        assert_eq!(fixture.charge(&after, "card", 5).await, Ok(2));
        assert_eq!(fixture.charge(&after, "card", 5).await, Ok(2));
        // One that was made after the change is found as well.
        assert_eq!(fixture.charge(&after, "other card", 5).await, Ok(3));
        let other = Fixture::call(&after, "other card", 5);
        let entry = other.entry().await.unwrap().expect("its record");
        assert!(matches!(entry.state(), EntryState::Answered(_)));
    }
}

/// What the documentation warns of.
pub(crate) async fn a_process_without_the_former_secret_runs_the_body_again(kind: Kind) {
    let fixture = Fixture::new(kind).await;
    let [old, new] = [OLD, NEW].map(|secret| fixture.engine(Some(secret)));
    assert_eq!(fixture.charge(&old, "card", 5).await, Ok(1));
    assert_eq!(fixture.charge(&new, "card", 5).await, Ok(2));
}
