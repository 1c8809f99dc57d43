//! Ends of a body, and the effect of a commit or a rollback on them.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;

use idem_runtime::{FOREVER, OnDuplicate, step_in_tx, store::OutcomeKind};
use serde::{Deserialize, Serialize};

use crate::prelude::*;

pub(crate) async fn an_order_and_its_record_are_committed_together<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    assert_eq!(fixture.ordered(&mut tx).await, Ok(1));
    assert_eq!(fixture.kept("mine").await, (0, 0));
    D::commit(tx).await.done();
    assert_eq!(fixture.kept("mine").await, (1, 1));
    for _ in 0..3 {
        assert_eq!(fixture.replayed(fixture.order()).await, Ok(1));
    }
    assert_eq!(fixture.kept("mine").await, (1, 1));
    for event in ["claimed 1", "completed value"] {
        assert_eq!(fixture.events.count(event), 1, "{event}");
    }
    assert_eq!(fixture.events.count("replayed value"), 3);
}

pub(crate) async fn a_rollback_takes_the_record_with_it<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    for run in 1..=2 {
        let mut tx = fixture.begin().await;
        assert_eq!(fixture.ordered(&mut tx).await, Ok(run));
        D::rollback(tx).await.done();
        assert_eq!(fixture.kept("mine").await, (0, 0));
    }
    // A dropped transaction is rolled back.
    let mut tx = fixture.begin().await;
    assert_eq!(fixture.ordered(&mut tx).await, Ok(3));
    drop(tx);
    assert_eq!(fixture.committed(fixture.order()).await, Ok(4));
    assert_eq!(fixture.kept("mine").await, (1, 1));
}

pub(crate) async fn a_replay_in_the_same_transaction_is_one<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    assert_eq!(fixture.ordered(&mut tx).await, Ok(1));
    assert_eq!(answered(fixture.order(), &mut tx).await, Ok(1));
    insert::<D>(&mut tx, "after").await.done();
    D::commit(tx).await.done();
    assert_eq!(fixture.orders_of(["mine", "after"]).await, [1, 1]);
}

pub(crate) async fn a_business_error_undoes_the_writes_of_the_body_and_is_kept<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    insert::<D>(&mut tx, "before").await.done();
    let sold_out = OrderError::SoldOut { run: 1 };
    let answer = failed(&fixture, fixture.order(), &mut tx, sold_out.clone()).await;
    assert_eq!(answer, Err(sold_out.clone()));
    insert::<D>(&mut tx, "after").await.done();
    D::commit(tx).await.done();
    assert_eq!(fixture.orders("undone").await, 0);
    assert_eq!(fixture.orders_of(["before", "after"]).await, [1, 1]);
    assert_eq!(fixture.replayed(fixture.order()).await, Err(sold_out));
    let kept = EntryState::Answered(OutcomeKind::Error);
    assert_eq!(fixture.stands().await, Some(kept));
    assert_eq!(fixture.events.count("completed error"), 1);
}

pub(crate) async fn a_business_error_after_an_error_of_the_database_is_kept<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    insert::<D>(&mut tx, "before").await.done();
    let answer = fixture.order().in_tx(&mut tx);
    let answer = answer.run(async |tx: &mut D::Tx, _| {
        make::<D>(tx, &fixture.runs, "undone").await?;
        let refused = D::execute(tx, "INSERT INTO orders (name) VALUES (NULL)").await;
        refused.expect_err("a name is needed");
        Err(OrderError::SoldOut { run: 1 }) as Answer
    });
    assert_eq!(answer.await, Err(OrderError::SoldOut { run: 1 }));
    insert::<D>(&mut tx, "after").await.done();
    D::commit(tx).await.done();
    assert_eq!(fixture.orders("undone").await, 0);
    assert_eq!(fixture.orders_of(["before", "after"]).await, [1, 1]);
    let kept = EntryState::Answered(OutcomeKind::Error);
    assert_eq!(fixture.stands().await, Some(kept));
}

pub(crate) async fn a_business_error_that_is_rolled_back_is_not_kept<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    let sold_out = OrderError::SoldOut { run: 1 };
    let answer = failed(&fixture, fixture.order(), &mut tx, sold_out.clone()).await;
    assert_eq!(answer, Err(sold_out));
    D::rollback(tx).await.done();
    assert_eq!(fixture.stands().await, None);
}

