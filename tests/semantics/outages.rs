//! A store that does not answer before the body runs: nothing runs.

use std::num::NonZeroU16;

use idem_runtime::clock::Clock as _;
use idem_tests::shop::assert_contains;

use crate::prelude::*;
use crate::rows::Row;

on_every_store! {
    a_silent_store_fails_the_call_at_its_deadline,
    a_failing_store_is_asked_again_until_the_deadline,
    a_store_that_fails_before_it_falls_silent_keeps_its_error,
    after_a_failure_of_a_whole_deadline_later_calls_fail_soon,
    a_call_in_an_outage_awaits_the_try_that_is_under_way,
    a_grant_that_comes_after_its_lease_is_asked_for_again, a_store_that_refuses_is_not_asked_again,
    a_claim_that_was_granted_unseen_is_given_back,
}

async fn a_silent_store_fails_the_call_at_its_deadline(fixture: Fixture) {
    fixture.fail(StoreOperation::Claim, [Fault::Hangs]);
    let call = tokio::spawn(answered(fixture.pay()));
    fixture.clock.sleeper_within(Duration::from_secs(2)).await;
    fixture.clock.advance(Duration::from_millis(1_999));
    tokio::task::yield_now().await;
    assert!(!call.is_finished());
    fixture.clock.advance(Duration::from_millis(1));
    let error = refusal(call.await.unwrap());
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
    assert!(error.is_retryable());
    assert_contains(&error, "no reply to a claim within 2s");
}

/// The rest of a deadline of 2 s while an outage lasts.
const SHORT: Duration = Duration::from_millis(250);

/// Calls until the store is unavailable; how long that took, and how many claims.
async fn fails(fixture: &Fixture, call: Pay) -> (Duration, usize) {
    let before = claims(fixture);
    let began = fixture.clock.now();
    let mut call = tokio::spawn(answered(call));
    let error = loop {
        tokio::select! {
            biased;
            answer = &mut call => break refusal(answer.unwrap()),
            () = fixture.clock.sleeper_within(Duration::from_secs(1)) => {}
        }
        // To the moment.
        if let Some(step) = fixture.clock.next_wake() {
            fixture.clock.advance(step);
        }
        others().await;
    };
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
    assert!(error.is_retryable());
    assert_contains(&error, "an injected fault");
    let claims = claims(fixture) - before;
    (fixture.clock.now().saturating_sub(began), claims)
}

/// A store fails beyond the whole deadline of one call.
async fn outage(fixture: &Fixture) {
    fixture.fail(StoreOperation::Claim, [Fault::Lost; 1_000]);
    let (took, _) = fails(fixture, fixture.pay()).await;
    assert_eq!(took, Duration::from_secs(2));
}

fn other(fixture: &Fixture, key: u32) -> Pay {
    fixture.engine.operation("pay").key(&("other", key))
}

async fn a_failing_store_is_asked_again_until_the_deadline(fixture: Fixture) {
    outage(&fixture).await;
    let tries = fixture.store.sent(StoreOperation::Claim);
    assert!((8..=40).contains(&tries.len()), "{} tries", tries.len());
    assert!(
        tries.iter().all(|owner| *owner == tries[0]),
        "always the same owner"
    );
}

async fn after_a_failure_of_a_whole_deadline_later_calls_fail_soon(fixture: Fixture) {
    outage(&fixture).await;
    for key in 0..3 {
        let (took, claims) = fails(&fixture, other(&fixture, key)).await;
        assert_eq!(took, SHORT);
        assert!(claims > 2, "it makes attempts of its own: {claims}");
        // Later, and another call's failure is the remembered one.
        fixture.clock.advance(Duration::from_secs(15));
    }
}

async fn a_call_in_an_outage_awaits_the_try_that_is_under_way(fixture: Fixture) {
    outage(&fixture).await;
    fixture.store.heal();
    fixture.fail(StoreOperation::Claim, [Fault::ReplyHeld]);
    let before = claims(&fixture);
    let call = other(&fixture, 0);
    let call = tokio::spawn(async move { paid(call, &Runs::default()).await });
    sent(&fixture, StoreOperation::Claim, before + 1).await;
    fixture.clock.advance(SHORT * 2);
    others().await;
    fixture.store.deliver();
    assert_eq!(call.await.unwrap(), receipt(1));
    // Its reply has ended the outage.
    outage(&fixture).await;
}

