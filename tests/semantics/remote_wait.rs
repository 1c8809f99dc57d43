//! Duplicates of a call that runs in another process.

use crate::prelude::*;

on_every_store![
    a_remote_follower_gets_the_answer,
    all_followers_of_one_process_ask_once,
    a_remote_follower_gets_the_business_error,
    a_remote_follower_gets_the_unknown_outcome,
    a_remote_follower_runs_when_the_key_is_released,
    a_remote_follower_takes_over_an_expired_lease,
    a_remote_follower_gets_the_remaining_lease,
    a_follower_that_cannot_reach_the_store_is_refused,
    a_follower_gets_a_refusal_of_the_store_at_once,
    a_follower_of_a_silent_store_fails_in_time,
    a_follower_of_a_lost_record_runs_at_once,
    the_last_follower_leaves_no_watch,
    ten_thousand_duplicates_claim_twice_at_most,
    a_waiter_with_a_hook_asks_although_another_one_was_refused,
];

/// A call of this process that has claimed and has to wait.
async fn waiting(fixture: &Fixture, call: Pay, runs: &Runs) -> JoinHandle<Answer> {
    let runs = runs.clone();
    let task = tokio::spawn(async move { paid(call, &runs).await });
    // The watch is the first command of a waiting call.
    sent(fixture, StoreOperation::Watch, 1).await;
    task
}

/// A body of another process, a call that waits for it, and the runs of that call.
async fn followed(fixture: &Fixture, answer: Answer) -> (Body, JoinHandle<Answer>, Runs) {
    let runs = Runs::default();
    let first = Body::start(fixture.pay_far(), answer).await;
    let second = waiting(fixture, patient(fixture.pay()), &runs).await;
    (first, second, runs)
}

async fn a_remote_follower_gets_the_answer(fixture: Fixture) {
    let (first, second, runs) = followed(&fixture, receipt(7)).await;
    assert_eq!(first.end().await, receipt(7));
    assert_eq!(until(&fixture, second).await.unwrap(), receipt(7));
    assert_eq!(runs.count(), 0);
    assert_eq!(fixture.events.count("replayed value after a wait"), 1);
}

async fn all_followers_of_one_process_ask_once(fixture: Fixture) {
    let first = Body::start(fixture.pay_far(), receipt(7)).await;
    let runs = Runs::default();
    let tasks = duplicates(50, || patient(fixture.pay()), &runs);
    others().await;
    assert_eq!(first.end().await, receipt(7));
    let answers = until(&fixture, tasks.join_all()).await;
    assert_each(answers, &receipt(7));
    assert_eq!(claims(&fixture), 2, "one a process");
    assert_eq!(runs.count(), 0);
}

async fn a_remote_follower_gets_the_business_error(fixture: Fixture) {
    let declined: Answer = Err(PayError::Declined { run: 1 });
    let (first, second, runs) = followed(&fixture, declined.clone()).await;
    assert_eq!(first.end().await, declined);
    assert_eq!(until(&fixture, second).await.unwrap(), declined);
    assert_eq!(runs.count(), 0);
}

async fn a_remote_follower_gets_the_unknown_outcome(fixture: Fixture) {
    let (first, second, runs) = followed(&fixture, Err(PayError::TimedOut)).await;
    assert_eq!(first.end().await, Err(PayError::TimedOut));
    assert_unknown(&refusal(until(&fixture, second).await.unwrap()));
    assert_eq!(runs.count(), 0);
}

async fn a_remote_follower_runs_when_the_key_is_released(fixture: Fixture) {
    let (first, second, _runs) = followed(&fixture, Err(PayError::Down)).await;
    assert_eq!(first.end().await, Err(PayError::Down));
    assert_eq!(until(&fixture, second).await.unwrap(), receipt(1));
}

async fn a_remote_follower_takes_over_an_expired_lease(fixture: Fixture) {
    let (first, second, _runs) = followed(&fixture, receipt(7)).await;
    first.drop_caller().await;
    fixture.pass_in_store(LEASE_OVER);
    assert_eq!(until(&fixture, second).await.unwrap(), receipt(1));
}

async fn a_remote_follower_gets_the_remaining_lease(fixture: Fixture) {
    let runs = Runs::default();
    let first = Body::start(fixture.pay_far(), receipt(7)).await;
    fixture.pass_in_store(Duration::from_secs(10));
    let call = fixture
        .pay()
        .on_running(OnRunning::Wait(Duration::from_secs(2)));
    let second = waiting(&fixture, call, &runs).await;
    fixture.clock.advance(Duration::from_secs(2));
    let left = assert_running(&refusal(second.await.unwrap()));
    let expected = Duration::from_secs(15)..=Duration::from_secs(20);
    assert!(expected.contains(&left), "{left:?}");
    assert_eq!(first.end().await, receipt(7));
}