pub(crate) async fn a_commit_after_a_system_error_commits_nothing_of_the_call<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    insert::<D>(&mut tx, "before").await.done();
    let answer = failed(&fixture, fixture.order(), &mut tx, OrderError::Down).await;
    assert_eq!(answer, Err(OrderError::Down));
    insert::<D>(&mut tx, "after").await.done();
    D::commit(tx).await.done();
    assert_eq!(fixture.kept("undone").await, (0, 0));
    assert_eq!(fixture.orders_of(["before", "after"]).await, [1, 1]);
    assert_eq!(fixture.events.count("released"), 1);
    assert_eq!(fixture.committed(fixture.order()).await, Ok(2));
    assert_eq!(fixture.orders("mine").await, 1);
}

pub(crate) async fn the_same_transaction_may_try_again_after_a_system_error<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    for _ in 0..3 {
        let answer = failed(&fixture, fixture.order(), &mut tx, OrderError::Down).await;
        assert_eq!(answer, Err(OrderError::Down));
    }
    assert_eq!(fixture.ordered(&mut tx).await, Ok(4));
    D::commit(tx).await.done();
    assert_eq!(fixture.orders_of(["undone", "mine"]).await, [0, 1]);
}

pub(crate) async fn after_an_error_of_class_unknown_no_body_runs_again<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    let answer = failed(&fixture, fixture.order(), &mut tx, OrderError::TimedOut).await;
    assert_eq!(answer, Err(OrderError::TimedOut));
    D::commit(tx).await.done();
    assert_eq!(fixture.orders("undone").await, 0);
    let mut tx = fixture.begin().await;
    assert_unknown(&refusal(answered(fixture.order(), &mut tx).await));
    insert::<D>(&mut tx, "after").await.done();
    D::commit(tx).await.done();
    assert_eq!(fixture.orders("after").await, 1);
    assert_eq!(fixture.stands().await, Some(EntryState::Unknown));
}

/// Whether the future panicked.
async fn panics<F: Future>(future: F) -> bool {
    let mut future = pin!(future);
    poll_fn(
        |cx| match std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(_)) => Poll::Ready(false),
            Err(_) => Poll::Ready(true),
        },
    )
    .await
}

pub(crate) async fn a_panic_undoes_the_call<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    insert::<D>(&mut tx, "before").await.done();
    let call = fixture.order().in_tx(&mut tx);
    let call = call.run(async |tx: &mut D::Tx, _| {
        make::<D>(tx, &fixture.runs, "undone").await?;
        if true {
            std::panic::panic_any("out of paper");
        }
        Err(OrderError::Down) as Answer
    });
    assert!(panics(call).await);
    insert::<D>(&mut tx, "after").await.done();
    D::commit(tx).await.done();
    assert_eq!(fixture.kept("undone").await, (0, 0));
    assert_eq!(fixture.orders_of(["before", "after"]).await, [1, 1]);
    assert_eq!(fixture.events.count("panicked"), 1);
    assert_eq!(fixture.committed(fixture.order()).await, Ok(2));
}

/// Runs the body up to the point after its write, and drops the call there.
async fn drop_half_way<D: Database>(fixture: &Fixture<D>, tx: &mut D::Tx) {
    let wrote = tokio::sync::Notify::new();
    let call = fixture.order().in_tx(tx).run(async |tx: &mut D::Tx, _| {
        make::<D>(tx, &fixture.runs, "half").await?;
        wrote.notify_one();
        std::future::pending::<Answer>().await
    });
    tokio::select! {
        answer = call => panic!("the body never ends: {answer:?}"),
        () = wrote.notified() => {}
    }
}

pub(crate) async fn dropped_half_way_and_committed_no_body_runs_again<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    drop_half_way(&fixture, &mut tx).await;
    // Not in the same transaction either.
    assert_unknown(&refusal(answered(fixture.order(), &mut tx).await));
    D::commit(tx).await.done();
    assert_unknown(&refusal(fixture.replayed(fixture.order()).await));
    assert_eq!((fixture.orders("half").await, fixture.runs.count()), (1, 1));
    assert_eq!(fixture.stands().await, Some(EntryState::Unknown));
}

pub(crate) async fn dropped_half_way_and_rolled_back_it_runs_again<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    drop_half_way(&fixture, &mut tx).await;
    D::rollback(tx).await.done();
    assert_eq!(fixture.kept("half").await, (0, 0));
    assert_eq!(fixture.committed(fixture.order()).await, Ok(2));
    assert_eq!(fixture.orders_of(["half", "mine"]).await, [0, 1]);
}

