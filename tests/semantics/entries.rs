//! Looking at a record and settling it by hand: whoever settles names what he saw, and nothing else is
//! changed.

use std::time::Duration;

use idem_runtime::{Entry, EntryState, Error, ErrorKind, Fence, OnRunning};
use idem_tests::faulty::{Fault, Operation};
use idem_tests::on_every_store;
use idem_tests::pay::{PayError, Receipt, Runs};
use idem_tests::world::World;

use crate::reconciling::Asking;
use crate::stage::{
    Answer, Body, LEASE_OVER, answered, crashed, paid, panicked, receipt, refusal, stands,
    timed_out, until,
};

on_every_store![
    an_entry_shows_where_a_call_stands,
    an_entry_is_found_by_the_digest_of_its_key,
    a_resolved_value_is_replayed,
    a_resolved_value_lives_for_its_ttl,
    a_resolved_error_is_replayed,
    a_resolved_error_lives_for_its_own_ttl_if_that_is_longer,
    a_record_settled_without_the_operations_ttl_lives_as_long_as_before,
    a_record_reset_without_the_operations_ttl_keeps_its_fence_as_long_as_before,
    an_abandoned_call_may_be_resolved,
    a_late_success_does_not_replace_a_resolution,
    a_reset_key_runs_again_with_a_higher_fence,
    an_answer_is_changed_by_a_reset_only,
    what_runs_cannot_be_settled,
    what_is_being_found_out_cannot_be_settled,
    a_stale_entry_changes_nothing_after_a_resolution,
    a_stale_entry_changes_nothing_after_a_late_success,
    a_stale_entry_changes_nothing_after_another_claim,
    a_stale_entry_changes_nothing_after_its_time,
    a_resolution_whose_reply_is_lost_is_sent_again,
    a_resolution_that_the_store_does_not_answer_is_reported,
    a_value_that_cannot_be_kept_resolves_nothing,
];

const FOUND: Receipt = Receipt { run: 9 };

async fn entry(world: &World) -> Entry {
    world
        .pay()
        .entry()
        .await
        .unwrap()
        .expect("there is a record")
}

fn assert_kind(result: Result<(), Error>, kind: &ErrorKind) {
    assert_eq!(result.unwrap_err().kind(), kind);
}

async fn an_entry_shows_where_a_call_stands(world: World) {
    assert!(world.pay().entry().await.unwrap().is_none());
    let body = Body::start(world.pay(), Err(PayError::Down)).await;
    let running = entry(&world).await;
    let EntryState::Running { lease_left } = running.state() else {
        panic!("{running:?}")
    };
    assert!(lease_left > Duration::from_secs(25) && lease_left <= Duration::from_secs(30));
    assert_eq!(
        (running.attempts(), running.key()),
        (1, world.key().digest())
    );
    assert!(running.fence() > Fence::default());
    assert!(running.left() > Duration::from_hours(23));
    body.end().await.unwrap_err();
    assert_eq!(stands(&world).await, (EntryState::Released, 0));
    crashed(&world, world.pay()).await;
    assert_eq!(stands(&world).await, (EntryState::Abandoned, 1));
    assert!(entry(&world).await.age() >= LEASE_OVER);
    timed_out(world.pay()).await;
    assert_eq!(stands(&world).await, (EntryState::Unknown, 2));
    let last = entry(&world).await;
    assert!(last.fence() > running.fence());
    last.resolve(&FOUND).await.unwrap();
    let (state, _) = stands(&world).await;
    assert_eq!(
        state,
        EntryState::Answered(idem_runtime::OutcomeKind::Value)
    );
    let world = world.with(|engine| engine.max_value_bytes(1));
    entry(&world).await.reset().await.unwrap();
    assert_eq!(paid(world.pay(), &Runs::default()).await, receipt(1));
    assert_eq!(stands(&world).await.0, EntryState::NotStored);
}

async fn an_entry_is_found_by_the_digest_of_its_key(world: World) {
    timed_out(world.pay()).await;
    let digest = world.key().digest().to_string();
    let found = world.far.entry("pay", &digest).await.unwrap().unwrap();
    assert_eq!(found.state(), EntryState::Unknown);
    found.resolve(&FOUND).await.unwrap();
    assert_eq!(answered(world.pay()).await, receipt(9));
    assert!(world.far.entry("refund", &digest).await.unwrap().is_none());
    for bad in ["", "7", &digest[1..], "🦀"] {
        let error = world.far.entry("pay", bad).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::InvalidKey, "{bad:?}");
    }
}

async fn a_resolved_value_is_replayed(world: World) {
    timed_out(world.pay()).await;
    entry(&world).await.resolve(&FOUND).await.unwrap();
    assert_eq!(world.events.count("resolved value"), 1);
    for call in [world.pay(), world.pay_far()] {
        assert_eq!(answered(call).await, receipt(9));
    }
}

