//! The first of the duplicates in a process asks for all of them. When it goes without an answer,
//! another one takes its place.

use std::time::Duration;

use idem_runtime::clock::Clock;
use idem_runtime::{Begun, ErrorKind, OnCancel, OnDuplicate, OnRunning};
use idem_tests::faulty::{Fault, Operation};
use idem_tests::on_every_store;
use idem_tests::pay::{PayError, Runs};
use idem_tests::world::World;

use crate::reconciling::{Counts, LANDED, reconciled};
use crate::stage::{
    Answer, Body, LEASE_OVER, answered, assert_running, caught, claims, comes_to_rest, duplicates,
    others, paid, poll_once, receipt, refusal, until,
};

on_every_store![
    a_leader_that_is_dropped_while_it_asks_makes_another_one_ask,
    a_leader_that_is_dropped_with_its_claim_granted_makes_another_one_run,
    a_leader_whose_body_is_dropped_makes_another_one_wait_for_its_lease,
    a_leader_whose_body_is_dropped_and_released_makes_another_one_run,
    a_waiter_that_is_dropped_takes_nobody_along,
    a_leader_that_nobody_polls_holds_nobody_up_for_ever,
    who_tells_a_time_asks_where_its_leader_does_not_know_it,
    who_waits_behind_a_leader_that_nobody_polls_leads_in_time,
    who_waits_for_a_claim_that_is_given_back_runs_though_its_context_lives,
    who_can_find_out_does_not_take_the_word_of_one_who_cannot,
    who_asks_for_himself_waits_as_long_as_he_says,
    after_a_system_error_exactly_one_of_them_runs,
    after_a_panic_exactly_one_of_them_runs,
];

async fn who_tells_a_time_asks_where_its_leader_does_not_know_it(world: World) {
    let (runs, hour) = (Runs::default(), Duration::from_hours(1));
    assert_eq!(paid(world.pay(), &runs).await, receipt(1));
    world.pass_in_store(hour);
    world.store.fail(Operation::Claim, [Fault::ReplyHeld]);
    let leader = tokio::spawn(answered(world.pay()));
    others().await;
    let cool_down = world.pay().on_duplicate(OnDuplicate::Reject);
    let told = tokio::spawn(answered(
        cool_down.on_running(OnRunning::Wait(Duration::from_mins(5))),
    ));
    others().await;
    world.store.deliver();
    assert_eq!(until(&world, leader).await.unwrap(), receipt(1));
    let error = refusal(until(&world, told).await.unwrap());
    let ErrorKind::Duplicate { retry_after } = error.kind() else {
        panic!("{error}");
    };
    // Both on the store's word, and the answer lives for a day.
    assert!(*retry_after <= 23 * hour, "{retry_after:?}");
    assert_eq!(runs.count(), 1);
}

async fn a_leader_that_is_dropped_while_it_asks_makes_another_one_ask(world: World) {
    world.store.fail(Operation::Claim, [Fault::Hangs]);
    let runs = Runs::default();
    let mut leader = Box::pin(answered(world.pay()));
    assert!(poll_once(leader.as_mut()).await.is_none());
    let tasks = duplicates(10, || world.pay(), &runs);
    others().await;
    assert_eq!(claims(&world), 1);
    drop(leader);
    assert!(
        until(&world, tasks.join_all())
            .await
            .iter()
            .all(|answer| *answer == receipt(1))
    );
    assert_eq!((claims(&world), runs.count()), (2, 1));
}

async fn a_leader_that_is_dropped_with_its_claim_granted_makes_another_one_run(world: World) {
    world.store.fail(Operation::Claim, [Fault::ReplyHangs]);
    let runs = Runs::default();
    let mut leader = Box::pin(answered(world.pay()));
    while world.pay_far().entry().await.unwrap().is_none() {
        assert!(poll_once(leader.as_mut()).await.is_none());
    }
    let tasks = duplicates(10, || world.pay(), &runs);
    others().await;
    drop(leader);
    assert!(
        until(&world, tasks.join_all())
            .await
            .iter()
            .all(|answer| *answer == receipt(1))
    );
    assert_eq!(runs.count(), 1);
    assert!(claims(&world) <= 3, "{} claims", claims(&world));
}

async fn a_leader_whose_body_is_dropped_makes_another_one_wait_for_its_lease(world: World) {
    let runs = Runs::default();
    let patient = || {
        world
            .pay()
            .on_running(OnRunning::Wait(Duration::from_mins(5)))
    };
    let first = Body::start(world.pay(), receipt(7)).await;
    let mut tasks = duplicates(10, patient, &runs);
    others().await;
    first.drop_caller().await;
    // Somebody has asked, and was told to wait.
    while claims(&world) < 2 {
        tokio::task::yield_now().await;
    }
    assert!(tasks.try_join_next().is_none());
    assert_eq!(runs.count(), 0);
    world.pass_in_store(LEASE_OVER);
    assert!(
        until(&world, tasks.join_all())
            .await
            .iter()
            .all(|answer| *answer == receipt(1))
    );
    assert_eq!(runs.count(), 1);
}

async fn a_leader_whose_body_is_dropped_and_released_makes_another_one_run(world: World) {
    let runs = Runs::default();
    let first = Body::start(world.pay().on_cancel(OnCancel::Release), receipt(7)).await;
    let tasks = duplicates(10, || world.pay(), &runs);
    others().await;
    first.drop_caller().await;
    assert!(
        until(&world, tasks.join_all())
            .await
            .iter()
            .all(|answer| *answer == receipt(1))
    );
    assert_eq!(runs.count(), 1);
}

