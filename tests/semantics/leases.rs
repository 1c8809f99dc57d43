//! Renewal, take-over, and the outcome of an overtaken call.

use crate::prelude::*;

on_every_store![
    a_running_body_keeps_its_claim,
    renewing_stops_when_the_body_ends,
    a_body_that_hangs_loses_its_lease,
    an_overtaken_call_returns_the_winners_answer,
    an_overtaken_failure_changes_nothing,
    an_overtaken_business_error_is_not_kept,
    an_overtaken_call_waits_for_the_winner,
    an_overtaken_call_does_not_wait_for_ever,
    an_overtaken_call_whose_successor_vanished_is_stored_late,
    the_answer_of_an_overtaken_call_that_gave_up_saves_a_third_run,
    an_overtaken_refusal_is_not_stored_over_a_successor_that_may_succeed,
    a_fence_grows_with_every_attempt,
    a_lost_record_is_written_again,
];

async fn a_running_body_keeps_its_claim(fixture: Fixture) {
    let body = Body::start(fixture.pay(), receipt(1)).await;
    for renewals in 1..=9 {
        renewed(&fixture, THIRD, renewals).await;
        assert_running(&refused(&fixture).await);
    }
    assert_eq!(body.end().await, receipt(1));
}

async fn renewing_stops_when_the_body_ends(fixture: Fixture) {
    let body = Body::start(fixture.pay(), receipt(1)).await;
    renewed(&fixture, THIRD, 1).await;
    body.end().await.unwrap();
    let other = fixture.engine.operation("other").key(&1);
    let other = Body::start(other, receipt(1)).await;
    renewed(&fixture, THIRD, 2).await;
    other.end().await.unwrap();
    assert_eq!(fixture.events.count("renewed"), 2, "one for each body");
    assert_eq!(fixture.events.count("lease lost"), 0);
}

async fn a_body_that_hangs_loses_its_lease(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.max_run(Duration::from_secs(25)));
    let hanging = Body::start(fixture.pay(), receipt(1)).await;
    renewed(&fixture, THIRD, 1).await;
    renewed(&fixture, THIRD, 2).await;
    wakes(&fixture, Duration::from_secs(10)).await;
    fixture
        .events
        .wait_for("lease lost: the body ran for longer", 1)
        .await;
    fixture.pass_in_store(Duration::from_secs(30));
    let second = Body::start(fixture.pay(), receipt(2)).await;
    assert_eq!(second.end().await, receipt(2));
    assert_eq!(hanging.end().await, receipt(2));
}

/// Two bodies of one key: the first was paused for longer than its lease.
async fn overtaken(fixture: &Fixture, first: Answer) -> (Body, Body) {
    let first = Body::start(fixture.pay(), first).await;
    fixture.pass_in_store(Duration::from_secs(30));
    let second = Body::start(fixture.pay_far(), receipt(2)).await;
    (first, second)
}

async fn an_overtaken_call_returns_the_winners_answer(fixture: Fixture) {
    let (first, second) = overtaken(&fixture, receipt(1)).await;
    assert_eq!(second.end().await, receipt(2));
    assert_eq!(first.end().await, receipt(2));
    assert_eq!(fixture.events.count("adopted"), 1);
    assert_eq!(answered(fixture.pay()).await, receipt(2));
}

async fn an_overtaken_failure_changes_nothing(fixture: Fixture) {
    let (first, second) = overtaken(&fixture, Err(PayError::Down)).await;
    assert_eq!(first.end().await, Err(PayError::Down));
    assert_eq!(fixture.events.count("released"), 0);
    assert_running(&refused(&fixture).await);
    assert_eq!(second.end().await, receipt(2));
}

async fn an_overtaken_business_error_is_not_kept(fixture: Fixture) {
    let (first, second) = overtaken(&fixture, Err(PayError::Declined { run: 1 })).await;
    assert_eq!(second.end().await, receipt(2));
    assert_eq!(first.end().await, receipt(2));
}

async fn an_overtaken_call_waits_for_the_winner(fixture: Fixture) {
    let (first, second) = overtaken(&fixture, receipt(1)).await;
    first.let_end();
    // Its completion is refused as overtaken, and it sleeps until it completes again.
    fixture.clock.sleeper_within(Duration::from_secs(1)).await;
    assert_eq!(second.end().await, receipt(2));
    fixture.clock.advance(Duration::from_millis(20));
    assert_eq!(first.join().await, receipt(2));
}

async fn an_overtaken_call_does_not_wait_for_ever(fixture: Fixture) {
    let (first, second) = overtaken(&fixture, receipt(1)).await;
    first.let_end();
    let mut waited = Duration::ZERO;
    while waited < Duration::from_secs(5) {
        fixture.clock.sleeper_within(Duration::from_secs(1)).await;
        let step = fixture.clock.next_wake().expect("it sleeps");
        waited += step;
        fixture.clock.advance(step);
    }
    assert_eq!(waited, Duration::from_secs(5), "to the moment");
    assert_running(&refusal(first.join().await));
    assert_eq!(second.end().await, receipt(2));
}

async fn an_overtaken_call_whose_successor_vanished_is_stored_late(fixture: Fixture) {
    let (first, second) = overtaken(&fixture, receipt(1)).await;
    second.drop_caller().await;
    fixture.pass_in_store(Duration::from_secs(30));
    assert_eq!(first.end().await, receipt(1));
    assert_eq!(fixture.events.count("completed value late"), 1);
    assert_eq!(answered(fixture.pay()).await, receipt(1), "no third run");
}

async fn the_answer_of_an_overtaken_call_that_gave_up_saves_a_third_run(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.on_running(OnRunning::Reject));
    let (first, second) = overtaken(&fixture, receipt(1)).await;
    assert_running(&refusal(first.end().await));
    second.drop_caller().await;
    fixture.pass_in_store(Duration::from_secs(30));
    let pause = Duration::from_secs(1);
    loop {
        tokio::select! {
            biased;
            () = fixture.events.wait_for("completed value late", 1) => break,
            () = fixture.clock.sleeper_within(pause) => fixture.clock.advance(pause),
        }
    }
    assert_eq!(answered(fixture.pay()).await, receipt(1), "no third run");
}

async fn an_overtaken_refusal_is_not_stored_over_a_successor_that_may_succeed(fixture: Fixture) {
    let (first, second) = overtaken(&fixture, Err(PayError::Declined { run: 1 })).await;
    // The second process is paused as well: its body lives, and its lease has lapsed.
    fixture.pass_in_store(Duration::from_secs(30));
    first.let_end();
    fixture.clock.sleeper_within(Duration::from_secs(1)).await;
    assert_eq!(second.end().await, receipt(2), "the money moved");
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(first.join().await, receipt(2));
}

async fn a_fence_grows_with_every_attempt(fixture: Fixture) {
    let mut fences = Vec::new();
    for attempt in 1..=5 {
        let claim = claimed(fixture.pay()).await;
        assert_eq!(claim.attempt(), attempt);
        fences.push(claim.fence().get());
        drop(claim);
        fixture.pass_in_store(Duration::from_secs(30));
    }
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}

async fn a_lost_record_is_written_again(fixture: Fixture) {
    let body = Body::start(fixture.pay(), receipt(1)).await;
    // Longer than any record is kept: the store has forgotten the claim.
    fixture.pass_in_store(Duration::from_hours(25));
    wakes(&fixture, Duration::from_secs(10)).await;
    fixture.events.wait_for("renewed", 1).await;
    assert_running(&refused(&fixture).await);
    assert_eq!(body.end().await, receipt(1));
}
