//! Duplicates of a running call, in its process: they share one claim and one answer.

use crate::prelude::*;

on_every_store![
    duplicates_of_one_process_share_one_claim,
    the_answer_reaches_all_followers_without_the_store,
    a_business_error_reaches_all_followers,
    an_unknown_outcome_reaches_all_followers,
    a_tombstone_reaches_all_followers,
    a_refusal_reaches_all_followers,
    an_exhausted_key_is_refused_to_all_followers,
    another_request_is_refused_while_the_first_one_runs,
    a_call_that_does_not_compare_waits_for_one_that_does,
    a_call_that_compares_waits_for_one_that_does_not,
    a_cool_down_that_waits_is_refused_in_the_end,
    each_follower_waits_for_its_own_time,
    a_call_that_may_not_wait_does_not,
    followers_ask_the_store_when_the_local_lease_expires,
    a_body_that_is_renewed_is_waited_for_longer_than_its_lease,
    two_keys_do_not_wait_for_each_other,
];

async fn duplicates_of_one_process_share_one_claim(fixture: Fixture) {
    let runs = Runs::default();
    let first = Body::start(fixture.pay(), receipt(7)).await;
    let tasks = duplicates(50, || fixture.pay(), &runs);
    others().await;
    assert_eq!(first.end().await, receipt(7));
    assert_each(tasks.join_all().await, &receipt(7));
    assert_eq!((claims(&fixture), runs.count()), (1, 0));
    assert_eq!(fixture.events.count("replayed value after a wait"), 50);
}

async fn the_answer_reaches_all_followers_without_the_store(fixture: Fixture) {
    let runs = Runs::default();
    let first = Body::start(fixture.pay(), receipt(7)).await;
    let tasks = duplicates(10, || fixture.pay(), &runs);
    others().await;
    fixture.fail(StoreOperation::Claim, [Fault::Refused; 100]);
    fixture.fail(StoreOperation::Read, [Fault::Refused; 100]);
    assert_eq!(first.end().await, receipt(7));
    assert_each(tasks.join_all().await, &receipt(7));
}

async fn a_business_error_reaches_all_followers(fixture: Fixture) {
    let declined: Answer = Err(PayError::Declined { run: 1 });
    let first = Body::start(fixture.pay(), declined.clone()).await;
    let (runs, tasks) = followers(5, &fixture).await;
    assert_eq!(first.end().await, declined);
    assert_each(tasks.join_all().await, &declined);
    assert_eq!((claims(&fixture), runs.count()), (1, 0));
}

async fn an_unknown_outcome_reaches_all_followers(fixture: Fixture) {
    let first = Body::start(fixture.pay(), Err(PayError::TimedOut)).await;
    let (runs, tasks) = followers(5, &fixture).await;
    assert_eq!(first.end().await, Err(PayError::TimedOut));
    for answer in tasks.join_all().await {
        assert_unknown(&refusal(answer));
    }
    assert_eq!((claims(&fixture), runs.count()), (1, 0));
}

async fn a_tombstone_reaches_all_followers(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.max_value_bytes(1));
    let first = Body::start(fixture.pay(), receipt(7)).await;
    let (runs, tasks) = followers(5, &fixture).await;
    assert_eq!(first.end().await, receipt(7), "its own caller gets it");
    for answer in tasks.join_all().await {
        assert_eq!(refusal(answer).kind(), &ErrorKind::NotStored);
    }
    assert_eq!((claims(&fixture), runs.count()), (1, 0));
}

async fn a_refusal_reaches_all_followers(fixture: Fixture) {
    fixture.fail(StoreOperation::Claim, [Fault::Hangs]);
    let (runs, tasks) = followers(10, &fixture).await;
    fixture.clock.advance(Duration::from_secs(2));
    for answer in tasks.join_all().await {
        assert_eq!(refusal(answer).kind(), &ErrorKind::StoreUnavailable);
    }
    assert_eq!((claims(&fixture), runs.count()), (1, 0));
}

async fn an_exhausted_key_is_refused_to_all_followers(fixture: Fixture) {
    for _ in 0..5 {
        panicked(fixture.pay()).await;
    }
    fixture.fail(StoreOperation::Claim, [Fault::ReplyHeld]);
    let (runs, tasks) = followers(10, &fixture).await;
    fixture.store.deliver();
    for answer in tasks.join_all().await {
        assert_eq!(
            refusal(answer).kind(),
            &ErrorKind::Exhausted { attempts: 5 }
        );
    }
    assert_eq!((claims(&fixture), runs.count()), (6, 0));
}

async fn another_request_is_refused_while_the_first_one_runs(fixture: Fixture) {
    let first = Body::start(fixture.pay().fingerprint(&"ten"), receipt(7)).await;
    let other = refusal(answered(fixture.pay().fingerprint(&"eleven")).await);
    assert_eq!(other.kind(), &ErrorKind::Mismatch);
    let mut same = Box::pin(answered(fixture.pay().fingerprint(&"ten")));
    assert!(poll_once(same.as_mut()).await.is_none(), "it waits");
    let other = refusal(answered(fixture.pay().fingerprint(&"eleven")).await);
    assert_eq!(other.kind(), &ErrorKind::Mismatch);
    assert_eq!(first.end().await, receipt(7));
    assert_eq!(same.await, receipt(7));
}