async fn a_waiter_that_is_dropped_takes_nobody_along(world: World) {
    let first = Body::start(world.pay(), receipt(7)).await;
    let runs = Runs::default();
    let mut tasks = duplicates(3, || world.pay(), &runs);
    let mut stays = Box::pin(answered(world.pay()));
    assert!(poll_once(stays.as_mut()).await.is_none());
    others().await;
    tasks.shutdown().await;
    assert_eq!(first.end().await, receipt(7));
    assert_eq!(stays.await, receipt(7));
    comes_to_rest(&world).await;
}

async fn a_leader_that_nobody_polls_holds_nobody_up_for_ever(world: World) {
    // It has sent its claim, and whoever holds it awaits something else.
    world.store.fail(Operation::Claim, [Fault::Hangs]);
    let mut leader = Box::pin(answered(world.pay()));
    assert!(poll_once(leader.as_mut()).await.is_none());
    let runs = Runs::default();
    let tasks = duplicates(3, || world.pay(), &runs);
    others().await;
    world.clock.advance(Duration::from_secs(5));
    for answer in tasks.join_all().await {
        assert_running(&refusal(answer));
    }
    drop(leader);
    assert_eq!(until(&world, paid(world.pay(), &runs)).await, receipt(1));
}

async fn who_waits_behind_a_leader_that_nobody_polls_leads_in_time(world: World) {
    world.store.fail(Operation::Claim, [Fault::Hangs]);
    let mut leader = Box::pin(answered(world.pay()));
    assert!(poll_once(leader.as_mut()).await.is_none());
    let runs = Runs::default();
    let patient = || {
        let patience = OnRunning::Wait(Duration::from_mins(5));
        world.pay().on_running(patience)
    };
    let tasks = duplicates(3, patient, &runs);
    others().await;
    // Twice as long as a claim may take.
    world.clock.advance(Duration::from_secs(4));
    let all = tokio::time::timeout(Duration::from_secs(20), tasks.join_all());
    let all = all.await.expect("one of them asks");
    assert!(all.iter().all(|answer| *answer == receipt(1)), "{all:?}");
    assert_eq!(runs.count(), 1);
    drop(leader);
}

async fn who_waits_for_a_claim_that_is_given_back_runs_though_its_context_lives(world: World) {
    let Begun::Claimed(claim) = world.pay().begin().await.unwrap() else {
        panic!("nothing is stored")
    };
    let context = claim.context();
    let runs = Runs::default();
    let waits = duplicates(1, || world.pay(), &runs);
    others().await;
    claim.release().await;
    let waited = tokio::time::timeout(Duration::from_secs(20), waits.join_all()).await;
    assert_eq!(waited.expect("it is told to ask"), [receipt(1)]);
    drop(context);
}

async fn who_can_find_out_does_not_take_the_word_of_one_who_cannot(world: World) {
    let first = Body::start(world.pay(), Err(PayError::TimedOut)).await;
    let counts = Counts::default();
    let finds_out = reconciled(world.pay(), LANDED, &counts);
    let ends = async {
        others().await;
        first.end().await
    };
    let (found, ended) = tokio::join!(finds_out, ends);
    assert_eq!(ended, Err(PayError::TimedOut));
    assert_eq!((found, counts.both()), (receipt(7), (1, 0)));
}

/// Its request is another one than that of the body that runs, though they are not compared.
async fn who_asks_for_himself_waits_as_long_as_he_says(world: World) {
    let first = Body::start(world.pay(), receipt(1)).await;
    let call = |seconds| {
        let patience = OnRunning::Wait(Duration::from_secs(seconds));
        world.pay().fingerprint(&1).on_running(patience)
    };
    let begun = world.clock.now();
    assert_running(&refusal(until(&world, answered(call(1))).await));
    assert_eq!(
        world.clock.now().saturating_sub(begun),
        Duration::from_secs(1)
    );
    let waits = tokio::spawn(answered(call(9)));
    // Until it asks again.
    world.clock.sleeper_within(Duration::from_secs(1)).await;
    assert_eq!(first.end().await, receipt(1));
    assert_eq!(until(&world, waits).await.unwrap(), receipt(1));
    assert_eq!(world.events.count("replayed value after a wait"), 1);
}

async fn after_a_system_error_exactly_one_of_them_runs(world: World) {
    let first = Body::start(world.pay(), Err(PayError::Down)).await;
    let runs = Runs::default();
    let tasks = duplicates(20, || world.pay(), &runs);
    others().await;
    assert_eq!(first.end().await, Err(PayError::Down));
    assert!(
        tasks
            .join_all()
            .await
            .iter()
            .all(|answer| *answer == receipt(1))
    );
    assert_eq!((claims(&world), runs.count()), (2, 1));
}

async fn after_a_panic_exactly_one_of_them_runs(world: World) {
    let (begun, end) = (Runs::default(), tokio::sync::Notify::new());
    let mut first = Box::pin(world.pay().run(|_| async {
        let _ = begun.start();
        end.notified().await;
        std::panic::panic_any("out of paper") as Answer
    }));
    while begun.count() == 0 {
        assert!(poll_once(first.as_mut()).await.is_none());
        tokio::task::yield_now().await;
    }
    let runs = Runs::default();
    let tasks = duplicates(20, || world.pay(), &runs);
    others().await;
    end.notify_one();
    caught(first).await.unwrap_err();
    assert!(
        tasks
            .join_all()
            .await
            .iter()
            .all(|answer| *answer == receipt(1))
    );
    assert_eq!((claims(&world), runs.count()), (2, 1));
}
