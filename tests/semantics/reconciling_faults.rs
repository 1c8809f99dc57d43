//! Reconciling while the store, the lease or another process is in the way: the body starts only with a claim
//! of its own, and no answer is lost.

use crate::prelude::*;
use crate::rows::Row;

on_every_store![
    the_lease_is_renewed_during_a_long_hook,
    an_overtaken_hook_gets_the_winners_answer,
    an_overtaken_hook_starts_no_body_beside_another_one,
    an_overtaken_hook_is_dropped_if_the_operation_cancels,
    a_store_that_is_silent_before_the_hook_is_not_asked_around,
    a_store_that_is_silent_after_the_hook_starts_no_body,
    a_caller_dropped_while_it_claims_to_run_gives_the_key_back,
    a_landed_effect_is_stored_although_its_caller_is_gone,
    a_landed_effect_that_cannot_be_stored_leaves_a_tombstone,
    a_body_that_starts_after_its_hook_was_overtaken_holds_a_lease,
    a_verdict_from_before_another_body_starts_nothing,
];

async fn the_lease_is_renewed_during_a_long_hook(fixture: Fixture) {
    // All of it is over before the hook's deadline.
    let lease = Duration::from_secs(3);
    let fixture = fixture.with(|engine| engine.lease(lease));
    timed_out(fixture.pay()).await;
    let asking = Asking::start(&fixture, fixture.pay()).await;
    for renewals in 1..=6 {
        renewed(&fixture, lease / 3, renewals).await;
        assert_running(&refused_far(&fixture).await);
    }
    assert_eq!(asking.end().await, receipt(7));
}

/// A hook that is paused for longer than its lease, until the hook of another process has returned this.
async fn overtaken(fixture: &Fixture, says: Says, winner: Says) -> (Asking, Asking) {
    timed_out(fixture.pay()).await;
    let first = Asking::saying(fixture, fixture.pay(), says).await;
    fixture.pass_in_store(LEASE_OVER);
    let second = Asking::saying(fixture, fixture.pay_far(), winner).await;
    (first, second)
}

const OTHER: Says = Reconciled::Landed(Receipt { run: 9 });

async fn an_overtaken_hook_gets_the_winners_answer(fixture: Fixture) {
    // It found something else out, or nothing.
    for says in [OTHER, Says::Unknown] {
        let _row = Row::new(&fixture, &says);
        let (first, second) = overtaken(&fixture, says, LANDED).await;
        assert_eq!(second.end().await, receipt(7));
        let first = until(&fixture, first.end()).await;
        assert_eq!(first, receipt(7), "never its own");
        assert_eq!(answered(fixture.pay()).await, receipt(7));
    }
}

async fn an_overtaken_hook_starts_no_body_beside_another_one(fixture: Fixture) {
    let (first, second) = overtaken(&fixture, Says::NotLanded, LANDED).await;
    let error = refusal(until(&fixture, first.end()).await);
    assert_running(&error);
    assert_eq!(second.end().await, receipt(7), "its claim was not taken");
    assert_eq!(answered(fixture.pay()).await, receipt(7));
}

async fn an_overtaken_hook_is_dropped_if_the_operation_cancels(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let call = fixture.pay().on_lease_lost(OnLeaseLost::Cancel);
    let first = Asking::start(&fixture, call).await;
    fixture.pass_in_store(LEASE_OVER);
    let second = Asking::start(&fixture, fixture.pay_far()).await;
    assert_eq!(second.end().await, receipt(7));
    // A third of the lease later its renewal is refused.
    fixture.clock.advance(Duration::from_secs(9));
    let answer = until(&fixture, async { first.task.await.unwrap() }).await;
    assert_eq!(answer, receipt(7), "without having said anything");
}

async fn a_store_that_is_silent_before_the_hook_is_not_asked_around(fixture: Fixture) {
    let counts = Counts::default();
    timed_out(fixture.pay()).await;
    fixture.fail(StoreOperation::Claim, [Fault::ReplyHangs]);
    let call = tokio::spawn({
        let (call, counts) = (fixture.pay(), counts.clone());
        async move { reconciled(call, LANDED, &counts).await }
    });
    while !matches!(stands(&fixture).await.0, EntryState::Running { .. }) {}
    fixture.clock.advance(Duration::from_secs(2));
    let error = refusal(call.await.unwrap());
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
    assert_eq!(counts.both(), (0, 0));
    comes_to_rest(&fixture).await;
    assert_eq!(stands(&fixture).await, (EntryState::Unknown, 1));
}

