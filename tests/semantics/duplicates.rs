//! Duplicates of a call, here and in another process: what they wait for, and what they get.

use crate::prelude::*;

on_every_store! {
    followers_here_get_what_the_body_ends_with, followers_elsewhere_get_what_the_body_ends_with,
    a_refusal_reaches_all_followers, a_duplicate_that_may_not_wait_is_refused_at_once,
    another_request_is_refused_while_the_first_one_runs_and_after_it,
    calls_of_which_one_does_not_compare_wait_for_each_other,
    a_cool_down_refuses_repeats_with_the_time_that_is_left,
    a_cool_down_that_waits_is_refused_in_the_end, each_follower_waits_for_its_own_time,
    followers_ask_the_store_when_the_local_lease_expires,
    a_body_that_is_renewed_is_waited_for_longer_than_its_lease,
    a_remote_follower_takes_over_an_expired_lease, a_remote_follower_without_a_store_is_refused,
    a_follower_of_a_lost_record_runs_at_once,
}

/// How a body ends: a name, its answer, what every follower gets (`None`: the outcome is unknown), and how many run.
type Ending = (&'static str, Answer, Option<Answer>, u32);

fn endings() -> [Ending; 4] {
    let declined = || Err(PayError::Declined { run: 1 });
    [
        ("a success", receipt(7), Some(receipt(7)), 0),
        ("a business error", declined(), Some(declined()), 0),
        ("an unknown outcome", Err(PayError::TimedOut), None, 0),
        ("a system error", Err(PayError::Down), Some(receipt(1)), 1),
    ]
}

/// The body runs here or elsewhere. One call of each waiting process claims for all its calls.
async fn followers_get_what_the_body_ends_with(fixture: Fixture, elsewhere: bool) {
    for (name, ends, gets, runs) in endings() {
        let call = || patient(fixture.engine.operation("pay").key(name));
        let (before, ran) = (claims(&fixture), Runs::default());
        let watches = fixture.count(StoreOperation::Watch);
        let engine = if elsewhere {
            &fixture.far
        } else {
            &fixture.engine
        };
        let first = Body::start(engine.operation("pay").key(name), ends.clone()).await;
        let tasks = duplicates(50, call, &ran);
        others().await;
        if elsewhere {
            // The watch is the first command of a waiting call.
            sent(&fixture, StoreOperation::Watch, watches + 1).await;
        } else if runs == 0 {
            // They need no store.
            fixture.fail(StoreOperation::Claim, [Fault::Refused; 100]);
            fixture.fail(StoreOperation::Read, [Fault::Refused; 100]);
        }
        assert_eq!(first.end().await, ends, "{name}");
        for answer in until(&fixture, tasks.join_all()).await {
            match &gets {
                Some(gets) => assert_eq!(answer, *gets, "{name}"),
                None => assert_unknown(&refusal(answer)),
            }
        }
        assert_eq!(ran.count(), runs, "{name}");
        let expected = 1 + usize::from(elsewhere) + runs as usize;
        assert_eq!(claims(&fixture) - before, expected, "{name}");
        fixture.store.heal();
    }
    if !elsewhere {
        // All of the success, and all but one after the system error.
        let waited = fixture.events.count("replayed value after a wait");
        assert_eq!(waited, 50 + 49);
    }
}

async fn followers_here_get_what_the_body_ends_with(fixture: Fixture) {
    followers_get_what_the_body_ends_with(fixture, false).await;
}

async fn followers_elsewhere_get_what_the_body_ends_with(fixture: Fixture) {
    followers_get_what_the_body_ends_with(fixture, true).await;
}

async fn a_refusal_reaches_all_followers(fixture: Fixture) {
    fixture.fail(StoreOperation::Claim, [Fault::Hangs]);
    let (runs, tasks) = followers(10, &fixture).await;
    fixture.clock.advance(Duration::from_secs(2));
    for answer in tasks.join_all().await {
        assert_refusal(answer, &ErrorKind::StoreUnavailable);
    }
    assert_eq!((claims(&fixture), runs.count()), (1, 0));
}

async fn a_duplicate_that_may_not_wait_is_refused_at_once(fixture: Fixture) {
    let first = Body::start(fixture.pay(), receipt(1)).await;
    fixture.pass_in_store(Duration::from_secs(10));
    let left = assert_running(&refused(&fixture).await);
    let expected = Duration::from_secs(18)..=Duration::from_secs(20);
    assert!(expected.contains(&left), "of the lease: {left:?}");
    first.end().await.unwrap();
}

async fn another_request_is_refused_while_the_first_one_runs_and_after_it(fixture: Fixture) {
    let asked = |request: &'static str| answered(fixture.pay().fingerprint(&request));
    let first = Body::start(fixture.pay().fingerprint(&"ten"), receipt(7)).await;
    assert_refusal(asked("eleven").await, &ErrorKind::Mismatch);
    let mut same = Box::pin(asked("ten"));
    assert!(poll_once(same.as_mut()).await.is_none(), "it waits");
    assert_refusal(asked("eleven").await, &ErrorKind::Mismatch);
    assert_eq!(first.end().await, receipt(7));
    assert_eq!(same.await, receipt(7));
    assert_refusal(asked("eleven").await, &ErrorKind::Mismatch);
    assert_eq!(answered(fixture.pay()).await, receipt(7));
}

async fn calls_of_which_one_does_not_compare_wait_for_each_other(fixture: Fixture) {
    for first_compares in [true, false] {
        let call = |compares: bool| {
            let call = fixture.engine.operation("pay").key(&first_compares);
            if compares {
                call.fingerprint(&"ten")
            } else {
                call
            }
        };
        let before = claims(&fixture);
        let first = Body::start(call(first_compares), receipt(7)).await;
        let mut second = Box::pin(answered(call(!first_compares)));
        while claims(&fixture) < before + 2 {
            assert!(poll_once(second.as_mut()).await.is_none());
        }
        assert_eq!(first.end().await, receipt(7));
        assert_eq!(until(&fixture, second).await, receipt(7));
    }
}

async fn a_cool_down_refuses_repeats_with_the_time_that_is_left(fixture: Fixture) {
    let send = || {
        let call = fixture.pay().ttl(Duration::from_mins(1));
        call.on_duplicate(OnDuplicate::Reject)
    };
    let runs = Runs::default();
    assert_eq!(paid(send(), &runs).await, receipt(1));
    fixture.pass_in_store(Duration::from_secs(20));
    let left = assert_duplicate(&refusal(answered(send()).await));
    let expected = Duration::from_secs(38)..=Duration::from_secs(40);
    assert!(expected.contains(&left), "{left:?}");
    fixture.pass_in_store(Duration::from_secs(40));
    assert_eq!(paid(send(), &runs).await, receipt(2));
}

async fn a_cool_down_that_waits_is_refused_in_the_end(fixture: Fixture) {
    let call = || patient(fixture.pay().on_duplicate(OnDuplicate::Reject));
    let first = Body::start(call(), receipt(7)).await;
    let mut second = Box::pin(answered(call()));
    assert!(poll_once(second.as_mut()).await.is_none());
    let third = answered(fixture.pay().on_duplicate(OnDuplicate::Reject));
    assert_running(&refusal(patiently("it does not wait", third).await));
    assert_eq!(first.end().await, receipt(7));
    let left = assert_duplicate(&refusal(second.await));
    let expected = Duration::from_hours(23)..=Duration::from_hours(24);
    assert!(expected.contains(&left), "{left:?}");
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

async fn followers_ask_the_store_when_the_local_lease_expires(fixture: Fixture) {
    let first = Body::start(fixture.pay(), receipt(7)).await;
    let runs = Runs::default();
    let mut second = Box::pin(paid(patient(fixture.pay()), &runs));
    assert!(poll_once(second.as_mut()).await.is_none());
    // The process was paused: its clock and the store's have gone on, and nothing was renewed.
    fixture.fail(StoreOperation::Renew, [Fault::Hangs; 100]);
    fixture.pass_in_store(LEASE_OVER);
    fixture.clock.advance(LEASE_OVER);
    assert_eq!(second.await, receipt(1), "it took over");
    assert_eq!(first.end().await, receipt(1), "and its answer counts");
}

async fn a_body_that_is_renewed_is_waited_for_longer_than_its_lease(fixture: Fixture) {
    let first = Body::start(fixture.pay(), receipt(7)).await;
    let mut second = Box::pin(answered(patient(fixture.pay())));
    for renewals in 1..=6 {
        assert!(poll_once(second.as_mut()).await.is_none());
        renewed(&fixture, THIRD, renewals).await;
    }
    assert_eq!(claims(&fixture), 1, "the follower does not ask the store");
    assert_eq!(first.end().await, receipt(7));
    assert_eq!(second.await, receipt(7));
}

/// A call of this process that has claimed and has to wait.
async fn waiting(fixture: &Fixture, call: Pay, runs: &Runs) -> JoinHandle<Answer> {
    let (runs, watches) = (runs.clone(), fixture.count(StoreOperation::Watch));
    let task = tokio::spawn(async move { paid(call, &runs).await });
    sent(fixture, StoreOperation::Watch, watches + 1).await;
    task
}

async fn a_remote_follower_takes_over_an_expired_lease(fixture: Fixture) {
    let first = Body::start(fixture.pay_far(), receipt(7)).await;
    let second = waiting(&fixture, patient(fixture.pay()), &Runs::default()).await;
    first.drop_caller().await;
    fixture.pass_in_store(LEASE_OVER);
    assert_eq!(until(&fixture, second).await.unwrap(), receipt(1));
}

/// The refusal of its claim is the last reply that it gets.
async fn a_remote_follower_without_a_store_is_refused(mut fixture: Fixture) {
    let second = Duration::from_secs(1);
    let at_once = Duration::ZERO..second;
    // The store may be silent for two seconds to the polls, and once more to the claim.
    let in_time = second * 4..second * 6;
    for (name, fault, retryable, expected) in [
        ("refuses", Fault::Refused, false, at_once),
        ("is silent", Fault::Lost, true, in_time),
    ] {
        let first = Body::start(fixture.far.operation("pay").key(name), receipt(7)).await;
        fixture.fail(StoreOperation::Read, [fault; 1_000]);
        fixture.fail(StoreOperation::Claim, [Fault::None]);
        fixture.fail(StoreOperation::Claim, [fault; 1_000]);
        let (begun, runs) = (fixture.clock.now(), Runs::default());
        let call = patient(fixture.engine.operation("pay").key(name));
        let mut second = waiting(&fixture, call, &runs).await;
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
        assert_eq!(error.kind(), &ErrorKind::StoreUnavailable, "{name}");
        assert_eq!(error.is_retryable(), retryable, "{name}: {error}");
        let after = fixture.clock.now().saturating_sub(begun);
        assert!(expected.contains(&after), "{name}: {after:?}");
        fixture.store.heal();
        assert_eq!((first.end().await, runs.count()), (receipt(7), 0), "{name}");
        fixture = fixture.with(|engine| engine);
    }
}

async fn a_follower_of_a_lost_record_runs_at_once(fixture: Fixture) {
    let first = Body::start(fixture.pay_far(), receipt(7)).await;
    let second = waiting(&fixture, patient(fixture.pay()), &Runs::default()).await;
    let begun = fixture.clock.now();
    fixture.pass_in_store(Duration::from_hours(25));
    assert_eq!(until(&fixture, second).await.unwrap(), receipt(1));
    let after = fixture.clock.now().saturating_sub(begun);
    assert!(after < Duration::from_millis(1_500), "{after:?}");
    assert_eq!(first.end().await, receipt(1));
}
