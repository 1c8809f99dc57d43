//! Answers that the store has not confirmed: which callers get them, and how they end.

use idem_runtime::OnUnconfirmed;

use crate::prelude::*;
use crate::rows::Row;

on_every_store! {
    within_the_lease_a_success_is_returned, once_the_lease_has_lapsed_an_answer_is_not_returned,
    a_strict_call_returns_no_answer_that_is_not_stored,
    after_the_lease_an_answer_whose_key_another_request_has_is_not_returned,
    a_lenient_call_returns_its_answer_even_without_its_lease,
    two_callers_of_one_key_never_get_two_answers,
    an_answer_is_stored_however_long_the_store_was_away,
    a_repeat_waits_for_the_answer_that_is_being_stored,
    a_repeat_of_a_corrected_request_waits_for_its_answer,
    a_shutdown_counts_the_answers_that_are_not_stored,
}

/// The store takes neither answers nor renewals.
fn cut_off(fixture: &Fixture) {
    fixture.fail(StoreOperation::Complete, [Fault::Lost; 10_000]);
    fixture.fail(StoreOperation::Renew, [Fault::Lost; 10_000]);
}

fn assert_unconfirmed(error: &Error) {
    assert_eq!(error.kind(), &ErrorKind::Unconfirmed);
    assert!(error.is_retryable(), "{error}");
}

/// A body that ends after its lease, with its store away.
async fn lapsed(fixture: &Fixture, call: Pay, answer: Answer) -> Answer {
    let body = Body::start(call, answer).await;
    cut_off(fixture);
    fixture.clock.advance(LEASE_OVER);
    others().await;
    until(fixture, body.end()).await
}

async fn within_the_lease_a_success_is_returned(fixture: Fixture) {
    let body = Body::start(fixture.pay(), receipt(1)).await;
    cut_off(&fixture);
    fixture.clock.advance(Duration::from_secs(25));
    assert_eq!(until(&fixture, body.end()).await, receipt(1));
    fixture.store.heal();
    comes_to_rest(&fixture).await;
    assert_eq!(answered(fixture.pay_far()).await, receipt(1));
}

async fn once_the_lease_has_lapsed_an_answer_is_not_returned(mut fixture: Fixture) {
    for answer in [receipt(1), Err(PayError::Declined { run: 1 })] {
        let _row = Row::new(&fixture, &answer);
        let told = lapsed(&fixture, fixture.pay(), answer.clone()).await;
        assert_unconfirmed(&refusal(told));
        fixture.store.heal();
        let repeat = until(&fixture, answered(fixture.pay())).await;
        assert_eq!(repeat, answer, "the repeat gets it");
        assert_eq!(answered(fixture.pay_far()).await, answer);
        fixture = fixture.with(|engine| engine);
    }
}

async fn a_strict_call_returns_no_answer_that_is_not_stored(fixture: Fixture) {
    let call = fixture.pay().on_unconfirmed(OnUnconfirmed::Fail);
    fixture.fail(StoreOperation::Complete, [Fault::Lost; 10_000]);
    let answer = until(&fixture, paid(call, &Runs::default())).await;
    assert_unconfirmed(&refusal(answer));
    fixture.store.heal();
    assert_eq!(until(&fixture, answered(fixture.pay())).await, receipt(1));
}

/// Another caller of the same request may have got another answer.
async fn after_the_lease_an_answer_whose_key_another_request_has_is_not_returned(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.ttl(Duration::from_mins(1)));
    let first = Body::start(fixture.pay().fingerprint(&1), receipt(1)).await;
    fixture.fail(StoreOperation::Renew, [Fault::Lost; 10_000]);
    fixture.clock.advance(LEASE_OVER);
    fixture.pass_in_store(LEASE_OVER);
    let same = fixture.pay_far().fingerprint(&1);
    assert_eq!(same.run(|_| async { receipt(2) }).await, receipt(2));
    fixture.pass_in_store(Duration::from_hours(25));
    let other = Body::start(fixture.pay_far().fingerprint(&2), receipt(3)).await;
    assert_unconfirmed(&refusal(first.end().await));
    assert_eq!(other.end().await, receipt(3));
}

