//! A body that is dropped because its lease is lost: the outcome of its caller, and the state of its key.

use crate::lease_lost::third;
use crate::prelude::*;

on_every_store! {
    a_cancelled_body_waits_for_the_winner, a_cancelled_body_without_a_winner_is_refused,
    a_cancelled_body_without_a_successor_is_reported_at_once,
    a_cancelled_body_reports_an_unknown_outcome,
    a_cancelled_body_whose_ending_is_late_is_waited_for,
    a_cancelled_body_that_is_released_frees_its_key,
    a_cancelled_body_does_not_end_the_winners_claim,
    a_cancelled_call_does_not_adopt_the_answer_of_another_request,
}

fn cancels(call: Pay) -> Pay {
    call.on_lease_lost(OnLeaseLost::Cancel)
}

/// Another process takes the key over from a body, then cancelled.
async fn cancelled(fixture: &Fixture, call: Pay, winner: Answer) -> (Body, Body) {
    let first = Body::start(cancels(call), receipt(7)).await;
    fixture.pass_in_store(LEASE_OVER);
    let second = Body::start(fixture.pay_far(), winner).await;
    (first, second)
}

async fn a_cancelled_body_waits_for_the_winner(fixture: Fixture) {
    let patient = patient(fixture.pay());
    let (first, second) = cancelled(&fixture, patient, receipt(8)).await;
    third(&fixture).await;
    fixture.events.wait_for("lease lost", 1).await;
    let both = async { tokio::join!(first.join(), second.end()) };
    assert_eq!(until(&fixture, both).await, (receipt(8), receipt(8)));
}

async fn a_cancelled_body_without_a_winner_is_refused(fixture: Fixture) {
    let (first, second) = cancelled(&fixture, fixture.pay(), receipt(8)).await;
    third(&fixture).await;
    let error = refusal(until(&fixture, first.join()).await);
    let left = assert_running(&error);
    assert!(left > Duration::from_secs(20), "of the winner: {left:?}");
    assert_eq!(second.end().await, receipt(8));
}

async fn a_cancelled_body_without_a_successor_is_reported_at_once(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.max_run(Duration::from_secs(15)));
    let body = Body::start(cancels(fixture.pay()), receipt(7)).await;
    third(&fixture).await;
    fixture.events.wait_for("renewed", 1).await;
    fixture.pass_in_store(Duration::from_secs(5));
    fixture.clock.advance(Duration::from_secs(5));
    // Time stands still: the call does not wait for a successor, because there is none.
    let error = refusal(body.join().await);
    let left = assert_running(&error);
    assert!(left > Duration::from_secs(20), "of its own lease: {left:?}");
}

async fn a_cancelled_body_reports_an_unknown_outcome(fixture: Fixture) {
    fixture.fail(StoreOperation::Renew, [Fault::Hangs; 1_000]);
    let call = cancels(fixture.pay()).on_cancel(OnCancel::Unknown);
    let body = Body::start(call, receipt(7)).await;
    fixture.clock.advance(LEASE_OVER);
    assert_unknown(&refusal(until(&fixture, body.join()).await));
    assert_unknown(&refused_far(&fixture).await);
    assert_eq!(stands(&fixture).await, (EntryState::Unknown, 1));
}

async fn a_cancelled_body_whose_ending_is_late_is_waited_for(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.max_run(Duration::from_secs(15)));
    // For as long as its caller waits for it; then it goes on in the background.
    let faults = [Fault::Hangs, Fault::Held];
    fixture.fail(StoreOperation::Complete, faults);
    let call = cancels(fixture.pay()).on_cancel(OnCancel::Unknown);
    let body = Body::start(call, receipt(7)).await;
    third(&fixture).await;
    fixture.events.wait_for("renewed", 1).await;
    fixture.clock.advance(Duration::from_secs(5));
    let patience = Duration::from_secs(2);
    wakes(&fixture, patience).await;
    let call = tokio::spawn(body.join());
    // It polls, and sleeps until the next poll.
    let asleep = fixture.clock.sleeper_within(Duration::from_secs(1));
    patiently("it waits for the reply of the store", asleep).await;
    fixture.store.deliver();
    assert_unknown(&refusal(until(&fixture, call).await.unwrap()));
}

async fn a_cancelled_body_that_is_released_frees_its_key(fixture: Fixture) {
    fixture.fail(StoreOperation::Renew, [Fault::Hangs; 1_000]);
    let call = cancels(fixture.pay()).on_cancel(OnCancel::Release);
    let body = Body::start(call, receipt(7)).await;
    fixture.clock.advance(LEASE_OVER);
    // Time stands still: the call waits for no other one.
    assert_running(&refusal(body.join().await));
    assert_eq!(fixture.events.count("dropped"), 0, "idem dropped it");
    assert_eq!(stands(&fixture).await, (EntryState::Released, 0));
    assert_eq!(paid(fixture.pay_far(), &Runs::default()).await, receipt(1));
}

async fn a_cancelled_body_does_not_end_the_winners_claim(fixture: Fixture) {
    for (number, on_cancel) in (1..).zip([OnCancel::Release, OnCancel::Unknown]) {
        let near = fixture.engine.operation("pay").key(&(7, number));
        let far = || fixture.far.operation("pay").key(&(7, number));
        let first = Body::start(cancels(near).on_cancel(on_cancel), receipt(7)).await;
        fixture.pass_in_store(LEASE_OVER);
        let second = Body::start(far(), receipt(8)).await;
        // The renewal of the second one is due at the same moment, and is granted.
        third(&fixture).await;
        fixture.events.wait_for("lease lost", number).await;
        assert_running(&refusal(until(&fixture, first.join()).await));
        let third = far().on_running(OnRunning::Reject);
        assert_running(&refusal(answered(third).await));
        assert_eq!(second.end().await, receipt(8));
        assert_eq!(answered(far()).await, receipt(8));
    }
}

/// The record was lost, and another request now has the key.
async fn a_cancelled_call_does_not_adopt_the_answer_of_another_request(fixture: Fixture) {
    let fixture = fixture.with(|engine| {
        let engine = engine.ttl(Duration::from_mins(1));
        engine.on_lease_lost(OnLeaseLost::Cancel)
    });
    let first = Body::start(fixture.pay().fingerprint(&1), receipt(1)).await;
    fixture.pass_in_store(Duration::from_mins(1));
    let other = fixture.pay_far().fingerprint(&2);
    assert_eq!(other.run(|_| async { receipt(2) }).await, receipt(2));
    third(&fixture).await;
    let cancelled = until(&fixture, first.join()).await;
    assert_ne!(cancelled, receipt(2), "the answer to another request");
}