/// The claim to run has no reply. One that was granted unseen is given back: it did not land, and nothing was started
/// since.
async fn a_store_that_is_silent_after_the_hook_starts_no_body(fixture: Fixture) {
    for (fault, state) in [
        (Fault::Hangs, EntryState::Unknown),
        (Fault::ReplyHangs, EntryState::Released),
    ] {
        let _row = Row::new(&fixture, fault);
        timed_out(fixture.pay()).await;
        let asked = claims(&fixture);
        fixture.fail(StoreOperation::Claim, [Fault::None, fault]);
        let counts = Counts::default();
        let (call, of_call) = (fixture.pay(), counts.clone());
        let call = tokio::spawn(async move { reconciled(call, Says::NotLanded, &of_call).await });
        sent(&fixture, StoreOperation::Claim, asked + 2).await;
        if fault == Fault::ReplyHangs {
            while stands(&fixture).await.1 < 2 {}
        }
        others().await;
        fixture.clock.advance(Duration::from_secs(2));
        let error = refusal(until(&fixture, call).await.unwrap());
        assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
        assert_eq!(counts.both(), (1, 0), "no body without a claim");
        comes_to_stand(&fixture, |stands| stands == state).await;
        assert_eq!(stands(&fixture).await, (state, 1));
        let next = fixture.pay_far().on_running(OnRunning::Reject);
        let next = next.run(|cx| async move { receipt(cx.attempt().into()) });
        if state == EntryState::Released {
            assert_eq!(next.await, receipt(2));
        } else {
            assert_unknown(&refusal(next.await));
        }
    }
}

async fn a_caller_dropped_while_it_claims_to_run_gives_the_key_back(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let faults = [Fault::None, Fault::ReplyHeld];
    fixture.fail(StoreOperation::Claim, faults);
    let hook = |_| async { Says::NotLanded };
    let call = tokio::spawn(fixture.pay().run_reconciled(hook, |_| async { never() }));
    while stands(&fixture).await.1 < 2 {}
    call.abort();
    call.await.unwrap_err();
    comes_to_rest(&fixture).await;
    assert_eq!(stands(&fixture).await, (EntryState::Released, 1));
}

async fn a_landed_effect_is_stored_although_its_caller_is_gone(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let asking = Asking::start(&fixture, fixture.pay()).await;
    let before = fixture.count(StoreOperation::Complete);
    fixture.fail(StoreOperation::Complete, [Fault::Hangs]);
    asking.gate.add_permits(1);
    while fixture.count(StoreOperation::Complete) == before {
        tokio::task::yield_now().await;
    }
    asking.task.abort();
    asking.task.await.unwrap_err();
    comes_to_rest(&fixture).await;
    assert_eq!(answered(fixture.pay_far()).await, receipt(7));
}

async fn a_landed_effect_that_cannot_be_stored_leaves_a_tombstone(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.max_value_bytes(1));
    let counts = Counts::default();
    crashed(&fixture, fixture.pay()).await;
    let answer = reconciled(fixture.pay(), LANDED, &counts).await;
    assert_eq!(answer, receipt(7), "its own caller gets it");
    let again = refusal(reconciled(fixture.pay(), LANDED, &counts).await);
    assert_eq!(again.kind(), &ErrorKind::NotStored);
    assert_eq!(counts.both(), (1, 0));
}

/// The hook's process is paused, another one takes the key over and releases it, and the reply to a renewal
/// reports it. Then the hook ends, and the claim to run is granted although its renewals have ended.
async fn a_body_that_starts_after_its_hook_was_overtaken_holds_a_lease(fixture: Fixture) {
    // Its renewal is due before the hook's deadline.
    let lease = Duration::from_secs(15);
    let fixture = fixture.with(|engine| engine.lease(lease));
    abandon(&fixture).await;
    let gate = Arc::new(Semaphore::new(0));
    let end = Arc::clone(&gate);
    let hook = |_| async move {
        end.acquire().await.unwrap().forget();
        Reconciled::<Duration>::NotLanded
    };
    let paused = tokio::spawn(fixture.pay().run_reconciled(hook, |cx| async move {
        Ok::<_, PayError>(cx.lease_remaining())
    }));
    fixture.events.wait_for("reconciling", 1).await;
    fixture.pass_in_store(LEASE_OVER);
    let nothing = |_| async { Reconciled::<Receipt>::NotLanded };
    let failed = fixture
        .pay_far()
        .on_other_type(OnOtherType::Accept)
        .run_reconciled(nothing, |_| async { Err(PayError::Down) });
    assert_eq!(failed.await, Err(PayError::Down));
    let third = lease / 3;
    wakes(&fixture, third).await;
    fixture.events.wait_for("lease lost", 1).await;
    gate.add_permits(1);
    // To be refused is as good as to hold a lease.
    if let Ok(left) = paused.await.unwrap() {
        assert!(
            !left.is_zero(),
            "the body runs under a claim that is not renewed"
        );
    }
}

/// The hook's lease lapsed while it ran, its renewals having no reply; another process took the key over, had
/// the effect and panicked. Found by the model in `tests/proof/protocol`.
async fn a_verdict_from_before_another_body_starts_nothing(fixture: Fixture) {
    abandon(&fixture).await;
    fixture.fail(StoreOperation::Renew, [Fault::Lost; 100]);
    let slow = Asking::saying(&fixture, fixture.pay(), Says::NotLanded).await;
    fixture.pass_in_store(LEASE_OVER);
    let body = |_| async { std::panic::panic_any("after the effect") as Answer };
    let far = fixture
        .pay_far()
        .run_reconciled(|_| async { Says::NotLanded }, body);
    tokio::spawn(far).await.unwrap_err();
    // A second effect, if it ran.
    assert_running(&refusal(slow.end().await));
    assert_eq!(fixture.events.count("dropped"), 1, "the abandoned one");
}
