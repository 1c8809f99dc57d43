//! The first duplicate of a process claims for all of them. When it goes without an answer, another one takes its
//! place.

use crate::prelude::*;

on_every_store![
    a_leader_that_is_dropped_while_it_asks_makes_another_one_ask,
    a_leader_that_is_dropped_with_its_claim_granted_makes_another_one_run,
    a_leader_whose_body_is_dropped_makes_another_one_wait_for_its_lease,
    a_follower_of_a_leader_that_is_not_polled_becomes_the_leader,
    a_follower_of_a_released_claim_runs_while_its_context_lives,
    a_follower_with_a_hook_does_not_share_the_refusal_of_a_leader_without,
    after_a_panic_exactly_one_of_them_runs,
];

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
