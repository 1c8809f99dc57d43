//! Renewal, take-over, and the outcome of an overtaken call.

use std::sync::Arc;
use std::time::Duration;

use idem_runtime::{CallBuilder, ErrorKind, OnRunning};
use idem_tests::fixture::{Classified, Fixture};
use idem_tests::on_every_store;
use idem_tests::payment::{PayError, Receipt};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

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

type Answer = Result<Receipt, PayError>;

/// A body that ends with a given answer when its test ends it.
struct Body {
    gate: Arc<Semaphore>,
    task: JoinHandle<Answer>,
}

impl Body {
    /// Starts the body; `number` is how many have been started in this fixture.
    async fn start(fixture: &Fixture, number: usize, answer: Answer) -> Self {
        Self::start_as(fixture.pay(), fixture, number, answer).await
    }

    /// The same in another process.
    async fn start_far(fixture: &Fixture, number: usize, answer: Answer) -> Self {
        Self::start_as(fixture.pay_far(), fixture, number, answer).await
    }

    async fn start_as(
        call: CallBuilder<Classified>,
        fixture: &Fixture,
        number: usize,
        answer: Answer,
    ) -> Self {
        let gate = Arc::new(Semaphore::new(0));
        let end = Arc::clone(&gate);
        let task = tokio::spawn(call.run(|_| async move {
            end.acquire().await.unwrap().forget();
            answer
        }));
        fixture.events.wait_for("claimed", number).await;
        Self { gate, task }
    }

    fn let_end(&self) {
        self.gate.add_permits(1);
    }

    async fn end(self) -> Answer {
        self.let_end();
        self.task.await.unwrap()
    }
}

/// Moves both clocks on by a third of the lease and waits for the renewal.
async fn third(fixture: &Fixture, renewals: usize) {
    let third = Duration::from_secs(10);
    fixture.clock.sleeper_within(third).await;
    fixture.pass_in_store(third);
    fixture.clock.advance(third);
    fixture.events.wait_for("renewed", renewals).await;
}

async fn a_running_body_keeps_its_claim(fixture: Fixture) {
    let body = Body::start(&fixture, 1, Ok(Receipt { run: 1 })).await;
    for renewals in 1..=9 {
        third(&fixture, renewals).await;
        let call = fixture.pay().on_running(OnRunning::Reject);
        let refused = call.run(|_| async { never() }).await.unwrap_err();
        assert!(
            matches!(refused.kind(), ErrorKind::Running { .. }),
            "{refused:?}"
        );
    }
    assert_eq!(body.end().await, Ok(Receipt { run: 1 }));
}

fn never() -> Answer {
    unreachable!("this body must not run")
}

async fn renewing_stops_when_the_body_ends(fixture: Fixture) {
    let body = Body::start(&fixture, 1, Ok(Receipt { run: 1 })).await;
    third(&fixture, 1).await;
    body.end().await.unwrap();
    let other = fixture.engine.operation("other").key(&1);
    let gate = Arc::new(Semaphore::new(0));
    let end = Arc::clone(&gate);
    let other = tokio::spawn(other.run(|_| async move {
        end.acquire().await.unwrap().forget();
        Ok::<_, PayError>(Receipt { run: 1 })
    }));
    fixture.events.wait_for("claimed", 2).await;
    third(&fixture, 2).await;
    gate.add_permits(1);
    other.await.unwrap().unwrap();
    assert_eq!(fixture.events.count("renewed"), 2, "one for each body");
    assert_eq!(fixture.events.count("lease lost"), 0);
}

async fn a_body_that_hangs_loses_its_lease(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.max_run(Duration::from_secs(25)));
    let hanging = Body::start(&fixture, 1, Ok(Receipt { run: 1 })).await;
    third(&fixture, 1).await;
    third(&fixture, 2).await;
    fixture.clock.sleeper_within(Duration::from_secs(10)).await;
    fixture.clock.advance(Duration::from_secs(10));
    fixture
        .events
        .wait_for("lease lost: the body ran for longer", 1)
        .await;
    fixture.pass_in_store(Duration::from_secs(30));
    let second = Body::start(&fixture, 2, Ok(Receipt { run: 2 })).await;
    assert_eq!(second.end().await, Ok(Receipt { run: 2 }));
    assert_eq!(hanging.end().await, Ok(Receipt { run: 2 }));
}

/// Two bodies of one key: the first was paused for longer than its lease.
async fn overtaken(fixture: &Fixture, first: Answer) -> (Body, Body) {
    let first = Body::start(fixture, 1, first).await;
    fixture.pass_in_store(Duration::from_secs(30));
    let second = Body::start_far(fixture, 2, Ok(Receipt { run: 2 })).await;
    (first, second)
}

async fn an_overtaken_call_returns_the_winners_answer(fixture: Fixture) {
    let (first, second) = overtaken(&fixture, Ok(Receipt { run: 1 })).await;
    assert_eq!(second.end().await, Ok(Receipt { run: 2 }));
    assert_eq!(first.end().await, Ok(Receipt { run: 2 }));
    assert_eq!(fixture.events.count("adopted"), 1);
    let replayed = fixture.pay().run(|_| async { never() }).await;
    assert_eq!(replayed, Ok(Receipt { run: 2 }));
}

