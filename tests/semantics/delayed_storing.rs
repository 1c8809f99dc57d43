//! Endings that the store does not take at once: how long they are retried, the answer of their caller, and the
//! work left to the engine's thread.

use crate::prelude::*;

on_every_store![
    a_completion_that_is_refused_is_reported_and_tried_again,
    an_answer_is_given_up_when_it_would_have_expired,
    an_answer_whose_key_another_request_has_is_not_stored,
    an_answer_is_not_stored_over_an_unreadable_record,
    an_overtaken_call_whose_winner_cannot_be_read_does_not_return_its_own_answer,
    an_overtaken_call_outlasts_an_outage_while_it_waits,
    a_business_error_is_not_stored_behind_a_successor_that_gave_up,
    a_short_deadline_is_the_callers_and_not_the_stores,
    a_caller_waits_for_its_ending_until_the_deadline_and_no_longer,
    a_release_that_is_refused_is_reported_and_not_sent_again,
];

async fn a_completion_that_is_refused_is_reported_and_tried_again(fixture: Fixture) {
    fixture.fail(StoreOperation::Complete, [Fault::Refused; 3]);
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    let reason = "unsaved: an injected fault; storing goes on in the background";
    assert_eq!(fixture.events.count(reason), 1);
    // The missing right is granted: the engine's thread notices.
    until(&fixture, fixture.events.wait_for("completed value", 1)).await;
    assert_eq!(fixture.count(StoreOperation::Complete), 4);
    assert_eq!(answered(fixture.pay()).await, receipt(1));
}

async fn an_answer_is_given_up_when_it_would_have_expired(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.ttl(Duration::from_mins(3)));
    let begun = fixture.clock.now();
    fixture.fail(StoreOperation::Complete, [Fault::Refused; 10_000]);
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    let given_up = "unsaved: an injected fault; storing is given up";
    until(&fixture, fixture.events.wait_for(given_up, 1)).await;
    let tried = fixture.clock.now().saturating_sub(begun);
    assert!(tried >= Duration::from_mins(3), "given up after {tried:?}");
}

async fn an_answer_whose_key_another_request_has_is_not_stored(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.ttl(Duration::from_mins(1)));
    let first = Body::start(fixture.pay().fingerprint(&1), receipt(1)).await;
    // The store forgets the claim, and grants the key to another request.
    fixture.pass_in_store(Duration::from_hours(25));
    let other = || fixture.pay_far().fingerprint(&2);
    let second = Body::start(other(), receipt(2)).await;
    assert_eq!(first.end().await, receipt(1), "it did happen");
    assert_eq!(fixture.events.count("unsaved: the record was lost"), 1);
    assert_eq!(fixture.count(StoreOperation::Complete), 1);
    assert_eq!(second.end().await, receipt(2));
    assert_eq!(answered(other()).await, receipt(2));
}

async fn an_answer_is_not_stored_over_an_unreadable_record(fixture: Fixture) {
    let body = Body::start(fixture.pay(), receipt(1)).await;
    fixture.plant(b"what another program keeps under this name");
    assert_eq!(body.end().await, receipt(1), "it did happen");
    assert_eq!(fixture.events.count("unsaved"), 1);
    assert_eq!(fixture.count(StoreOperation::Complete), 1);
}

async fn an_overtaken_call_whose_winner_cannot_be_read_does_not_return_its_own_answer(
    fixture: Fixture,
) {
    fixture.fail(StoreOperation::Complete, [Fault::TooLarge]);
    let answer = paid(fixture.pay(), &Runs::default()).await;
    assert_refusal(answer, &ErrorKind::TooLarge);
}

/// Lets this time pass, by the short sleeps of a task.
async fn pass(fixture: &Fixture, time: Duration) {
    let end = fixture.clock.now() + time;
    while fixture.clock.now() < end {
        fixture.clock.sleeper_within(Duration::from_secs(1)).await;
        let step = fixture.clock.next_wake().expect("a task sleeps");
        let left = end.saturating_sub(fixture.clock.now());
        fixture.clock.advance(step.min(left));
        others().await;
    }
}