pub(crate) async fn another_request_with_the_same_key_is_refused<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    let call = || fixture.order().fingerprint("a book");
    assert_eq!(ordered(&fixture, call(), &mut tx, "mine").await, Ok(1));
    let other = fixture.order().fingerprint("a pen");
    let error = refusal(answered(other, &mut tx).await);
    assert_eq!(*error.kind(), ErrorKind::Mismatch);
    D::commit(tx).await.done();
    let mut tx = fixture.begin().await;
    let other = fixture.order().fingerprint("a pen");
    let error = refusal(answered(other, &mut tx).await);
    assert_eq!(*error.kind(), ErrorKind::Mismatch);
    assert_eq!(answered(call(), &mut tx).await, Ok(1));
    D::commit(tx).await.done();
    assert_eq!(fixture.orders("mine").await, 1);
}

pub(crate) async fn a_cool_down_refuses_until_it_is_over<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let call = || {
        let call = fixture.order().on_duplicate(OnDuplicate::Reject);
        call.ttl(Duration::from_mins(1))
    };
    assert_eq!(fixture.committed(call()).await, Ok(1));
    let mut tx = fixture.begin().await;
    let error = refusal(answered(call(), &mut tx).await);
    let left = error.retry_after().expect("it says when");
    assert!(
        matches!(error.kind(), ErrorKind::Duplicate { .. }),
        "{error}"
    );
    assert!(
        left <= Duration::from_mins(1) && left > Duration::from_secs(30),
        "{left:?}"
    );
    D::commit(tx).await.done();
    fixture.age(Duration::from_mins(1)).await;
    assert_eq!(fixture.committed(call()).await, Ok(2));
    assert_eq!(fixture.kept("mine").await, (2, 1));
}

pub(crate) async fn an_answer_may_be_kept_for_ever<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let mut tx = fixture.begin().await;
    let call = || fixture.order().ttl(FOREVER);
    assert_eq!(ordered(&fixture, call(), &mut tx, "mine").await, Ok(1));
    D::commit(tx).await.done();
    let decades = Duration::from_hours(24 * 365 * 50);
    fixture.age(decades).await;
    assert_eq!(fixture.replayed(call()).await, Ok(1));
}

pub(crate) async fn a_kept_error_has_a_life_of_its_own<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let call = || {
        let call = fixture.order().ttl(Duration::from_hours(24));
        call.error_ttl(Duration::from_mins(10))
    };
    let mut tx = fixture.begin().await;
    let sold_out = OrderError::SoldOut { run: 1 };
    let answer = failed(&fixture, call(), &mut tx, sold_out.clone()).await;
    assert_eq!(answer, Err(sold_out.clone()));
    D::commit(tx).await.done();
    fixture.age(Duration::from_mins(9)).await;
    assert_eq!(fixture.replayed(call()).await, Err(sold_out));
    fixture.age(Duration::from_mins(1)).await;
    assert_eq!(fixture.committed(call()).await, Ok(2));
    fixture.age(Duration::from_hours(23)).await;
    assert_eq!(fixture.replayed(call()).await, Ok(2));
}

/// Its trace is not stored; without its number it is not read back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Traced {
    #[serde(skip_serializing_if = "is_zero")]
    number: u32,
    #[serde(skip)]
    trace: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A call and a step that are committed with the caller's rows do not settle as other calls and steps do.
pub(crate) async fn the_first_caller_gets_what_is_stored<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    for number in [0, 1] {
        let traced = Traced { number, trace: 7 };
        // The second one has no body.
        let stored = if number == 0 {
            [Ok(traced), Err(ErrorKind::NotStored)]
        } else {
            [0; 2].map(|trace| Ok(Traced { trace, ..traced }))
        };
        for answer in stored {
            let mut tx = fixture.begin().await;
            let call = fixture.call(&format!("call-{number}")).in_tx(&mut tx);
            let called = call.run(async |_: &mut D::Tx, _| Ok::<_, OrderError>(traced));
            let called = called.await;
            D::commit(tx).await.done();
            assert_eq!(called.map_err(kind), answer, "of a call");

            // The body fails after its step, which the next attempt does not repeat.
            let mut stepped = None;
            let call = fixture.call(&format!("steps-{number}")).run(|_| async {
                let mut tx = fixture.begin().await;
                let part = async |_: &mut D::Tx, _| Ok::<_, OrderError>(traced);
                stepped = Some(step_in_tx("part", &mut tx, part).await.map_err(kind));
                D::commit(tx).await.done();
                Err::<(), _>(OrderError::Down)
            });
            assert_eq!(call.await, Err(OrderError::Down));
            assert_eq!(stepped, Some(answer), "of a step");
        }
    }
}

fn kind(error: OrderError) -> ErrorKind {
    refusal::<()>(Err(error)).kind().clone()
}