async fn a_resolved_value_lives_for_its_ttl(world: World) {
    let call = || world.pay().ttl(Duration::from_mins(10));
    timed_out(call()).await;
    world.pass_in_store(Duration::from_mins(9));
    let entry = call().entry().await.unwrap().unwrap();
    entry.resolve(&FOUND).await.unwrap();
    world.pass_in_store(Duration::from_mins(9));
    assert_eq!(answered(call()).await, receipt(9));
    world.pass_in_store(Duration::from_mins(1));
    assert_eq!(paid(call(), &Runs::default()).await, receipt(1));
}

async fn a_resolved_error_is_replayed(world: World) {
    timed_out(world.pay()).await;
    let declined = PayError::Declined { run: 3 };
    entry(&world).await.resolve_error(&declined).await.unwrap();
    assert_eq!(world.events.count("resolved error"), 1);
    for call in [world.pay(), world.pay_far()] {
        assert_eq!(answered(call).await, Err(declined.clone()));
    }
}

async fn a_resolved_error_lives_for_its_own_ttl_if_that_is_longer(world: World) {
    for (error_ttl, life) in [(48, 48), (1, 24)] {
        let call = || {
            let call = world.engine.operation("pay").key(&error_ttl);
            call.error_ttl(Duration::from_hours(error_ttl))
        };
        timed_out(call()).await;
        let declined = PayError::Declined { run: 3 };
        let entry = call().entry().await.unwrap().unwrap();
        entry.resolve_error(&declined).await.unwrap();
        let nearly = Duration::from_hours(life).saturating_sub(Duration::from_secs(2));
        world.pass_in_store(nearly);
        assert_eq!(answered(call()).await, Err(declined));
        world.pass_in_store(Duration::from_secs(2));
        assert_eq!(paid(call(), &Runs::default()).await, receipt(1));
    }
}

/// As an operator finds it: by the name of the operation and the key.
async fn a_record_settled_without_the_operations_ttl_lives_as_long_as_before(world: World) {
    let days = Duration::from_hours(30 * 24);
    let call = || world.pay().ttl(days);
    for declined in [false, true] {
        timed_out(call()).await;
        let entry = entry(&world).await;
        let answer = if declined {
            let declined = PayError::Declined { run: 3 };
            entry.resolve_error(&declined).await.unwrap();
            Err(declined)
        } else {
            entry.resolve(&FOUND).await.unwrap();
            Ok(FOUND)
        };
        world.pass_in_store(days.saturating_sub(Duration::from_secs(2)));
        assert_eq!(answered(call()).await, answer);
        world.pass_in_store(Duration::from_secs(2));
    }
}

async fn a_record_reset_without_the_operations_ttl_keeps_its_fence_as_long_as_before(world: World) {
    let days = Duration::from_hours(30 * 24);
    timed_out(world.pay().ttl(days)).await;
    let entry = entry(&world).await;
    let fence = entry.fence();
    entry.reset().await.unwrap();
    world.pass_in_store(days.saturating_sub(Duration::from_secs(2)));
    let (state, attempts) = stands(&world).await;
    assert_eq!((state, attempts), (EntryState::Released, 0));
    let body = Body::start(world.pay(), receipt(7)).await;
    assert!(self::entry(&world).await.fence() > fence);
    body.end().await.unwrap();
}

async fn an_abandoned_call_may_be_resolved(world: World) {
    crashed(&world, world.pay()).await;
    entry(&world).await.resolve(&FOUND).await.unwrap();
    assert_eq!(answered(world.pay_far()).await, receipt(9));
}

async fn a_late_success_does_not_replace_a_resolution(world: World) {
    let late = Body::start(world.pay(), receipt(7)).await;
    world.pass_in_store(LEASE_OVER);
    entry(&world).await.resolve(&FOUND).await.unwrap();
    assert_eq!(late.end().await, receipt(9), "what was stored is final");
    assert_eq!(answered(world.pay_far()).await, receipt(9));
}

async fn a_reset_key_runs_again_with_a_higher_fence(world: World) {
    panicked(world.pay()).await;
    timed_out(world.pay()).await;
    let before = entry(&world).await;
    let fence = before.fence();
    before.reset().await.unwrap();
    assert_eq!(stands(&world).await, (EntryState::Released, 0));
    let answer = world.pay().run(|cx| async move {
        assert!(cx.fence().await? > fence);
        receipt(cx.attempt().into())
    });
    assert_eq!(answer.await, receipt(1));
}

async fn an_answer_is_changed_by_a_reset_only(world: World) {
    let runs = Runs::default();
    assert_eq!(paid(world.pay(), &runs).await, receipt(1));
    assert_kind(
        entry(&world).await.resolve(&FOUND).await,
        &ErrorKind::Changed,
    );
    let declined = PayError::Declined { run: 3 };
    let error = entry(&world).await.resolve_error(&declined).await;
    assert_kind(error, &ErrorKind::Changed);
    assert_eq!(answered(world.pay()).await, receipt(1));
    entry(&world).await.reset().await.unwrap();
    assert_eq!(paid(world.pay(), &runs).await, receipt(2));
}

