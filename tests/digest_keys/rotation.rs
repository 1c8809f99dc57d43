//! Processes of neighbouring steps of a rotation are one system.

use std::num::NonZeroU16;
use std::sync::Arc;

use idem_runtime::{DigestKeys, Engine, ErrorKind};
use tokio::sync::{Barrier, oneshot};
use tokio::task::JoinSet;

use crate::stage::{ChargeError, Kind, NEW, OLD, Stage, refusal, soon, steps};

/// Each pair of neighbours, in both orders, on a store of its own.
async fn neighbours(kind: Kind) -> Vec<(Stage, Engine, Engine)> {
    let mut pairs = Vec::new();
    for pair in steps().windows(2) {
        for (first, second) in [(0, 1), (1, 0)] {
            let stage = Stage::new(kind).await;
            let first = stage.engine(pair[first].clone());
            let second = stage.engine(pair[second].clone());
            pairs.push((stage, first, second));
        }
    }
    pairs
}

/// Within the two steps between which the name changes.
async fn rotating(kind: Kind) -> Vec<(Stage, Engine, Engine)> {
    let mut pairs = Vec::new();
    for swapped in [false, true] {
        let stage = Stage::new(kind).await;
        let old = stage.engine(DigestKeys::new(OLD).also(NEW));
        let new = stage.engine(DigestKeys::new(NEW).also(OLD));
        pairs.push(if swapped {
            (stage, new, old)
        } else {
            (stage, old, new)
        });
    }
    pairs
}

pub(crate) async fn an_answer_is_found_by_the_next_step_and_the_one_before(kind: Kind) {
    for (number, (stage, first, second)) in neighbours(kind).await.into_iter().enumerate() {
        assert_eq!(stage.charge(&first, "card", 5).await, Ok(1), "{number}");
        for engine in [&second, &first, &second] {
            assert_eq!(stage.charge(engine, "card", 5).await, Ok(1), "{number}");
        }
        assert_eq!(stage.runs(), 1, "{number}");
    }
}

pub(crate) async fn a_body_that_runs_is_waited_for_across_steps(kind: Kind) {
    for (stage, first, second) in rotating(kind).await {
        let (started, running) = oneshot::channel();
        let (go_on, gate) = oneshot::channel::<()>();
        let run = stage.run();
        let body = Stage::call(&first, "card", 5).run(|_| async move {
            started.send(()).unwrap();
            gate.await.unwrap();
            Ok::<_, ChargeError>(run())
        });
        let leader = tokio::spawn(body);
        soon("the body starts", running).await.unwrap();
        let entry = Stage::call(&second, "card", 5).entry().await.unwrap();
        assert!(entry.is_some(), "the running record is seen");
        let follower = stage.charge(&second, "card", 5);
        let mut follower = std::pin::pin!(follower);
        // It waits until the body may end.
        let early = std::future::poll_fn(|cx| {
            std::task::Poll::Ready(follower.as_mut().poll(cx).is_ready())
        });
        assert!(!early.await);
        go_on.send(()).unwrap();
        assert_eq!(follower.await, Ok(1));
        assert_eq!(leader.await.unwrap(), Ok(1));
        assert_eq!(stage.runs(), 1);
    }
}

pub(crate) async fn a_counted_attempt_counts_across_steps(kind: Kind) {
    for (stage, first, second) in rotating(kind).await {
        let call = |engine| {
            let call = Stage::call(engine, "card", 5).count_errors(true);
            call.max_attempts(NonZeroU16::new(1))
        };
        let down = stage.charged(call(&first), Err(ChargeError::Down)).await;
        assert_eq!(down, Err(ChargeError::Down));
        let again = refusal(stage.charged(call(&second), Ok(())).await);
        assert!(matches!(again, ErrorKind::Exhausted { .. }), "{again:?}");
        assert_eq!(stage.runs(), 0, "only a success counts itself");
    }
}

pub(crate) async fn another_request_is_refused_across_steps(kind: Kind) {
    for (stage, first, second) in rotating(kind).await {
        assert_eq!(stage.charge(&first, "card", 5).await, Ok(1));
        let other = refusal(stage.charge(&second, "card", 6).await);
        assert!(matches!(other, ErrorKind::Mismatch), "{other:?}");
        // A system error keeps the key with its request, too.
        let call = Stage::call(&first, "other card", 5).run(|cx| async move {
            let _ = cx.derive_key("charge");
            Err::<u32, _>(ChargeError::Down)
        });
        assert_eq!(call.await, Err(ChargeError::Down));
        let other = refusal(stage.charge(&second, "other card", 6).await);
        assert!(matches!(other, ErrorKind::Mismatch), "{other:?}");
        assert_eq!(stage.charge(&second, "other card", 5).await, Ok(2));
        assert_eq!(stage.charge(&first, "other card", 5).await, Ok(2));
    }
}

/// Four callers of each step begin at once, for each of some cards.
pub(crate) async fn callers_of_both_steps_start_one_body(kind: Kind) {
    const CARDS: usize = 20;
    const EACH: usize = 4;
    let (stage, first, second) = rotating(kind).await.remove(0);
    let stage = Arc::new(stage);
    for card in 0..CARDS {
        let together = Arc::new(Barrier::new(2 * EACH));
        let mut callers = JoinSet::new();
        for engine in [&first, &second] {
            for _ in 0..EACH {
                let (stage, engine) = (Arc::clone(&stage), engine.clone());
                let together = Arc::clone(&together);
                callers.spawn(async move {
                    together.wait().await;
                    stage.charge(&engine, &format!("card {card}"), 5).await
                });
            }
        }
        let answers = soon("all are answered", callers.join_all()).await;
        let run = u32::try_from(card).unwrap() + 1;
        assert_eq!(answers, vec![Ok(run); 2 * EACH]);
    }
    assert_eq!(stage.runs(), u32::try_from(CARDS).unwrap());
}

pub(crate) async fn an_entry_is_found_across_steps(kind: Kind) {
    for (stage, first, second) in rotating(kind).await {
        assert_eq!(stage.charge(&first, "card", 5).await, Ok(1));
        let entry = Stage::call(&second, "card", 5).entry().await.unwrap();
        entry
            .expect("the record of the other step")
            .reset()
            .await
            .unwrap();
        assert_eq!(stage.charge(&first, "card", 5).await, Ok(2));
        assert_eq!(stage.charge(&second, "card", 5).await, Ok(2));
    }
}
