//! Answers that the store has not confirmed: who gets them, and what becomes of them.

use std::time::Duration;

use idem_runtime::clock::Clock;
use idem_runtime::{Error, ErrorKind, OnUnconfirmed, Unfinished};
use idem_tests::faulty::{Fault, Operation};
use idem_tests::on_every_store;
use idem_tests::pay::{PayError, Runs};
use idem_tests::world::World;

use crate::stage::{
    Answer, Body, LEASE_OVER, answered, comes_to_rest, others, paid, receipt, refusal, sent, until,
};

on_every_store![
    within_the_lease_a_success_is_returned,
    once_the_lease_has_lapsed_a_success_is_not_returned,
    a_business_error_is_an_answer_as_well,
    a_strict_call_returns_no_answer_that_is_not_stored,
    a_lenient_call_returns_its_answer_whatever_became_of_the_lease,
    two_callers_of_one_key_never_get_two_answers,
    an_answer_is_stored_however_long_the_store_was_away,
    a_repeat_waits_for_the_answer_that_is_being_stored,
    a_repeat_waits_for_the_answer_after_max_run_as_well,
    a_repeat_of_a_corrected_request_waits_for_its_answer,
    a_shutdown_counts_the_answers_that_are_not_stored,
];

/// The store takes neither answers nor renewals.
fn cut_off(world: &World) {
    world.store.fail(Operation::Complete, [Fault::Lost; 10_000]);
    world.store.fail(Operation::Renew, [Fault::Lost; 10_000]);
}

fn back(world: &World) {
    world.store.heal();
}

fn assert_unconfirmed(error: &Error) {
    assert_eq!(error.kind(), &ErrorKind::Unconfirmed);
    assert!(error.is_retryable(), "{error}");
}

/// A body that ends after its lease, with its store away.
async fn lapsed(world: &World, call: crate::stage::Pay, answer: Answer) -> Answer {
    let body = Body::start(call, answer).await;
    cut_off(world);
    world.clock.advance(LEASE_OVER);
    others().await;
    until(world, body.end()).await
}

async fn within_the_lease_a_success_is_returned(world: World) {
    let body = Body::start(world.pay(), receipt(1)).await;
    cut_off(&world);
    world.clock.advance(Duration::from_secs(25));
    assert_eq!(until(&world, body.end()).await, receipt(1));
    back(&world);
    comes_to_rest(&world).await;
    assert_eq!(answered(world.pay_far()).await, receipt(1));
}

async fn once_the_lease_has_lapsed_a_success_is_not_returned(world: World) {
    let answer = lapsed(&world, world.pay(), receipt(1)).await;
    assert_unconfirmed(&refusal(answer));
    back(&world);
    let repeat = until(&world, answered(world.pay())).await;
    assert_eq!(repeat, receipt(1), "the repeat gets it");
    assert_eq!(answered(world.pay_far()).await, receipt(1));
}

async fn a_business_error_is_an_answer_as_well(world: World) {
    let declined = || Err(PayError::Declined { run: 1 });
    let answer = lapsed(&world, world.pay(), declined()).await;
    assert_unconfirmed(&refusal(answer));
    back(&world);
    assert_eq!(until(&world, answered(world.pay())).await, declined());
}

async fn a_strict_call_returns_no_answer_that_is_not_stored(world: World) {
    let call = world.pay().on_unconfirmed(OnUnconfirmed::Fail);
    world.store.fail(Operation::Complete, [Fault::Lost; 10_000]);
    let answer = until(&world, paid(call, &Runs::default())).await;
    assert_unconfirmed(&refusal(answer));
    back(&world);
    assert_eq!(until(&world, answered(world.pay())).await, receipt(1));
}

async fn a_lenient_call_returns_its_answer_whatever_became_of_the_lease(world: World) {
    let call = world.pay().on_unconfirmed(OnUnconfirmed::Return);
    assert_eq!(lapsed(&world, call, receipt(1)).await, receipt(1));
}

