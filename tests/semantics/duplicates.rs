//! The outcome of a duplicate, while the first call runs and after.

use crate::prelude::*;

on_every_store![
    a_duplicate_of_a_running_call_waits_for_its_answer,
    a_duplicate_that_may_not_wait_is_refused_at_once,
    a_duplicate_waits_no_longer_than_it_may,
    a_waiting_duplicate_runs_when_the_first_call_gives_the_key_back,
    a_mismatch_is_refused_while_running_and_after_success,
    a_call_that_does_not_compare_matches_every_fingerprint,
    without_a_key_the_fingerprint_is_the_key,
    scopes_do_not_see_each_other,
    operations_do_not_see_each_other,
    a_cool_down_refuses_repeats_with_the_time_that_is_left,
    a_thousand_concurrent_duplicates_run_the_body_once,
];

/// A call that runs until its test ends it.
async fn running(fixture: &Fixture, answer: Answer) -> Body {
    Body::start(fixture.pay().fingerprint(&"first"), answer).await
}

async fn a_duplicate_of_a_running_call_waits_for_its_answer(fixture: Fixture) {
    let first = running(&fixture, receipt(1)).await;
    let duplicate = tokio::spawn(answered(fixture.pay_far()));
    // It claims, has to wait, and sleeps.
    fixture.clock.sleeper_within(Duration::from_secs(1)).await;
    assert!(!duplicate.is_finished());
    assert_eq!(first.end().await, receipt(1));
    assert_eq!(fixture.finished(duplicate).await, receipt(1));
    assert_eq!(fixture.events.count("replayed value after a wait"), 1);
}

async fn a_duplicate_that_may_not_wait_is_refused_at_once(fixture: Fixture) {
    let first = running(&fixture, receipt(1)).await;
    fixture.pass_in_store(Duration::from_secs(10));
    let call = fixture.pay().on_running(OnRunning::Reject);
    let retry_after = assert_running(&refusal(answered(call).await));
    let left = Duration::from_secs(18)..=Duration::from_secs(20);
    assert!(
        left.contains(&retry_after),
        "what is left of the lease: {retry_after:?}"
    );
    first.end().await.unwrap();
}

async fn a_duplicate_waits_no_longer_than_it_may(fixture: Fixture) {
    let first = running(&fixture, receipt(1)).await;
    let patience = Duration::from_secs(2);
    let call = fixture.pay_far().on_running(OnRunning::Wait(patience));
    let began = fixture.clock.now();
    let duplicate = tokio::spawn(answered(call));
    let error = refusal(fixture.finished(duplicate).await);
    let waited = fixture.clock.now().saturating_sub(began);
    let enough = patience..patience + Duration::from_millis(500);
    assert!(enough.contains(&waited), "gave up after {waited:?}");
    assert_running(&error);
    first.end().await.unwrap();
}

async fn a_waiting_duplicate_runs_when_the_first_call_gives_the_key_back(fixture: Fixture) {
    let first = running(&fixture, Err(PayError::Down)).await;
    let duplicate = tokio::spawn(fixture.pay_far().run(|_| async { receipt(2) }));
    fixture.clock.sleeper_within(Duration::from_secs(1)).await;
    assert_eq!(first.end().await, Err(PayError::Down));
    assert_eq!(fixture.finished(duplicate).await, receipt(2));
}

async fn mismatch(fixture: &Fixture, asked: &'static str) {
    let call = fixture.pay().fingerprint(&asked);
    let error = answered(call).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Mismatch);
}

async fn a_mismatch_is_refused_while_running_and_after_success(fixture: Fixture) {
    let first = running(&fixture, receipt(1)).await;
    mismatch(&fixture, "second").await;
    first.end().await.unwrap();
    mismatch(&fixture, "second").await;
}

async fn a_call_that_does_not_compare_matches_every_fingerprint(fixture: Fixture) {
    let first = running(&fixture, receipt(1)).await;
    first.end().await.unwrap();
    let answer = answered(fixture.pay()).await;
    assert_eq!(answer, receipt(1));
}

async fn without_a_key_the_fingerprint_is_the_key(fixture: Fixture) {
    let runs = Runs::default();
    let send = |text: &'static str| {
        let call = fixture.engine.operation("sms").fingerprint(&text);
        paid(call, &runs)
    };
    assert_eq!(send("hello").await, receipt(1));
    assert_eq!(send("hello").await, receipt(1));
    assert_eq!(send("other").await, receipt(2));
}

async fn scopes_do_not_see_each_other(fixture: Fixture) {
    let runs = Runs::default();
    let pay = |tenant: &'static str| {
        let call = fixture.engine.operation("pay").scope(&tenant).key(&7);
        paid(call, &runs)
    };
    assert_eq!(pay("a").await, receipt(1));
    assert_eq!(pay("b").await, receipt(2));
    assert_eq!(pay("a").await, receipt(1));
}

async fn operations_do_not_see_each_other(fixture: Fixture) {
    let runs = Runs::default();
    let call = |operation: &'static str| {
        let call = fixture.engine.operation(operation).key(&7);
        paid(call, &runs)
    };
    assert_eq!(call("pay").await, receipt(1));
    assert_eq!(call("refund").await, receipt(2));
}

async fn a_cool_down_refuses_repeats_with_the_time_that_is_left(fixture: Fixture) {
    let send = || {
        let call = fixture.pay().ttl(Duration::from_mins(1));
        call.on_duplicate(OnDuplicate::Reject)
    };
    let first = send().run(|_| async { receipt(1) });
    assert_eq!(first.await, receipt(1));
    fixture.pass_in_store(Duration::from_secs(20));
    let error = answered(send()).await.unwrap_err();
    let ErrorKind::Duplicate { retry_after } = error.kind() else {
        panic!("{error:?}")
    };
    let left = Duration::from_secs(38)..=Duration::from_secs(40);
    assert!(left.contains(retry_after), "{retry_after:?}");
    fixture.pass_in_store(Duration::from_secs(40));
    let next = send().run(|_| async { receipt(2) });
    assert_eq!(next.await, receipt(2));
}

async fn a_thousand_concurrent_duplicates_run_the_body_once(fixture: Fixture) {
    // The real clock: this is about what meets at one moment.
    let fixture = fixture.with(|engine| engine.clock(idem_runtime::clock::SystemClock));
    let (runs, all_asked) = (Runs::default(), Arc::new(Semaphore::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..1_000 {
        let (call, runs) = (fixture.pay(), runs.clone());
        let (asked, gate) = (Arc::clone(&all_asked), Arc::clone(&all_asked));
        tasks.spawn(async move {
            asked.add_permits(1);
            let body = |_| async move {
                // Ends when every duplicate has been started.
                gate.acquire_many(1_000).await.unwrap().forget();
                receipt(runs.start())
            };
            call.run(body).await
        });
    }
    while let Some(answer) = tasks.join_next().await {
        assert_eq!(answer.unwrap(), receipt(1));
    }
    assert_eq!(runs.count(), 1);
    assert_eq!(fixture.events.count("replayed value"), 999);
}
