//! Records left by calls with leases, and records left to them by calls in transactions.

use idem_runtime::{Context, FOREVER};
use tokio::sync::Notify;

use crate::prelude::*;

/// Runs the body of the key in a transaction, and commits.
async fn runs<D: Database>(fixture: &Fixture<D>, run: u32) {
    let mut tx = fixture.begin().await;
    let answer = ordered(fixture, fixture.order(), &mut tx, "mine").await;
    assert_eq!(answer, Ok(run));
    D::commit(tx).await.done();
    assert_eq!(fixture.kept("mine").await, (1, 1));
    assert_eq!(fixture.replayed(fixture.order()).await, Ok(run));
}

/// A call with a lease that is dropped in its body.
async fn abandoned<D: Database>(fixture: &Fixture<D>) {
    let begun = Notify::new();
    let call = fixture.order().run(|_| async {
        begun.notify_one();
        std::future::pending::<Answer>().await
    });
    tokio::select! {
        answer = call => panic!("the body never ends: {answer:?}"),
        () = begun.notified() => {}
    }
}

pub(crate) async fn a_key_that_was_given_back_is_claimed<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let answer: Answer = fixture
        .order()
        .run(|_| async { Err(OrderError::Down) })
        .await;
    assert_eq!(answer, Err(OrderError::Down));
    assert_eq!(fixture.stands().await, Some(EntryState::Released));
    runs(&fixture, 1).await;
}

pub(crate) async fn a_lapsed_lease_is_taken_over<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    abandoned(&fixture).await;
    fixture.age(Duration::from_mins(1)).await;
    let mut tx = fixture.begin().await;
    let call = fixture.order().in_tx(&mut tx);
    let answer: Answer = call
        .run(async |_: &mut D::Tx, cx: Context| Ok(cx.attempt().into()))
        .await;
    assert_eq!(answer, Ok(2));
    D::rollback(tx).await.done();
    // An uncommitted attempt is not counted.
    assert_eq!(fixture.stands().await, Some(EntryState::Abandoned));
    runs(&fixture, 1).await;
}

pub(crate) async fn a_lease_that_runs_is_respected<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    abandoned(&fixture).await;
    let mut tx = fixture.begin().await;
    insert::<D>(&mut tx, "before").await.done();
    let error = refusal(answered(fixture.order(), &mut tx).await);
    assert_running(&error);
    let left = error.retry_after().expect("it says when");
    assert!(left > Duration::from_secs(1), "{left:?}");
    insert::<D>(&mut tx, "after").await.done();
    D::commit(tx).await.done();
    assert_eq!(fixture.orders_of(["before", "after"]).await, [1, 1]);
}

pub(crate) async fn an_expired_record_is_taken_over<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let answer: Answer = fixture.order().run(|_| async { Ok(77) }).await;
    assert_eq!(answer, Ok(77));
    let years = Duration::from_hours(24 * 365 * 5);
    fixture.age(years).await;
    runs(&fixture, 1).await;
}

pub(crate) async fn an_unknown_outcome_is_respected<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    let timed_out = |_| async { Err(OrderError::TimedOut) as Answer };
    fixture
        .order()
        .run(timed_out)
        .await
        .expect_err("it timed out");
    assert_unknown(&refusal(fixture.replayed(fixture.order()).await));
    // An operator resets the unknown outcome.
    let entry = fixture
        .order()
        .entry()
        .await
        .unwrap()
        .expect("there is one");
    entry.reset().await.expect("nobody else has");
    runs(&fixture, 1).await;
}

pub(crate) async fn calls_with_leases_replay_committed_answers<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    runs(&fixture, 1).await;
    let answer: Answer = fixture.order().run(|_| async { Ok(2) }).await;
    assert_eq!(answer, Ok(1));
}

pub(crate) async fn the_context_of_a_body<D: Database>() {
    let fixture = Fixture::<D>::new().await;
    // A call with a lease derives the same key.
    let first = fixture.order().run(|cx| async move {
        let fence = cx.fence().await?;
        Err::<u32, _>(OrderError::Database(format!(
            "{} {fence:?}",
            cx.derive_key("stripe")
        )))
    });
    let Err(OrderError::Database(told)) = first.await else {
        panic!("it has told")
    };
    let mut keys = vec![told.split_once(' ').expect("two words").0.to_owned()];
    let mut fences = Vec::new();
    for ttl in [Duration::from_hours(1), FOREVER] {
        let mut tx = fixture.begin().await;
        let call = fixture.order().ttl(ttl).in_tx(&mut tx);
        let answer = call.run(async |tx: &mut D::Tx, cx: Context| {
            assert_eq!(cx.operation().as_str(), "orders.create");
            assert_eq!(cx.attempt(), 1);
            assert!(cx.lease_remaining() > Duration::from_hours(24 * 365));
            assert_eq!(cx.key(), idem_runtime::context().key());
            keys.push(cx.derive_key("stripe"));
            fences.push(cx.fence().await?);
            make::<D>(tx, &fixture.runs, "mine").await
        });
        answer.await.expect("it runs");
        D::rollback(tx).await.done();
    }
    assert!(
        keys.iter().all(|key| *key == keys[0] && key.len() == 43),
        "{keys:?}"
    );
    assert_eq!((keys.len(), fences.len()), (3, 2));
    assert!(fences.is_sorted(), "{fences:?}");
}
