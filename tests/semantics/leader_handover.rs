//! The first of the duplicates in a process claims for all of them. When it goes without an answer, another one
//! takes its place.

use crate::prelude::*;

on_every_store![
    a_leader_that_is_dropped_while_it_asks_makes_another_one_ask,
    a_leader_that_is_dropped_with_its_claim_granted_makes_another_one_run,
    a_leader_whose_body_is_dropped_makes_another_one_wait_for_its_lease,
    a_leader_whose_body_is_dropped_and_released_makes_another_one_run,
    a_dropped_follower_leaves_the_others_waiting,
    a_follower_asks_for_a_time_that_its_leader_lacks,
    a_follower_of_a_leader_that_is_not_polled_becomes_the_leader,
    a_follower_of_a_released_claim_runs_while_its_context_lives,
    a_follower_with_a_hook_does_not_share_the_refusal_of_a_leader_without,
    a_call_of_another_request_waits_for_its_own_time,
    after_a_panic_exactly_one_of_them_runs,
];

async fn a_follower_asks_for_a_time_that_its_leader_lacks(fixture: Fixture) {
    let (runs, hour) = (Runs::default(), Duration::from_hours(1));
    assert_eq!(paid(fixture.pay(), &runs).await, receipt(1));
    fixture.pass_in_store(hour);
    fixture.fail(StoreOperation::Claim, [Fault::ReplyHeld]);
    let leader = tokio::spawn(answered(fixture.pay()));
    others().await;
    let cool_down = fixture.pay().on_duplicate(OnDuplicate::Reject);
    let told = tokio::spawn(answered(patient(cool_down)));
    others().await;
    fixture.store.deliver();
    assert_eq!(until(&fixture, leader).await.unwrap(), receipt(1));
    let left = assert_duplicate(&refusal(until(&fixture, told).await.unwrap()));
    // Both by the store's reply, and the answer lives for a day.
    assert!(left <= 23 * hour, "{left:?}");
    assert_eq!(runs.count(), 1);
}

async fn a_leader_that_is_dropped_while_it_asks_makes_another_one_ask(fixture: Fixture) {
    fixture.fail(StoreOperation::Claim, [Fault::Hangs]);
    let runs = Runs::default();
    let mut leader = Box::pin(answered(fixture.pay()));
    assert!(poll_once(leader.as_mut()).await.is_none());
    let tasks = duplicates(10, || fixture.pay(), &runs);
    others().await;
    assert_eq!(claims(&fixture), 1);
    drop(leader);
    assert_each(until(&fixture, tasks.join_all()).await, &receipt(1));
    assert_eq!((claims(&fixture), runs.count()), (2, 1));
}

async fn a_leader_that_is_dropped_with_its_claim_granted_makes_another_one_run(fixture: Fixture) {
    fixture.fail(StoreOperation::Claim, [Fault::ReplyHangs]);
    let runs = Runs::default();
    let mut leader = Box::pin(answered(fixture.pay()));
    while fixture.pay_far().entry().await.unwrap().is_none() {
        assert!(poll_once(leader.as_mut()).await.is_none());
    }
    let tasks = duplicates(10, || fixture.pay(), &runs);
    others().await;
    drop(leader);
    assert_each(until(&fixture, tasks.join_all()).await, &receipt(1));
    assert_eq!(runs.count(), 1);
    assert!(claims(&fixture) <= 3, "{} claims", claims(&fixture));
}

async fn a_leader_whose_body_is_dropped_makes_another_one_wait_for_its_lease(fixture: Fixture) {
    let runs = Runs::default();
    let patient = || patient(fixture.pay());
    let first = Body::start(fixture.pay(), receipt(7)).await;
    let mut tasks = duplicates(10, patient, &runs);
    others().await;
    first.drop_caller().await;
    // A second claim has been sent; its caller has to wait.
    sent(&fixture, StoreOperation::Claim, 2).await;
    assert!(tasks.try_join_next().is_none());
    assert_eq!(runs.count(), 0);
    fixture.pass_in_store(LEASE_OVER);
    assert_each(until(&fixture, tasks.join_all()).await, &receipt(1));
    assert_eq!(runs.count(), 1);
}