async fn a_call_that_does_not_compare_waits_for_one_that_does(fixture: Fixture) {
    let first = Body::start(fixture.pay().fingerprint(&"ten"), receipt(7)).await;
    let mut blind = Box::pin(answered(fixture.pay()));
    while claims(&fixture) < 2 {
        assert!(poll_once(blind.as_mut()).await.is_none());
    }
    assert_eq!(first.end().await, receipt(7));
    assert_eq!(until(&fixture, blind).await, receipt(7));
}

async fn a_call_that_compares_waits_for_one_that_does_not(fixture: Fixture) {
    let first = Body::start(fixture.pay(), receipt(7)).await;
    let mut exact = Box::pin(answered(fixture.pay().fingerprint(&"ten")));
    while claims(&fixture) < 2 {
        assert!(poll_once(exact.as_mut()).await.is_none());
    }
    assert_eq!(first.end().await, receipt(7));
    assert_eq!(until(&fixture, exact).await, receipt(7));
}

async fn a_cool_down_that_waits_is_refused_in_the_end(fixture: Fixture) {
    let wait = OnRunning::Wait(Duration::from_secs(5));
    let call = || {
        fixture
            .pay()
            .on_duplicate(OnDuplicate::Reject)
            .on_running(wait)
    };
    let first = Body::start(call(), receipt(7)).await;
    let mut second = Box::pin(answered(call()));
    assert!(poll_once(second.as_mut()).await.is_none());
    assert_eq!(first.end().await, receipt(7));
    let error = refusal(second.await);
    let ErrorKind::Duplicate { retry_after } = error.kind() else {
        panic!("{error:?}")
    };
    let left = Duration::from_hours(23)..=Duration::from_hours(24);
    assert!(left.contains(retry_after), "{retry_after:?}");
}

async fn each_follower_waits_for_its_own_time(fixture: Fixture) {
    let first = Body::start(fixture.pay(), receipt(7)).await;
    let wait = |seconds| {
        let wait = OnRunning::Wait(Duration::from_secs(seconds));
        Box::pin(answered(fixture.pay().on_running(wait)))
    };
    let (mut short, mut long) = (wait(1), wait(3));
    assert!(poll_once(short.as_mut()).await.is_none());
    assert!(poll_once(long.as_mut()).await.is_none());
    fixture.clock.advance(Duration::from_millis(999));
    assert!(poll_once(short.as_mut()).await.is_none());
    fixture.clock.advance(Duration::from_millis(1));
    let left = assert_running(&refusal(short.await));
    assert_eq!(left, Duration::from_secs(29), "what is left of the lease");
    assert!(poll_once(long.as_mut()).await.is_none());
    assert_eq!(first.end().await, receipt(7));
    assert_eq!(long.await, receipt(7));
}

async fn a_call_that_may_not_wait_does_not(fixture: Fixture) {
    let first = Body::start(fixture.pay(), receipt(7)).await;
    assert_running(&refused(&fixture).await);
    assert_eq!(first.end().await, receipt(7));
}

async fn followers_ask_the_store_when_the_local_lease_expires(fixture: Fixture) {
    let patient = || patient(fixture.pay());
    let first = Body::start(fixture.pay(), receipt(7)).await;
    let runs = Runs::default();
    let mut second = Box::pin(paid(patient(), &runs));
    assert!(poll_once(second.as_mut()).await.is_none());
    // The process was paused: its clock and the store's have gone on, and nothing was renewed.
    fixture.fail(StoreOperation::Renew, [Fault::Hangs; 100]);
    fixture.pass_in_store(LEASE_OVER);
    fixture.clock.advance(LEASE_OVER);
    assert_eq!(second.await, receipt(1), "it took over");
    assert_eq!(first.end().await, receipt(1), "and its answer counts");
}

async fn a_body_that_is_renewed_is_waited_for_longer_than_its_lease(fixture: Fixture) {
    let patient = || patient(fixture.pay());
    let first = Body::start(fixture.pay(), receipt(7)).await;
    let mut second = Box::pin(answered(patient()));
    for renewals in 1..=6 {
        assert!(poll_once(second.as_mut()).await.is_none());
        renewed(&fixture, THIRD, renewals).await;
    }
    assert_eq!(claims(&fixture), 1, "nobody had to ask");
    assert_eq!(first.end().await, receipt(7));
    assert_eq!(second.await, receipt(7));
}

async fn two_keys_do_not_wait_for_each_other(fixture: Fixture) {
    let first = Body::start(fixture.pay(), receipt(7)).await;
    let runs = Runs::default();
    let other = paid(fixture.engine.operation("pay").key(&8), &runs);
    assert_eq!(other.await, receipt(1));
    let other = paid(fixture.engine.operation("pay").scope("b").key(&7), &runs);
    assert_eq!(other.await, receipt(2));
    assert_eq!(first.end().await, receipt(7));
}
