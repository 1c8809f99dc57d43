//! Finding out while the store, the lease or another process is in the way: the body starts only with
//! a claim of its own, and nobody's answer is lost.

use std::time::Duration;

use idem_runtime::{EntryState, ErrorKind, OnLeaseLost, Reconciled};
use idem_tests::faulty::{Fault, Operation};
use idem_tests::on_every_store;
use idem_tests::pay::Receipt;
use idem_tests::world::World;

use crate::reconciling::{Asking, Counts, LANDED, Says, reconciled};
use crate::stage::{
    LEASE_OVER, answered, assert_running, assert_unknown, comes_to_rest, crashed, never, others,
    receipt, refusal, refused_far, stands, timed_out, until,
};

on_every_store![
    the_lease_is_renewed_during_a_long_hook,
    an_overtaken_hook_gets_the_winners_answer,
    an_overtaken_hook_that_finds_out_nothing_changes_nothing,
    an_overtaken_hook_starts_no_body_beside_another_one,
    an_overtaken_hook_is_dropped_where_the_operation_says_so,
    the_claim_to_ask_survives_lost_replies,
    the_claim_to_run_survives_lost_replies,
    a_store_that_is_silent_before_the_hook_is_not_asked_around,
    a_store_that_is_silent_after_the_hook_starts_no_body,
    a_claim_to_run_that_was_granted_unseen_is_given_back,
    a_caller_dropped_while_it_claims_to_run_gives_the_key_back,
    what_landed_is_stored_although_replies_are_lost,
    what_landed_is_stored_although_its_caller_is_gone,
    what_stays_unknown_is_stored_although_replies_are_lost,
    what_landed_and_cannot_be_kept_leaves_a_tombstone,
];

async fn the_lease_is_renewed_during_a_long_hook(world: World) {
    // All of it is over before the hook's deadline.
    let lease = Duration::from_secs(3);
    let world = world.with(|engine| engine.lease(lease));
    timed_out(world.pay()).await;
    let asking = Asking::start(&world, world.pay()).await;
    for renewals in 1..=6 {
        let third = lease / 3;
        world.clock.sleeper_within(third).await;
        world.pass_in_store(third);
        world.clock.advance(third);
        world.events.wait_for("renewed", renewals).await;
        assert_running(&refused_far(&world).await);
    }
    assert_eq!(asking.end().await, receipt(7));
}

/// A hook that is paused for longer than its lease, until another process has asked and said this.
async fn overtaken(world: &World, says: Says, winner: Says) -> (Asking, Asking) {
    timed_out(world.pay()).await;
    let first = Asking::saying(world, world.pay(), says).await;
    world.pass_in_store(LEASE_OVER);
    let second = Asking::saying(world, world.pay_far(), winner).await;
    (first, second)
}

const OTHER: Says = Reconciled::Landed(Receipt { run: 9 });

async fn an_overtaken_hook_gets_the_winners_answer(world: World) {
    let (first, second) = overtaken(&world, OTHER, LANDED).await;
    assert_eq!(second.end().await, receipt(7));
    assert_eq!(first.end().await, receipt(7), "never its own");
    assert_eq!(answered(world.pay()).await, receipt(7));
}

async fn an_overtaken_hook_that_finds_out_nothing_changes_nothing(world: World) {
    let (first, second) = overtaken(&world, Says::Unknown, LANDED).await;
    assert_eq!(second.end().await, receipt(7));
    assert_eq!(until(&world, first.end()).await, receipt(7));
    assert_eq!(answered(world.pay()).await, receipt(7));
}

async fn an_overtaken_hook_starts_no_body_beside_another_one(world: World) {
    let (first, second) = overtaken(&world, Says::NotLanded, LANDED).await;
    let error = refusal(until(&world, first.end()).await);
    assert_running(&error);
    assert_eq!(second.end().await, receipt(7), "nobody took its claim");
    assert_eq!(answered(world.pay()).await, receipt(7));
}

async fn an_overtaken_hook_is_dropped_where_the_operation_says_so(world: World) {
    timed_out(world.pay()).await;
    let call = world.pay().on_lease_lost(OnLeaseLost::Cancel);
    let first = Asking::start(&world, call).await;
    world.pass_in_store(LEASE_OVER);
    let second = Asking::start(&world, world.pay_far()).await;
    assert_eq!(second.end().await, receipt(7));
    // A third of the lease later its renewal is refused.
    world.clock.advance(Duration::from_secs(9));
    let answer = until(&world, async { first.task.await.unwrap() }).await;
    assert_eq!(answer, receipt(7), "without having said anything");
}

async fn the_claim_to_ask_survives_lost_replies(world: World) {
    let counts = Counts::default();
    timed_out(world.pay()).await;
    let lost = [
        Fault::ReplyLost,
        Fault::Lost,
        Fault::ReplyLost,
        Fault::Twice,
    ];
    world.store.fail(Operation::Claim, lost);
    let answer = until(&world, reconciled(world.pay(), LANDED, &counts)).await;
    assert_eq!(answer, receipt(7));
    assert_eq!(counts.both(), (1, 0));
}

async fn the_claim_to_run_survives_lost_replies(world: World) {
    let counts = Counts::default();
    timed_out(world.pay()).await;
    let lost = [Fault::None, Fault::ReplyLost, Fault::Lost, Fault::ReplyLost];
    world.store.fail(Operation::Claim, lost);
    world.store.fail(Operation::Claim, [Fault::Twice]);
    let answer = until(&world, reconciled(world.pay(), Says::NotLanded, &counts)).await;
    assert_eq!(answer, receipt(1));
    assert_eq!(counts.both(), (1, 1));
    assert_eq!(
        stands(&world).await.1,
        2,
        "one attempt, however often it was asked for"
    );
}