async fn a_leader_whose_body_is_dropped_and_released_makes_another_one_run(fixture: Fixture) {
    let runs = Runs::default();
    let first = Body::start(fixture.pay().on_cancel(OnCancel::Release), receipt(7)).await;
    let tasks = duplicates(10, || fixture.pay(), &runs);
    others().await;
    first.drop_caller().await;
    assert_each(until(&fixture, tasks.join_all()).await, &receipt(1));
    assert_eq!(runs.count(), 1);
}

async fn a_dropped_follower_leaves_the_others_waiting(fixture: Fixture) {
    let first = Body::start(fixture.pay(), receipt(7)).await;
    let runs = Runs::default();
    let mut tasks = duplicates(3, || fixture.pay(), &runs);
    let mut stays = Box::pin(answered(fixture.pay()));
    assert!(poll_once(stays.as_mut()).await.is_none());
    others().await;
    tasks.shutdown().await;
    assert_eq!(first.end().await, receipt(7));
    assert_eq!(stays.await, receipt(7));
    comes_to_rest(&fixture).await;
}

async fn a_follower_of_a_leader_that_is_not_polled_becomes_the_leader(fixture: Fixture) {
    fixture.fail(StoreOperation::Claim, [Fault::Hangs]);
    let mut leader = Box::pin(answered(fixture.pay()));
    assert!(poll_once(leader.as_mut()).await.is_none());
    let runs = Runs::default();
    let tasks = duplicates(3, || patient(fixture.pay()), &runs);
    others().await;
    // Twice as long as a claim may take.
    fixture.clock.advance(Duration::from_secs(4));
    let all = patiently("one of them claims", tasks.join_all()).await;
    assert!(all.iter().all(|answer| *answer == receipt(1)), "{all:?}");
    assert_eq!(runs.count(), 1);
    drop(leader);
}

async fn a_follower_of_a_released_claim_runs_while_its_context_lives(fixture: Fixture) {
    let claim = claimed(fixture.pay()).await;
    let context = claim.context();
    let runs = Runs::default();
    let waits = duplicates(1, || fixture.pay(), &runs);
    others().await;
    claim.release().await;
    let answers = patiently("the follower claims", waits.join_all()).await;
    assert_eq!(answers, [receipt(1)]);
    drop(context);
}

async fn a_follower_with_a_hook_does_not_share_the_refusal_of_a_leader_without(fixture: Fixture) {
    let first = Body::start(fixture.pay(), Err(PayError::TimedOut)).await;
    let counts = Counts::default();
    let finds_out = reconciled(fixture.pay(), LANDED, &counts);
    let ends = async {
        others().await;
        first.end().await
    };
    let (found, ended) = tokio::join!(finds_out, ends);
    assert_eq!(ended, Err(PayError::TimedOut));
    assert_eq!((found, counts.both()), (receipt(7), (1, 0)));
}

/// Its request is another one than that of the body that runs, though they are not compared.
async fn a_call_of_another_request_waits_for_its_own_time(fixture: Fixture) {
    let first = Body::start(fixture.pay(), receipt(1)).await;
    let call = |seconds| {
        let patience = OnRunning::Wait(Duration::from_secs(seconds));
        fixture.pay().fingerprint(&1).on_running(patience)
    };
    let begun = fixture.clock.now();
    assert_running(&refusal(until(&fixture, answered(call(1))).await));
    assert_eq!(
        fixture.clock.now().saturating_sub(begun),
        Duration::from_secs(1)
    );
    let waits = tokio::spawn(answered(call(9)));
    // Until it queries the store again.
    fixture.clock.sleeper_within(Duration::from_secs(1)).await;
    assert_eq!(first.end().await, receipt(1));
    assert_eq!(until(&fixture, waits).await.unwrap(), receipt(1));
    assert_eq!(fixture.events.count("replayed value after a wait"), 1);
}

async fn after_a_panic_exactly_one_of_them_runs(fixture: Fixture) {
    let (begun, end) = (Runs::default(), tokio::sync::Notify::new());
    let mut first = Box::pin(fixture.pay().run(|_| async {
        let _ = begun.start();
        end.notified().await;
        std::panic::panic_any("out of paper") as Answer
    }));
    while begun.count() == 0 {
        assert!(poll_once(first.as_mut()).await.is_none());
        tokio::task::yield_now().await;
    }
    let (runs, tasks) = followers(20, &fixture).await;
    end.notify_one();
    caught(first).await.unwrap_err();
    assert_each(tasks.join_all().await, &receipt(1));
    assert_eq!((claims(&fixture), runs.count()), (2, 1));
}