async fn an_overtaken_failure_changes_nothing(fixture: Fixture) {
    let (first, second) = overtaken(&fixture, Err(PayError::Down)).await;
    assert_eq!(first.end().await, Err(PayError::Down));
    assert_eq!(fixture.events.count("released"), 0);
    let call = fixture.pay().on_running(OnRunning::Reject);
    let refused = call.run(|_| async { never() }).await.unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::Running { .. }),
        "{refused:?}"
    );
    assert_eq!(second.end().await, Ok(Receipt { run: 2 }));
}

async fn an_overtaken_business_error_is_not_kept(fixture: Fixture) {
    let (first, second) = overtaken(&fixture, Err(PayError::Declined { run: 1 })).await;
    assert_eq!(second.end().await, Ok(Receipt { run: 2 }));
    assert_eq!(first.end().await, Ok(Receipt { run: 2 }));
}

async fn an_overtaken_call_waits_for_the_winner(fixture: Fixture) {
    let (first, second) = overtaken(&fixture, Ok(Receipt { run: 1 })).await;
    first.let_end();
    // Its completion is refused as overtaken, and it sleeps until it completes again.
    fixture.clock.sleeper_within(Duration::from_secs(1)).await;
    assert_eq!(second.end().await, Ok(Receipt { run: 2 }));
    fixture.clock.advance(Duration::from_millis(20));
    assert_eq!(first.task.await.unwrap(), Ok(Receipt { run: 2 }));
}

async fn an_overtaken_call_does_not_wait_for_ever(fixture: Fixture) {
    let (first, second) = overtaken(&fixture, Ok(Receipt { run: 1 })).await;
    first.let_end();
    let mut waited = Duration::ZERO;
    while waited < Duration::from_secs(5) {
        fixture.clock.sleeper_within(Duration::from_secs(1)).await;
        let step = fixture.clock.next_wake().expect("it sleeps");
        waited += step;
        fixture.clock.advance(step);
    }
    assert_eq!(waited, Duration::from_secs(5), "to the moment");
    let error = first.task.await.unwrap().unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Running { .. }),
        "not its own answer: {error:?}"
    );
    assert_eq!(second.end().await, Ok(Receipt { run: 2 }));
}

async fn an_overtaken_call_whose_successor_vanished_is_stored_late(fixture: Fixture) {
    let (first, second) = overtaken(&fixture, Ok(Receipt { run: 1 })).await;
    second.task.abort();
    fixture.events.wait_for("dropped", 1).await;
    fixture.pass_in_store(Duration::from_secs(30));
    assert_eq!(first.end().await, Ok(Receipt { run: 1 }));
    assert_eq!(fixture.events.count("completed value late"), 1);
    let replayed = fixture.pay().run(|_| async { never() }).await;
    assert_eq!(replayed, Ok(Receipt { run: 1 }), "no third run");
}

async fn the_answer_of_an_overtaken_call_that_gave_up_saves_a_third_run(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.on_running(OnRunning::Reject));
    let (first, second) = overtaken(&fixture, Ok(Receipt { run: 1 })).await;
    let error = first.end().await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Running { .. }),
        "{error:?}"
    );
    second.task.abort();
    fixture.events.wait_for("dropped", 1).await;
    fixture.pass_in_store(Duration::from_secs(30));
    let pause = Duration::from_secs(1);
    loop {
        tokio::select! {
            biased;
            () = fixture.events.wait_for("completed value late", 1) => break,
            () = fixture.clock.sleeper_within(pause) => fixture.clock.advance(pause),
        }
    }
    let replayed = fixture.pay().run(|_| async { never() }).await;
    assert_eq!(replayed, Ok(Receipt { run: 1 }), "no third run");
}

async fn an_overtaken_refusal_is_not_stored_over_a_successor_that_may_succeed(fixture: Fixture) {
    let (first, second) = overtaken(&fixture, Err(PayError::Declined { run: 1 })).await;
    // The second process is paused as well: its body lives, and its lease has lapsed.
    fixture.pass_in_store(Duration::from_secs(30));
    first.let_end();
    fixture.clock.sleeper_within(Duration::from_secs(1)).await;
    assert_eq!(
        second.end().await,
        Ok(Receipt { run: 2 }),
        "the money moved"
    );
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(first.task.await.unwrap(), Ok(Receipt { run: 2 }));
}

async fn a_fence_grows_with_every_attempt(fixture: Fixture) {
    let mut fences = Vec::new();
    for attempt in 1..=5 {
        let claim = fixture.pay().begin().await.unwrap();
        let idem_runtime::claim::Acquired::Run(claim) = claim else {
            panic!("nothing is stored")
        };
        assert_eq!(claim.attempt(), attempt);
        fences.push(claim.fence().get());
        drop(claim);
        fixture.pass_in_store(Duration::from_secs(30));
    }
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}

async fn a_lost_record_is_written_again(fixture: Fixture) {
    let body = Body::start(&fixture, 1, Ok(Receipt { run: 1 })).await;
    // Longer than any record is kept: the store has forgotten the claim.
    fixture.pass_in_store(Duration::from_hours(25));
    fixture.clock.sleeper_within(Duration::from_secs(10)).await;
    fixture.clock.advance(Duration::from_secs(10));
    fixture.events.wait_for("renewed", 1).await;
    let call = fixture.pay().on_running(OnRunning::Reject);
    let refused = call.run(|_| async { never() }).await.unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::Running { .. }),
        "{refused:?}"
    );
    assert_eq!(body.end().await, Ok(Receipt { run: 1 }));
}