async fn a_store_that_is_silent_before_the_hook_is_not_asked_around(world: World) {
    let counts = Counts::default();
    timed_out(world.pay()).await;
    world.store.fail(Operation::Claim, [Fault::ReplyHangs]);
    let call = tokio::spawn({
        let (call, counts) = (world.pay(), counts.clone());
        async move { reconciled(call, LANDED, &counts).await }
    });
    while !matches!(stands(&world).await.0, EntryState::Running { .. }) {}
    world.clock.advance(Duration::from_secs(2));
    let error = refusal(call.await.unwrap());
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
    assert_eq!(counts.both(), (0, 0));
    comes_to_rest(&world).await;
    assert_eq!(stands(&world).await, (EntryState::Unknown, 1));
}

/// A hook that says that nothing landed, and a claim to run that fails like this; time goes on until
/// the call has given up.
async fn gives_up_claiming(world: &World, fault: Fault) {
    timed_out(world.pay()).await;
    world.store.fail(Operation::Claim, [Fault::None, fault]);
    let counts = Counts::default();
    let call = tokio::spawn({
        let (call, counts) = (world.pay(), counts.clone());
        async move { reconciled(call, Says::NotLanded, &counts).await }
    });
    while world.store.count(Operation::Claim) < 3 {
        tokio::task::yield_now().await;
    }
    if fault == Fault::ReplyHangs {
        while stands(world).await.1 < 2 {}
    }
    others().await;
    world.clock.advance(Duration::from_secs(2));
    let error = refusal(until(world, async { call.await.unwrap() }).await);
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
    assert_eq!(counts.both(), (1, 0), "no body without a claim");
}

async fn a_store_that_is_silent_after_the_hook_starts_no_body(world: World) {
    gives_up_claiming(&world, Fault::Hangs).await;
    assert_eq!(stands(&world).await, (EntryState::Unknown, 1));
    assert_unknown(&refused_far(&world).await);
}

async fn a_claim_to_run_that_was_granted_unseen_is_given_back(world: World) {
    gives_up_claiming(&world, Fault::ReplyHangs).await;
    // It did not land, and nothing was started since.
    assert_eq!(stands(&world).await, (EntryState::Released, 1));
    let answer = world
        .pay_far()
        .run(|cx| async move { receipt(cx.attempt().into()) });
    assert_eq!(answer.await, receipt(2));
}

async fn a_caller_dropped_while_it_claims_to_run_gives_the_key_back(world: World) {
    timed_out(world.pay()).await;
    let faults = [Fault::None, Fault::ReplyHeld];
    world.store.fail(Operation::Claim, faults);
    let hook = |_| async { Says::NotLanded };
    let call = tokio::spawn(world.pay().run_reconciled(hook, |_| async { never() }));
    while stands(&world).await.1 < 2 {}
    call.abort();
    call.await.unwrap_err();
    comes_to_rest(&world).await;
    assert_eq!(stands(&world).await, (EntryState::Released, 1));
}

async fn what_landed_is_stored_although_replies_are_lost(world: World) {
    let counts = Counts::default();
    timed_out(world.pay()).await;
    let lost = [Fault::Lost, Fault::ReplyLost, Fault::Twice];
    world.store.fail(Operation::Complete, lost);
    let answer = until(&world, reconciled(world.pay(), LANDED, &counts)).await;
    assert_eq!(answer, receipt(7));
    assert_eq!(answered(world.pay_far()).await, receipt(7));
}

async fn what_landed_is_stored_although_its_caller_is_gone(world: World) {
    timed_out(world.pay()).await;
    let asking = Asking::start(&world, world.pay()).await;
    let before = world.store.count(Operation::Complete);
    world.store.fail(Operation::Complete, [Fault::Hangs]);
    asking.gate.add_permits(1);
    while world.store.count(Operation::Complete) == before {
        tokio::task::yield_now().await;
    }
    asking.task.abort();
    asking.task.await.unwrap_err();
    comes_to_rest(&world).await;
    assert_eq!(answered(world.pay_far()).await, receipt(7));
}

async fn what_stays_unknown_is_stored_although_replies_are_lost(world: World) {
    let counts = Counts::default();
    crashed(&world, world.pay()).await;
    let lost = [Fault::Lost, Fault::ReplyLost, Fault::Twice];
    world.store.fail(Operation::Complete, lost);
    let answer = until(&world, reconciled(world.pay(), Says::Unknown, &counts)).await;
    assert_unknown(&refusal(answer));
    assert_eq!(stands(&world).await, (EntryState::Unknown, 1));
}

async fn what_landed_and_cannot_be_kept_leaves_a_tombstone(world: World) {
    let world = world.with(|engine| engine.max_value_bytes(1));
    let counts = Counts::default();
    crashed(&world, world.pay()).await;
    let answer = reconciled(world.pay(), LANDED, &counts).await;
    assert_eq!(answer, receipt(7), "its own caller gets it");
    let again = refusal(reconciled(world.pay(), LANDED, &counts).await);
    assert_eq!(again.kind(), &ErrorKind::NotStored);
    assert_eq!(counts.both(), (1, 0));
}
