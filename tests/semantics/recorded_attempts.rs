//! The attempts that a record remembers, by which an operator sees why a body was started again.

use std::time::SystemTime;

use idem_runtime::admin::{Attempt, AttemptEnd, Process};

use crate::prelude::*;

on_every_store![
    a_call_that_succeeds_at_once_records_nothing,
    a_system_error_is_recorded_and_stays_behind_the_answer,
    a_crash_is_recorded_by_the_claim_that_takes_over,
    a_dropped_caller_is_recorded,
    a_panic_is_recorded,
    an_unknown_outcome_and_its_resolution_are_recorded,
    a_business_error_after_a_failure_is_recorded,
    attempts_and_steps_are_recorded_side_by_side,
    a_reset_keeps_what_is_recorded,
    an_engine_that_records_nothing_leaves_no_trace,
];

async fn recorded(fixture: &Fixture) -> Vec<Attempt> {
    let entry = fixture.pay().entry().await.unwrap();
    entry.expect("there is a record").recorded_attempts()
}

async fn ends(fixture: &Fixture) -> Vec<AttemptEnd> {
    let recorded = recorded(fixture).await;
    recorded.iter().map(|attempt| attempt.end).collect()
}

async fn a_call_that_succeeds_at_once_records_nothing(fixture: Fixture) {
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    assert_eq!(recorded(&fixture).await, []);
    let ReadReply::Found { record, .. } = fixture.store.read(&fixture.key()).await.unwrap() else {
        panic!("there is a record");
    };
    // The layout of a record without a journal.
    assert_eq!(record.as_bytes()[0], b'2');
    let process = fixture.pay().entry().await.unwrap().unwrap().process();
    assert_eq!(process.map(|process| process.pid), Some(std::process::id()));
}

async fn a_system_error_is_recorded_and_stays_behind_the_answer(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.instance("payments-7f9c"));
    down(fixture.pay()).await;
    down(fixture.pay()).await;
    let failed = recorded(&fixture).await;
    assert_eq!(ends(&fixture).await, [AttemptEnd::SystemError; 2]);
    for attempt in &failed {
        assert_eq!(attempt.instance, "payments-7f9c");
        assert_eq!(attempt.process(), Some(Process::this("payments-7f9c")));
        assert_eq!(attempt.number, 1, "an orderly release does not count");
        assert!(attempt.started() > SystemTime::UNIX_EPOCH);
    }
    assert_ne!(failed[0].owner, failed[1].owner);
    assert!(failed[0].fence < failed[1].fence);

    let runs = Runs::default();
    assert_eq!(paid(fixture.pay(), &runs).await, receipt(1));
    assert_eq!(answered(fixture.pay_far()).await, receipt(1));
    let all = recorded(&fixture).await;
    assert_eq!(all[..2], failed);
    assert_eq!((all.len(), all[2].end), (3, AttemptEnd::Value));
}

async fn a_crash_is_recorded_by_the_claim_that_takes_over(fixture: Fixture) {
    crashed(&fixture, fixture.pay()).await;
    assert_eq!(ends(&fixture).await, [], "it had no time to");
    crashed(&fixture, fixture.pay_far()).await;
    assert_eq!(ends(&fixture).await, [AttemptEnd::Lapsed]);
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    let all = recorded(&fixture).await;
    let ends: Vec<_> = all
        .iter()
        .map(|attempt| (attempt.number, attempt.end))
        .collect();
    assert_eq!(
        ends,
        [
            (1, AttemptEnd::Lapsed),
            (2, AttemptEnd::Lapsed),
            (3, AttemptEnd::Value)
        ]
    );
    let pid = std::process::id();
    assert!(
        all.iter()
            .all(|attempt| attempt.process().is_some_and(|process| process.pid == pid))
    );
}

async fn a_dropped_caller_is_recorded(fixture: Fixture) {
    let call = fixture.pay().on_cancel(OnCancel::Release);
    Body::start(call, receipt(1)).await.drop_caller().await;
    comes_to_stand(&fixture, |state| state == EntryState::Released).await;
    assert_eq!(ends(&fixture).await, [AttemptEnd::Cancelled]);
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    assert_eq!(
        ends(&fixture).await,
        [AttemptEnd::Cancelled, AttemptEnd::Value]
    );
}

async fn a_panic_is_recorded(fixture: Fixture) {
    panicked(fixture.pay()).await;
    assert_eq!(ends(&fixture).await, [AttemptEnd::Panicked]);
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    assert_eq!(
        ends(&fixture).await,
        [AttemptEnd::Panicked, AttemptEnd::Value]
    );
}

async fn an_unknown_outcome_and_its_resolution_are_recorded(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    assert_eq!(ends(&fixture).await, [AttemptEnd::Unknown]);
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    entry.resolve(&Receipt { run: 9 }).await.unwrap();
    assert_eq!(answered(fixture.pay()).await, receipt(9));
    assert_eq!(ends(&fixture).await, [AttemptEnd::Unknown]);
}

async fn a_business_error_after_a_failure_is_recorded(fixture: Fixture) {
    down(fixture.pay()).await;
    let declined = Err(PayError::Declined { run: 1 });
    let answer = declined.clone();
    let answer = fixture.pay().run(|_| async { answer as Answer });
    assert_eq!(answer.await, declined);
    assert_eq!(
        ends(&fixture).await,
        [AttemptEnd::SystemError, AttemptEnd::BusinessError]
    );
    assert_eq!(answered(fixture.pay_far()).await, declined);
}

async fn attempts_and_steps_are_recorded_side_by_side(fixture: Fixture) {
    let charge = Runs::default();
    for _ in 0..2 {
        let answer = fixture.pay().run(|_| async {
            crate::steps::counted("charge", &charge).await?;
            Err(PayError::Down) as Answer
        });
        assert_eq!(answer.await, Err(PayError::Down));
    }
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    assert_eq!((entry.steps().len(), charge.count()), (1, 1));
    assert_eq!(ends(&fixture).await, [AttemptEnd::SystemError; 2]);
    let answer = fixture
        .pay()
        .run(|_| crate::steps::counted("charge", &charge));
    assert_eq!(answer.await, receipt(1));
    assert_eq!(ends(&fixture).await.len(), 3);
}

async fn a_reset_keeps_what_is_recorded(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    entry.reset().await.unwrap();
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    assert_eq!(
        ends(&fixture).await,
        [AttemptEnd::Unknown, AttemptEnd::Value]
    );
}

async fn an_engine_that_records_nothing_leaves_no_trace(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.record_attempts(false));
    down(fixture.pay()).await;
    crashed(&fixture, fixture.pay()).await;
    crashed(&fixture, fixture.pay()).await;
    timed_out(fixture.pay()).await;
    assert_eq!(ends(&fixture).await, []);
}

/// The end of an answer that an operator took back is a time of the engine's clock, as that of any attempt.
#[tokio::test]
async fn an_answer_that_is_reset_ended_when_it_was_stored() {
    let fixture = Fixture::memory();
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    fixture.pass_in_store(Duration::from_secs(5));
    fixture.clock.advance(Duration::from_secs(5));
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    entry.reset().await.unwrap();
    let [answered] = &recorded(&fixture).await[..] else {
        panic!("it is remembered");
    };
    assert_eq!(answered.end, AttemptEnd::Value);
    let lasted = answered.ended.duration_since(answered.started());
    assert!(lasted.unwrap() < Duration::from_secs(1), "{answered:?}");
}