async fn a_follower_that_cannot_reach_the_store_is_refused(fixture: Fixture) {
    let runs = Runs::default();
    let first = Body::start(fixture.pay_far(), receipt(7)).await;
    fixture.fail(StoreOperation::Watch, [Fault::Refused; 10]);
    fixture.fail(StoreOperation::Read, [Fault::Refused; 1_000]);
    // The refused claim of a running key is the last reply that this process receives.
    fixture.fail(StoreOperation::Claim, [Fault::None]);
    fixture.fail(StoreOperation::Claim, [Fault::Refused; 10]);
    let second = waiting(&fixture, patient(fixture.pay()), &runs).await;
    let error = refusal(until(&fixture, second).await.unwrap());
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
    assert!(!error.is_retryable(), "{error}");
    assert_eq!((first.end().await, runs.count()), (receipt(7), 0));
}

/// The refusal of a waiting call whose reads and later claims all meet this fault, and its delay.
async fn refused_after(fixture: &Fixture, fault: Fault) -> (Error, Duration) {
    let first = Body::start(fixture.pay_far(), receipt(7)).await;
    fixture.fail(StoreOperation::Read, [fault; 1_000]);
    fixture.fail(StoreOperation::Claim, [Fault::None]);
    fixture.fail(StoreOperation::Claim, [fault; 1_000]);
    let begun = fixture.clock.now();
    let runs = Runs::default();
    let mut second = waiting(fixture, patient(fixture.pay()), &runs).await;
    // The longest pause between two polls.
    let pause = Duration::from_millis(1_250);
    let answer = loop {
        tokio::select! {
            biased;
            answer = &mut second => break answer.unwrap(),
            () = fixture.clock.sleeper_within(pause) => {
                fixture.clock.advance(fixture.clock.next_wake().unwrap_or_default());
                others().await;
            }
        }
    };
    let error = refusal(answer);
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
    assert_eq!((first.end().await, runs.count()), (receipt(7), 0));
    (error, fixture.clock.now().saturating_sub(begun))
}

async fn a_follower_gets_a_refusal_of_the_store_at_once(fixture: Fixture) {
    let (error, after) = refused_after(&fixture, Fault::Refused).await;
    assert!(!error.is_retryable(), "{error}");
    assert!(after < Duration::from_secs(1), "{after:?}");
}

async fn a_follower_of_a_silent_store_fails_in_time(fixture: Fixture) {
    let (error, after) = refused_after(&fixture, Fault::Lost).await;
    assert!(error.is_retryable(), "{error}");
    // The store may be silent for this long to the polls, and once more to the claim.
    let expected = Duration::from_secs(4)..Duration::from_secs(6);
    assert!(expected.contains(&after), "{after:?}");
}

async fn a_follower_of_a_lost_record_runs_at_once(fixture: Fixture) {
    let (first, second, _runs) = followed(&fixture, receipt(7)).await;
    let begun = fixture.clock.now();
    fixture.pass_in_store(Duration::from_hours(25));
    assert_eq!(until(&fixture, second).await.unwrap(), receipt(1));
    let after = fixture.clock.now().saturating_sub(begun);
    assert!(after < Duration::from_millis(1_500), "{after:?}");
    assert_eq!(first.end().await, receipt(1));
}

async fn the_last_follower_leaves_no_watch(fixture: Fixture) {
    let first = Body::start(fixture.pay_far(), receipt(7)).await;
    let second = waiting(&fixture, patient(fixture.pay()), &Runs::default()).await;
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    comes_to_rest(&fixture).await;
    // The aborted follower does not poll again.
    let mut look = Box::pin(until(&fixture, std::future::pending::<()>()));
    for _ in 0..50 {
        assert!(poll_once(look.as_mut()).await.is_none());
        tokio::task::yield_now().await;
    }
    drop(look);
    assert_eq!(first.end().await, receipt(7));
}

async fn ten_thousand_duplicates_claim_twice_at_most(fixture: Fixture) {
    let first = Body::start(fixture.pay_far(), receipt(7)).await;
    let runs = Runs::default();
    let tasks = duplicates(10_000, || patient(fixture.pay()), &runs);
    others().await;
    assert_eq!(first.end().await, receipt(7));
    let answers = until(&fixture, tasks.join_all()).await;
    assert_each(answers, &receipt(7));
    let claims = claims(&fixture);
    assert!(claims <= 2, "{claims} claims of two processes");
    assert_eq!(runs.count(), 0);
}

async fn a_waiter_with_a_hook_asks_although_another_one_was_refused(fixture: Fixture) {
    for _ in 0..5 {
        panicked(fixture.pay()).await;
    }
    fixture.fail(StoreOperation::Claim, [Fault::ReplyHeld]);
    let mut plain = Box::pin(answered(fixture.pay()));
    assert!(poll_once(plain.as_mut()).await.is_none());
    let hook = |_| async { Reconciled::Landed(Receipt { run: 7 }) };
    let call = fixture.pay().run_reconciled(hook, |_| async { never() });
    let mut asks = Box::pin(call);
    assert!(poll_once(asks.as_mut()).await.is_none());
    fixture.store.deliver();
    let error: Error = refusal(plain.await);
    assert_eq!(error.kind(), &ErrorKind::Exhausted { attempts: 5 });
    assert_eq!(asks.await, receipt(7), "this one can find out");
}