async fn a_store_that_fails_before_it_falls_silent_keeps_its_error(fixture: Fixture) {
    fixture.fail(StoreOperation::Claim, [Fault::Lost, Fault::Hangs]);
    let call = tokio::spawn(answered(fixture.pay()));
    sent(&fixture, StoreOperation::Claim, 1).await;
    let pause = Duration::from_millis(100);
    wakes(&fixture, pause).await;
    sent(&fixture, StoreOperation::Claim, 2).await;
    fixture.clock.advance(Duration::from_secs(2));
    let error = refusal(call.await.unwrap());
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
    assert_contains(&error, "an injected fault");
}

/// A fixture of short leases that holds this many claims' replies.
fn slow(fixture: Fixture, claims: usize) -> Fixture {
    let fixture = fixture.with(|engine| engine.lease(Duration::from_secs(1)));
    let held = std::iter::repeat_n(Fault::ReplyHeld, claims);
    fixture.fail(StoreOperation::Claim, held);
    fixture
}

async fn a_grant_that_comes_after_its_lease_is_asked_for_again(fixture: Fixture) {
    let fixture = slow(fixture, 1);
    let call = tokio::spawn(fixture.pay().run(|cx| async move {
        assert_eq!(cx.attempt(), 1, "the same claim, sent again");
        assert_eq!(cx.lease_remaining(), Duration::from_secs(1));
        receipt(1)
    }));
    sent(&fixture, StoreOperation::Claim, 1).await;
    fixture.clock.advance(Duration::from_millis(1_500));
    fixture.store.deliver();
    assert_eq!(call.await.unwrap(), receipt(1));
    let claims = fixture.store.sent(StoreOperation::Claim);
    assert!(matches!(claims[..], [one, two] if one == two), "{claims:?}");
}

/// The store replies at once: the order of reply and deadline is known.
#[tokio::test]
async fn a_store_that_grants_after_the_lease_is_given_up() {
    let fixture = slow(Fixture::memory(), 1_000);
    let call = tokio::spawn(answered(fixture.pay()));
    let second = Duration::from_secs(1);
    for claims in 1..=3 {
        sent(&fixture, StoreOperation::Claim, claims).await;
        fixture.store.deliver();
        fixture.clock.advance(second);
        others().await;
    }
    let error = refusal(patiently("the call ends", call).await.unwrap());
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
    assert_contains(&error, "longer to grant the claim");
    // The granted claim is released.
    fixture.events.wait_for("released", 1).await;
}

async fn a_store_that_refuses_is_not_asked_again(fixture: Fixture) {
    fixture.fail(StoreOperation::Claim, [Fault::Refused]);
    let error = refusal(answered(fixture.pay()).await);
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
    assert_eq!(claims(&fixture), 1);
    assert!(!error.is_retryable(), "{error}");
}

/// The engine's thread releases the key, and the claim does not count: its body never began.
async fn a_claim_that_was_granted_unseen_is_given_back(mut fixture: Fixture) {
    let once = |call: Pay| call.max_attempts(NonZeroU16::new(1));
    for row in ["of one attempt", "runs bare", "its caller goes"] {
        let _row = Row::new(&fixture, row);
        let (pay, runs) = (fixture.pay(), Runs::default());
        let call = match row {
            "of one attempt" => once(pay),
            "runs bare" => pay.on_outage(OnOutage::Run),
            _ => pay.on_cancel(OnCancel::Unknown),
        };
        let released = fixture.count(StoreOperation::Release);
        fixture.fail(StoreOperation::Claim, [Fault::ReplyHangs]);
        let ran = runs.clone();
        let call = tokio::spawn(async move { paid(call, &ran).await });
        while fixture.store.read(&fixture.key()).await.unwrap() == ReadReply::Absent {
            tokio::task::yield_now().await;
        }
        if row == "its caller goes" {
            call.abort();
        } else {
            fixture.clock.advance(Duration::from_secs(2));
            let answer = call.await.unwrap();
            if row == "runs bare" {
                assert_eq!(answer, receipt(1));
            } else {
                assert_refusal(answer, &ErrorKind::StoreUnavailable);
            }
        }
        comes_to_rest(&fixture).await;
        assert_eq!(runs.count(), u32::from(row == "runs bare"));
        assert_eq!(stands(&fixture).await, (EntryState::Released, 0));
        assert_eq!(fixture.count(StoreOperation::Release), released + 1);
        let next = once(fixture.pay_far()).run(|cx| async move { receipt(cx.attempt().into()) });
        assert_eq!(next.await, receipt(1));
        fixture = fixture.with(|engine| engine);
    }
    assert_eq!(fixture.events.count("dropped"), 0, "there was no body");
}
