//! A call after a reset elsewhere never receives an earlier query's reply.

use crate::prelude::*;

/// Longer than calls count as made at once.
const LATER: Duration = Duration::from_millis(10);

/// A call whose claim is answered, while the reply is held.
async fn claim_held(fixture: &Fixture, call: Pay) -> JoinHandle<Answer> {
    fixture.fail(StoreOperation::Claim, [Fault::ReplyHeld]);
    let asked = claims(fixture);
    let call = tokio::spawn(answered(call));
    sent(fixture, StoreOperation::Claim, asked + 1).await;
    call
}

/// Another process resets the key, and some time passes.
async fn reset_far(fixture: &Fixture) {
    let entry = until(fixture, fixture.pay_far().entry()).await.unwrap();
    let reset = entry.expect("there is a record").reset();
    until(fixture, reset).await.unwrap();
    fixture.clock.advance(LATER);
}

/// A call that awaits the held reply together with an earlier one.
async fn joins(fixture: &Fixture, runs: &Runs) -> JoinHandle<Answer> {
    let (call, runs) = (fixture.pay(), runs.clone());
    let call = tokio::spawn(async move { paid(call, &runs).await });
    others().await;
    assert!(!call.is_finished());
    call
}

#[tokio::test]
async fn an_answer_that_was_read_before_is_not_replayed() {
    let (fixture, runs) = (Fixture::memory(), Runs::default());
    assert_eq!(paid(fixture.pay_far(), &runs).await, receipt(1));
    let before = claim_held(&fixture, fixture.pay()).await;
    reset_far(&fixture).await;
    let after = joins(&fixture, &runs).await;
    fixture.store.deliver();
    assert_eq!(until(&fixture, before).await.unwrap(), receipt(1));
    assert_eq!(until(&fixture, after).await.unwrap(), receipt(2));
}

#[tokio::test]
async fn an_answer_that_was_stored_before_is_not_handed_on() {
    let (fixture, runs) = (Fixture::memory(), Runs::default());
    let body = Body::start(fixture.pay(), receipt(7)).await;
    fixture.fail(StoreOperation::Complete, [Fault::ReplyHeld]);
    body.let_end();
    sent(&fixture, StoreOperation::Complete, 1).await;
    others().await;
    reset_far(&fixture).await;
    let after = joins(&fixture, &runs).await;
    fixture.store.deliver();
    assert_eq!(until(&fixture, body.join()).await, receipt(7));
    assert_eq!(until(&fixture, after).await.unwrap(), receipt(1));
}

#[tokio::test]
async fn an_answer_that_was_looked_at_before_is_not_handed_on() {
    let (fixture, runs) = (Fixture::memory(), Runs::default());
    let body = Body::start(fixture.pay_far(), receipt(7)).await;
    let (call, waits) = (fixture.pay(), runs.clone());
    let waiting = tokio::spawn(async move { paid(call, &waits).await });
    // The first poll sees a running body.
    sent(&fixture, StoreOperation::Read, 1).await;
    fixture.fail(StoreOperation::Read, [Fault::ReplyHeld]);
    assert_eq!(body.end().await, receipt(7));
    sent(&fixture, StoreOperation::Read, 2).await;
    reset_far(&fixture).await;
    let after = joins(&fixture, &runs).await;
    fixture.store.deliver();
    // It may have polled after the reset: on a thread of its own.
    until(&fixture, waiting).await.unwrap().unwrap();
    let after = until(&fixture, after).await.unwrap();
    assert_ne!(after, receipt(7));
    assert!(after.is_ok(), "{after:?}");
}

/// However many of them begin later, they cost one claim more.
#[tokio::test]
async fn calls_that_begin_later_ask_once_for_all() {
    for (later, asked) in [(Duration::ZERO, 1), (LATER, 2)] {
        let (fixture, runs) = (Fixture::memory(), Runs::default());
        assert_eq!(paid(fixture.pay_far(), &runs).await, receipt(1));
        let before = claims(&fixture);
        let leader = claim_held(&fixture, fixture.pay()).await;
        fixture.clock.advance(later);
        let tasks = duplicates(64, || fixture.pay(), &runs);
        others().await;
        // The reply to one more claim takes its time as well.
        fixture.fail(StoreOperation::Claim, [Fault::ReplyHeld]);
        fixture.store.deliver();
        others().await;
        fixture.store.deliver();
        assert_eq!(until(&fixture, leader).await.unwrap(), receipt(1));
        let answers = until(&fixture, tasks.join_all()).await;
        assert_each(answers, &receipt(1));
        assert_eq!(claims(&fixture) - before, asked, "{later:?} later");
    }
}