/// Neither of the three ways of settling does anything now.
async fn cannot_be_settled(world: &World) {
    let declined = PayError::Declined { run: 3 };
    let results = [
        entry(world).await.resolve(&FOUND).await,
        entry(world).await.resolve_error(&declined).await,
        entry(world).await.reset().await,
    ];
    for result in results {
        let error = result.unwrap_err();
        let left = crate::stage::assert_running(&error);
        assert!(left > Duration::from_secs(25), "{left:?}");
    }
}

async fn what_runs_cannot_be_settled(world: World) {
    let body = Body::start(world.pay(), receipt(7)).await;
    cannot_be_settled(&world).await;
    assert_eq!(body.end().await, receipt(7));
}

async fn what_is_being_found_out_cannot_be_settled(world: World) {
    timed_out(world.pay()).await;
    let asking = Asking::start(&world, world.pay()).await;
    cannot_be_settled(&world).await;
    assert_eq!(asking.end().await, receipt(7));
}

/// Neither of the three ways of settling does anything with what was seen before.
async fn are_stale(seen: [Entry; 3]) {
    let [first, second, third] = seen;
    let declined = PayError::Declined { run: 3 };
    assert_kind(first.resolve(&FOUND).await, &ErrorKind::Changed);
    assert_kind(second.resolve_error(&declined).await, &ErrorKind::Changed);
    assert_kind(third.reset().await, &ErrorKind::Changed);
}

async fn three(world: &World) -> [Entry; 3] {
    [entry(world).await, entry(world).await, entry(world).await]
}

async fn a_stale_entry_changes_nothing_after_a_resolution(world: World) {
    timed_out(world.pay()).await;
    let seen = three(&world).await;
    entry(&world)
        .await
        .resolve(&Receipt { run: 5 })
        .await
        .unwrap();
    are_stale(seen).await;
    assert_eq!(answered(world.pay()).await, receipt(5));
}

async fn a_stale_entry_changes_nothing_after_a_late_success(world: World) {
    let late = Body::start(world.pay(), receipt(7)).await;
    world.pass_in_store(LEASE_OVER);
    timed_out(world.pay_far()).await;
    let seen = three(&world).await;
    assert_eq!(late.end().await, receipt(7));
    are_stale(seen).await;
    assert_eq!(answered(world.pay()).await, receipt(7));
}

async fn a_stale_entry_changes_nothing_after_another_claim(world: World) {
    crashed(&world, world.pay()).await;
    let seen = three(&world).await;
    let second = Body::start(world.pay_far(), Err(PayError::Down)).await;
    are_stale(seen).await;
    assert_eq!(second.end().await, Err(PayError::Down));
    // As it was, but for the fence.
    let [first, second, third] = three(&world).await;
    let down = world
        .pay_far()
        .run(|_| async { Err(PayError::Down) as Answer });
    assert_eq!(down.await, Err(PayError::Down));
    are_stale([first, second, third]).await;
    assert_eq!(stands(&world).await, (EntryState::Released, 1));
}

async fn a_stale_entry_changes_nothing_after_its_time(world: World) {
    timed_out(world.pay().ttl(Duration::from_mins(1))).await;
    let seen = three(&world).await;
    world.pass_in_store(Duration::from_mins(1));
    are_stale(seen).await;
    assert!(world.pay().entry().await.unwrap().is_none());
}

async fn a_resolution_whose_reply_is_lost_is_sent_again(world: World) {
    timed_out(world.pay()).await;
    let lost = [
        Fault::ReplyLost,
        Fault::Lost,
        Fault::ReplyLost,
        Fault::Twice,
    ];
    world.store.fail(Operation::Resolve, lost);
    let seen = entry(&world).await;
    until(&world, seen.resolve(&FOUND)).await.unwrap();
    assert_eq!(world.store.count(Operation::Resolve), 4);
    assert_eq!(answered(world.pay()).await, receipt(9));
}

async fn a_resolution_that_the_store_does_not_answer_is_reported(world: World) {
    timed_out(world.pay()).await;
    let seen = entry(&world).await;
    world.store.fail(Operation::Resolve, [Fault::Hangs]);
    let resolving = tokio::spawn(async move { seen.resolve(&FOUND).await });
    while world.store.count(Operation::Resolve) == 0 {
        tokio::task::yield_now().await;
    }
    world.clock.advance(Duration::from_secs(2));
    assert_kind(resolving.await.unwrap(), &ErrorKind::StoreUnavailable);
    let call = world.pay().on_running(OnRunning::Reject);
    crate::stage::assert_unknown(&refusal(answered(call).await));
}

async fn a_value_that_cannot_be_kept_resolves_nothing(world: World) {
    let world = world.with(|engine| engine.max_value_bytes(1));
    timed_out(world.pay()).await;
    assert_kind(
        entry(&world).await.resolve(&FOUND).await,
        &ErrorKind::NotStored,
    );
    assert_eq!(stands(&world).await, (EntryState::Unknown, 1));
}