async fn an_overtaken_call_outlasts_an_outage_while_it_waits(fixture: Fixture) {
    let patience = OnRunning::Wait(Duration::from_secs(20));
    let call = fixture.pay().on_running(patience);
    let (first, second) = overtaken(&fixture, call, receipt(1)).await;
    let first = tokio::spawn(first.end());
    // Longer than a store may be silent, and it answers all the time.
    pass(&fixture, Duration::from_secs(4)).await;
    fixture.fail(StoreOperation::Complete, [Fault::Lost; 2]);
    pass(&fixture, Duration::from_secs(1)).await;
    assert!(!first.is_finished());
    assert_eq!(second.end().await, receipt(2));
    assert_eq!(until(&fixture, first).await.unwrap(), receipt(2));
}

async fn a_business_error_is_not_stored_behind_a_successor_that_gave_up(fixture: Fixture) {
    let call = fixture.pay().on_running(OnRunning::Reject);
    let (first, second) = overtaken(&fixture, call, Err(PayError::Declined { run: 1 })).await;
    assert_running(&refusal(first.end().await));
    // The second of two attempts releases the key, and the first does not report its result any more.
    second.drop_caller().await;
    fixture.pass_in_store(LEASE_OVER);
    down(fixture.pay_far()).await;
    comes_to_rest(&fixture).await;
    assert_eq!(stands(&fixture).await.0, EntryState::Released);
    assert_eq!(paid(fixture.pay_far(), &Runs::default()).await, receipt(1));
}

async fn a_short_deadline_is_the_callers_and_not_the_stores(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.complete_deadline(Duration::from_millis(100)));
    fixture.fail(StoreOperation::Complete, [Fault::Hangs, Fault::ReplyHeld]);
    let other = claimed(fixture.engine.operation("other").key(&1)).await;
    let body = Body::start(fixture.pay(), receipt(1)).await;
    body.let_end();
    sent(&fixture, StoreOperation::Complete, 1).await;
    fixture.clock.advance(Duration::from_millis(100));
    let answer = patiently("its caller waits no longer", body.join()).await;
    assert_eq!(answer, receipt(1));
    assert_eq!(fixture.events.count("unsaved: the store did not answer"), 1);
    sent(&fixture, StoreOperation::Complete, 2).await;
    fixture.clock.advance(Duration::from_millis(1_900));
    // The engine's thread is through with the work it was woken for.
    other.renew().await.unwrap();
    fixture.store.deliver();
    fixture.events.wait_for("completed value", 1).await;
    assert_eq!(fixture.count(StoreOperation::Complete), 2);
    other.release().await;
}

async fn a_caller_waits_for_its_ending_until_the_deadline_and_no_longer(mut fixture: Fixture) {
    let value = EntryState::Answered(idem_runtime::store::OutcomeKind::Value);
    for (operation, ends, state) in [
        (
            StoreOperation::Release,
            Err(PayError::Down),
            EntryState::Released,
        ),
        (StoreOperation::Complete, receipt(1), value),
    ] {
        fixture.fail(operation, [Fault::Lost; 100]);
        let begun = fixture.clock.now();
        let call = fixture.pay().run(|_| async { ends.clone() });
        assert_eq!(until(&fixture, call).await, ends);
        let waited = fixture.clock.now().saturating_sub(begun);
        assert_eq!(waited, Duration::from_secs(2), "{operation:?}");
        let tries = fixture.count(operation);
        assert!((8..=40).contains(&tries), "{operation:?}: {tries} tries");
        // The engine's thread sends it until it arrives.
        comes_to_rest(&fixture).await;
        assert_eq!(stands(&fixture).await.0, state);
        fixture = fixture.with(|engine| engine);
    }
}

async fn a_release_that_is_refused_is_reported_and_not_sent_again(fixture: Fixture) {
    fixture.fail(StoreOperation::Release, [Fault::Refused; 100]);
    down(fixture.pay()).await;
    comes_to_rest(&fixture).await;
    assert_eq!(fixture.count(StoreOperation::Release), 1);
    let warning = "warning: the key is not released, and its lease has to lapse: an injected fault";
    assert_eq!(fixture.events.count(warning), 1);
    assert_running(&refused_far(&fixture).await);
}