async fn two_callers_of_one_key_never_get_two_answers(world: World) {
    let first = Body::start(world.pay(), receipt(1)).await;
    world.store.fail(Operation::Renew, [Fault::Lost; 10_000]);
    world.clock.advance(LEASE_OVER);
    world.pass_in_store(LEASE_OVER);
    let second = world.pay_far().run(|_| async { receipt(2) });
    assert_eq!(second.await, receipt(2));
    world.store.fail(Operation::Complete, [Fault::Lost; 10_000]);
    let first = until(&world, first.end()).await;
    assert_unconfirmed(&refusal(first));
    back(&world);
    assert_eq!(until(&world, answered(world.pay())).await, receipt(2));
}

async fn an_answer_is_stored_however_long_the_store_was_away(world: World) {
    // A try every quarter of a second at most, so for longer than five minutes.
    world.store.fail(Operation::Complete, [Fault::Lost; 1_600]);
    let begun = world.clock.now();
    let answer = until(&world, paid(world.pay(), &Runs::default())).await;
    assert_eq!(answer, receipt(1), "within the lease");
    comes_to_rest(&world).await;
    let away = world.clock.now().saturating_sub(begun);
    assert!(away > Duration::from_mins(4), "{away:?}");
    assert_eq!(world.events.count("completed value"), 1);
    assert_eq!(answered(world.pay_far()).await, receipt(1));
}

async fn a_repeat_waits_for_the_answer_that_is_being_stored(world: World) {
    let answer = lapsed(&world, world.pay(), receipt(1)).await;
    assert_unconfirmed(&refusal(answer));
    world.pass_in_store(LEASE_OVER);
    // In the store, anybody may take the key over by now; this process knows better.
    let repeat = world.pay();
    let repeat = tokio::spawn(answered(repeat));
    others().await;
    assert!(!repeat.is_finished(), "it does not run");
    back(&world);
    assert_eq!(until(&world, repeat).await.unwrap(), receipt(1));
}

async fn a_repeat_waits_for_the_answer_after_max_run_as_well(world: World) {
    let answer = lapsed(&world, world.pay().max_run(LEASE_OVER * 2), receipt(1)).await;
    assert_unconfirmed(&refusal(answer));
    // Nobody hangs: the body has ended, and what is left of it is its answer.
    for _ in 0..4 {
        world.clock.advance(LEASE_OVER);
        others().await;
    }
    world.pass_in_store(LEASE_OVER);
    let repeat = tokio::spawn(answered(world.pay()));
    others().await;
    assert!(!repeat.is_finished(), "it does not run");
    back(&world);
    assert_eq!(until(&world, repeat).await.unwrap(), receipt(1));
}

async fn a_repeat_of_a_corrected_request_waits_for_its_answer(world: World) {
    let wrong = || world.pay().fingerprint(&"wrong");
    let first = Body::start(wrong(), Err(PayError::Down)).await;
    let again = tokio::spawn(answered(wrong()));
    others().await;
    world.store.fail(Operation::Claim, [Fault::Hangs]);
    assert_eq!(first.end().await, Err(PayError::Down));
    // It leads by now, and the corrected request claims beside it.
    sent(&world, Operation::Claim, 2).await;
    let corrected = || world.pay().fingerprint(&"corrected");
    let answer = lapsed(&world, corrected(), receipt(2)).await;
    assert_unconfirmed(&refusal(answer));
    drop(again);
    world.pass_in_store(LEASE_OVER);
    let repeat = tokio::spawn(answered(corrected()));
    others().await;
    assert!(!repeat.is_finished(), "it does not run");
    back(&world);
    assert_eq!(until(&world, repeat).await.unwrap(), receipt(2));
}

async fn a_shutdown_counts_the_answers_that_are_not_stored(world: World) {
    world.store.fail(Operation::Complete, [Fault::Lost; 10_000]);
    let answer = until(&world, paid(world.pay(), &Runs::default())).await;
    assert_eq!(answer, receipt(1));
    sent(&world, Operation::Complete, 2).await;
    let unfinished = world.engine.shutdown(Duration::ZERO).await.unwrap_err();
    assert!(
        matches!(unfinished, Unfinished { unstored: 1, .. }),
        "{unfinished:?}"
    );
    assert!(
        unfinished.to_string().contains("answers that are not stored, so that their calls may run again if the process ends now: 1"),
        "{unfinished}"
    );
    back(&world);
    comes_to_rest(&world).await;
    assert_eq!(answered(world.pay_far()).await, receipt(1));
}
