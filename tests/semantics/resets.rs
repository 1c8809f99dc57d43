//! A call that begins after a reset elsewhere is not told what a call before it has asked for.

use std::time::Duration;

use idem_runtime::ErrorKind;
use idem_tests::faulty::{Fault, Operation};
use idem_tests::pay::Runs;
use idem_tests::world::World;
use tokio::task::JoinHandle;

use crate::stage::{
    Answer, Body, Pay, answered, claims, duplicates, others, paid, panicked, receipt, refusal,
    sent, until,
};

/// Longer than calls count as made at once.
const LATER: Duration = Duration::from_millis(10);

/// A call whose claim is answered, while the reply is held.
async fn claim_held(world: &World, call: Pay) -> JoinHandle<Answer> {
    world.store.fail(Operation::Claim, [Fault::ReplyHeld]);
    let asked = claims(world);
    let call = tokio::spawn(answered(call));
    sent(world, Operation::Claim, asked + 1).await;
    call
}

/// Another process resets the key, and some time passes.
async fn reset_far(world: &World) {
    let entry = until(world, world.pay_far().entry()).await.unwrap();
    let reset = entry.expect("there is a record").reset();
    until(world, reset).await.unwrap();
    world.clock.advance(LATER);
}

/// A call that waits for the held reply with the one from before.
async fn joins(world: &World, runs: &Runs) -> JoinHandle<Answer> {
    let (call, runs) = (world.pay(), runs.clone());
    let call = tokio::spawn(async move { paid(call, &runs).await });
    others().await;
    assert!(!call.is_finished());
    call
}

#[tokio::test]
async fn an_answer_that_was_read_before_is_not_replayed() {
    let (world, runs) = (World::memory(), Runs::default());
    assert_eq!(paid(world.pay_far(), &runs).await, receipt(1));
    let before = claim_held(&world, world.pay()).await;
    reset_far(&world).await;
    let after = joins(&world, &runs).await;
    world.store.deliver();
    assert_eq!(until(&world, before).await.unwrap(), receipt(1));
    assert_eq!(until(&world, after).await.unwrap(), receipt(2));
}

#[tokio::test]
async fn a_refusal_that_was_read_before_is_not_repeated() {
    let (world, runs) = (World::memory(), Runs::default());
    for _ in 0..5 {
        panicked(world.pay_far()).await;
    }
    let before = claim_held(&world, world.pay()).await;
    reset_far(&world).await;
    let after = joins(&world, &runs).await;
    world.store.deliver();
    let error = refusal(until(&world, before).await.unwrap());
    assert_eq!(error.kind(), &ErrorKind::Exhausted { attempts: 5 });
    assert_eq!(until(&world, after).await.unwrap(), receipt(1));
}

#[tokio::test]
async fn an_answer_that_was_stored_before_is_not_handed_on() {
    let (world, runs) = (World::memory(), Runs::default());
    let body = Body::start(world.pay(), receipt(7)).await;
    world.store.fail(Operation::Complete, [Fault::ReplyHeld]);
    body.let_end();
    sent(&world, Operation::Complete, 1).await;
    others().await;
    reset_far(&world).await;
    let after = joins(&world, &runs).await;
    world.store.deliver();
    assert_eq!(until(&world, body.join()).await, receipt(7));
    assert_eq!(until(&world, after).await.unwrap(), receipt(1));
}

#[tokio::test]
async fn an_answer_that_was_looked_at_before_is_not_handed_on() {
    let (world, runs) = (World::memory(), Runs::default());
    let body = Body::start(world.pay_far(), receipt(7)).await;
    let (call, waits) = (world.pay(), runs.clone());
    let waiting = tokio::spawn(async move { paid(call, &waits).await });
    // The first look sees a body that runs.
    sent(&world, Operation::Read, 1).await;
    world.store.fail(Operation::Read, [Fault::ReplyHeld]);
    assert_eq!(body.end().await, receipt(7));
    sent(&world, Operation::Read, 2).await;
    reset_far(&world).await;
    let after = joins(&world, &runs).await;
    world.store.deliver();
    // It may have looked after the reset: on a thread of its own.
    until(&world, waiting).await.unwrap().unwrap();
    let after = until(&world, after).await.unwrap();
    assert_ne!(after, receipt(7));
    assert!(after.is_ok(), "{after:?}");
}

/// However many of them begin later, they cost one claim more.
#[tokio::test]
async fn calls_that_begin_later_ask_once_for_all() {
    for (later, asked) in [(Duration::ZERO, 1), (LATER, 2)] {
        let (world, runs) = (World::memory(), Runs::default());
        assert_eq!(paid(world.pay_far(), &runs).await, receipt(1));
        let before = claims(&world);
        let leader = claim_held(&world, world.pay()).await;
        world.clock.advance(later);
        let tasks = duplicates(64, || world.pay(), &runs);
        others().await;
        // The reply to one more claim takes its time as well.
        world.store.fail(Operation::Claim, [Fault::ReplyHeld]);
        world.store.deliver();
        others().await;
        world.store.deliver();
        assert_eq!(until(&world, leader).await.unwrap(), receipt(1));
        let answers = until(&world, tasks.join_all()).await;
        assert!(answers.iter().all(|answer| *answer == receipt(1)));
        assert_eq!(claims(&world) - before, asked, "{later:?} later");
    }
}
