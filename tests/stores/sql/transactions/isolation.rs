//! Many callers of few keys, at every level of isolation.

use tokio::task::JoinSet;

use super::prelude::*;

on_each_database!(
    callers_that_try_again_have_one_effect_a_key,
    an_old_snapshot_is_no_answer,
);

const CALLERS: usize = 50;
const KEYS: usize = 5;

/// One caller: retries in new transactions until it has its answer.
async fn call<D: Database>(fixture: &Fixture<D>, level: &'static str, caller: usize) {
    let key = format!("order-{}", caller % KEYS);
    loop {
        let mut tx = match D::begin(&fixture.pool, level).await {
            Ok(tx) => tx,
            Err(error) => {
                assert!(D::collides(&error), "{error}");
                continue;
            }
        };
        let wait = OnRunning::Wait(Duration::from_secs(20));
        match ordered(fixture, fixture.call(&key).on_running(wait), &mut tx, &key).await {
            Ok(_) => match D::commit(tx).await {
                Ok(()) => return,
                Err(error) => assert!(D::collides(&error), "{error}"),
            },
            Err(OrderError::Idem(error)) => {
                assert_eq!(*error.kind(), ErrorKind::TransactionAborted, "{error}");
                D::rollback(tx).await.done();
            }
            // The body's own statement may collide.
            Err(OrderError::Database(_)) => D::rollback(tx).await.done(),
            Err(error) => panic!("{error:?}"),
        }
    }
}

async fn callers_that_try_again_have_one_effect_a_key<D: Database>() {
    for level in D::LEVELS {
        let fixture = Arc::new(Fixture::<D>::new().await);
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let fixture = Arc::clone(&fixture);
            callers.spawn(async move { call(&fixture, level, caller).await });
        }
        patiently(level, callers.join_all()).await;
        for key in 0..KEYS {
            assert_eq!(fixture.orders(&format!("order-{key}")).await, 1, "{level}");
        }
        assert_eq!(
            fixture.records().await,
            i64::try_from(KEYS).unwrap(),
            "{level}"
        );
    }
}

/// A transaction with a snapshot from before another caller's write.
async fn an_old_snapshot_is_no_answer<D: Database>() {
    for level in D::LEVELS {
        let fixture = Fixture::<D>::new().await;
        let mut old = D::begin(&fixture.pool, level).await.done();
        // Another table, because some levels lock the rows that they read.
        D::number(&mut old, "SELECT count(*) FROM shelves")
            .await
            .done();
        if !level.contains("IMMEDIATE") {
            assert_eq!(fixture.committed(fixture.order()).await, Ok(1));
        }
        // It replays an answer outside of its snapshot, or must be retried; it never runs a second time.
        let late = patiently("it has an answer", fixture.ordered(&mut old));
        match late.await {
            Ok(1) => D::commit(old).await.done(),
            Err(OrderError::Idem(error)) => {
                assert_aborted(&error);
                D::rollback(old).await.done();
            }
            other => panic!("{level}: {other:?}"),
        }
        assert_eq!(fixture.orders("mine").await, 1, "{level}");
        assert_eq!(fixture.runs.count(), 1, "{level}");
    }
}