async fn a_lenient_call_returns_its_answer_even_without_its_lease(fixture: Fixture) {
    let call = fixture.pay().on_unconfirmed(OnUnconfirmed::Return);
    assert_eq!(lapsed(&fixture, call, receipt(1)).await, receipt(1));
}

async fn two_callers_of_one_key_never_get_two_answers(fixture: Fixture) {
    let first = Body::start(fixture.pay(), receipt(1)).await;
    fixture.fail(StoreOperation::Renew, [Fault::Lost; 10_000]);
    fixture.clock.advance(LEASE_OVER);
    fixture.pass_in_store(LEASE_OVER);
    let second = fixture.pay_far().run(|_| async { receipt(2) });
    assert_eq!(second.await, receipt(2));
    fixture.fail(StoreOperation::Complete, [Fault::Lost; 10_000]);
    let first = until(&fixture, first.end()).await;
    assert_unconfirmed(&refusal(first));
    fixture.store.heal();
    assert_eq!(until(&fixture, answered(fixture.pay())).await, receipt(2));
}

async fn an_answer_is_stored_however_long_the_store_was_away(fixture: Fixture) {
    // A try every quarter of a second at most, so for longer than five minutes.
    fixture.fail(StoreOperation::Complete, [Fault::Lost; 1_600]);
    let begun = fixture.clock.now();
    let answer = until(&fixture, paid(fixture.pay(), &Runs::default())).await;
    assert_eq!(answer, receipt(1), "within the lease");
    comes_to_rest(&fixture).await;
    let away = fixture.clock.now().saturating_sub(begun);
    assert!(away > Duration::from_mins(4), "{away:?}");
    assert_eq!(fixture.events.count("completed value"), 1);
    assert_eq!(answered(fixture.pay_far()).await, receipt(1));
}

/// A repeat waits for the answer, which the store takes again.
async fn waits_for(fixture: &Fixture, repeat: Pay, answer: &Answer) {
    let repeat = tokio::spawn(answered(repeat));
    others().await;
    assert!(!repeat.is_finished(), "it does not run");
    fixture.store.heal();
    assert_eq!(until(fixture, repeat).await.unwrap(), *answer);
}

async fn a_repeat_waits_for_the_answer_that_is_being_stored(fixture: Fixture) {
    let answer = lapsed(&fixture, fixture.pay(), receipt(1)).await;
    assert_unconfirmed(&refusal(answer));
    fixture.pass_in_store(LEASE_OVER);
    // In the store, any process may take the key over by now; this process knows better.
    waits_for(&fixture, fixture.pay(), &receipt(1)).await;
}

async fn a_repeat_of_a_corrected_request_waits_for_its_answer(fixture: Fixture) {
    let wrong = || fixture.pay().fingerprint(&"wrong");
    let first = Body::start(wrong(), Err(PayError::Down)).await;
    let again = tokio::spawn(answered(wrong()));
    others().await;
    fixture.fail(StoreOperation::Claim, [Fault::Hangs]);
    assert_eq!(first.end().await, Err(PayError::Down));
    // It leads by now, and the corrected request claims beside it.
    sent(&fixture, StoreOperation::Claim, 2).await;
    let corrected = || fixture.pay().fingerprint(&"corrected");
    let answer = lapsed(&fixture, corrected(), receipt(2)).await;
    assert_unconfirmed(&refusal(answer));
    drop(again);
    fixture.pass_in_store(LEASE_OVER);
    waits_for(&fixture, corrected(), &receipt(2)).await;
}

async fn a_shutdown_counts_the_answers_that_are_not_stored(fixture: Fixture) {
    fixture.fail(StoreOperation::Complete, [Fault::Lost; 10_000]);
    let answer = until(&fixture, paid(fixture.pay(), &Runs::default())).await;
    assert_eq!(answer, receipt(1));
    sent(&fixture, StoreOperation::Complete, 2).await;
    let unfinished = fixture.engine.shutdown(Duration::ZERO).await.unwrap_err();
    assert_eq!(unfinished.unstored, 1);
    fixture.store.heal();
    comes_to_rest(&fixture).await;
    assert_eq!(answered(fixture.pay_far()).await, receipt(1));
}
