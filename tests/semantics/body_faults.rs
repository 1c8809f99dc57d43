//! What goes wrong around a body that ran, or is about to: none of it may run the body again.

use idem_runtime::{
    Observer,
    claim::Completion,
    observe::{Event, EventKind},
};
use serde::{Deserialize, Serialize, Serializer};

use crate::prelude::*;

on_every_store![
    a_serialize_that_panics_leaves_a_tombstone,
    a_classification_that_panics_leaves_the_outcome_unknown,
    a_completion_that_is_refused_is_sent_again,
    an_answer_is_given_up_when_it_would_have_expired,
    an_overtaken_call_whose_winner_cannot_be_read_does_not_return_its_own_answer,
    a_grant_that_comes_after_its_lease_runs_nothing,
    a_late_unwanted_grant_is_renewed_before_the_body_runs,
    a_store_that_is_slower_than_the_lease_runs_nothing,
    an_observer_that_panics_costs_no_answer_and_no_lease,
    a_renewal_asked_for_runs_on_the_engines_thread,
];

/// Serializes by panicking.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Booby;

impl Serialize for Booby {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("a bug in somebody's `Serialize`")
    }
}

async fn a_serialize_that_panics_leaves_a_tombstone(fixture: Fixture) {
    let first = fixture.pay().run(|_| async { Ok::<_, PayError>(Booby) });
    assert_eq!(first.await, Ok(Booby), "its own caller gets it");
    let lost = "unsaved: its `Serialize` or `Deserialize` panicked";
    assert_eq!(fixture.events.count(lost), 1);
    let again = fixture
        .pay()
        .run(|_| async { unreachable!("it happened") as Result<Booby, PayError> })
        .await;
    assert_eq!(again.unwrap_err().kind(), &ErrorKind::NotStored);

    let claim = claimed(fixture.engine.operation("by hand").key(&1)).await;
    assert!(matches!(
        claim.complete(Booby).await.unwrap(),
        Completion::Own(Booby)
    ));
    let again = fixture.engine.operation("by hand").key(&1).begin().await;
    assert_eq!(again.unwrap_err().kind(), &ErrorKind::NotStored);
}

async fn a_classification_that_panics_leaves_the_outcome_unknown(fixture: Fixture) {
    let call = || {
        let call = fixture.pay();
        call.on_error(idem_runtime::on_error::By(|_: &PayError| -> Class {
            panic!("a bug in somebody's `on_error`")
        }))
    };
    let first = call().run(|_| async { Err::<Receipt, _>(PayError::Down) });
    assert_eq!(first.await, Err(PayError::Down));
    let again = call().run(|_| async { unreachable!("nobody knows") as Result<Receipt, _> });
    let error = again.await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Unknown { .. }),
        "{error:?}"
    );
    let PayError::Idem(error) = error else {
        unreachable!("the same error")
    };
    let cause = "ended with an error whose classification panicked";
    assert!(error.to_string().contains(cause), "{error}");
}

async fn paid(fixture: &Fixture, runs: &Runs) -> Result<Receipt, PayError> {
    let body = |_| async { receipt(runs.start()) };
    fixture.pay().run(body).await
}

/// Moves time on, a pause after the other, until something has happened.
async fn with_pauses(fixture: &Fixture, event: &str) {
    let pause = Duration::from_secs(1);
    loop {
        tokio::select! {
            biased;
            () = fixture.events.wait_for(event, 1) => return,
            () = fixture.clock.sleeper_within(pause) => fixture.clock.advance(pause),
        }
    }
}

async fn a_completion_that_is_refused_is_sent_again(fixture: Fixture) {
    let runs = Runs::default();
    fixture.fail(StoreOperation::Complete, [Fault::Refused, Fault::Refused]);
    assert_eq!(paid(&fixture, &runs).await, receipt(1));
    assert_eq!(fixture.events.count("unsaved: an injected fault"), 1);
    with_pauses(&fixture, "completed value").await;
    assert_eq!(paid(&fixture, &runs).await, receipt(1));
    assert_eq!(fixture.count(StoreOperation::Complete), 3);
}

async fn an_answer_is_given_up_when_it_would_have_expired(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.ttl(Duration::from_mins(3)));
    let begun = fixture.clock.now();
    let runs = Runs::default();
    fixture.fail(StoreOperation::Complete, [Fault::Refused; 10_000]);
    assert_eq!(paid(&fixture, &runs).await, receipt(1));
    let given_up = "unsaved: an injected fault; storing is given up";
    with_pauses(&fixture, given_up).await;
    let tried = fixture.clock.now().saturating_sub(begun);
    assert!(tried >= Duration::from_mins(3), "given up after {tried:?}");
}

async fn an_overtaken_call_whose_winner_cannot_be_read_does_not_return_its_own_answer(
    fixture: Fixture,
) {
    fixture.fail(StoreOperation::Complete, [Fault::TooLarge]);
    let answer = fixture.pay().run(|_| async { receipt(1) });
    assert_eq!(answer.await.unwrap_err().kind(), &ErrorKind::TooLarge);
}

/// Starts a call whose claim is granted and whose reply is on its way.
async fn claiming(fixture: &Fixture, runs: &Runs) -> JoinHandle<Result<Receipt, PayError>> {
    fixture.fail(StoreOperation::Claim, [Fault::ReplyHeld]);
    let (call, runs) = (fixture.pay(), runs.clone());
    let call = tokio::spawn(async move {
        let body = |_| async { receipt(runs.start()) };
        call.run(body).await
    });
    while fixture.store.read(&fixture.key()).await.unwrap() == ReadReply::Absent {
        tokio::task::yield_now().await;
    }
    call
}

/// The process is paused, and goes on when the reply has arrived.
fn paused(fixture: &Fixture, time: Duration) {
    fixture.store.deliver();
    fixture.clock.advance(time);
}

async fn a_grant_that_comes_after_its_lease_runs_nothing(fixture: Fixture) {
    let runs = Runs::default();
    let first = claiming(&fixture, &runs).await;
    fixture.pass_in_store(Duration::from_secs(30));
    // The lease is over before its process notices, so another call runs.
    let body = |_| async { receipt(runs.start()) };
    assert_eq!(fixture.pay_far().run(body).await, receipt(1));
    paused(&fixture, Duration::from_secs(30));
    assert_eq!(first.await.unwrap(), receipt(1));
    assert_eq!(runs.count(), 1, "the late grant ran a second body");
}

async fn a_late_unwanted_grant_is_renewed_before_the_body_runs(fixture: Fixture) {
    let runs = Runs::default();
    let first = claiming(&fixture, &runs).await;
    fixture.pass_in_store(Duration::from_secs(31));
    paused(&fixture, Duration::from_secs(31));
    assert_eq!(first.await.unwrap(), receipt(1));
    let sent = fixture.store.sent(StoreOperation::Claim);
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0], sent[1], "the same owner");
    assert_eq!(fixture.events.all(), ["claimed 1", "completed value"]);
}

async fn a_store_that_is_slower_than_the_lease_runs_nothing(fixture: Fixture) {
    let runs = Runs::default();
    let first = claiming(&fixture, &runs).await;
    fixture.fail(StoreOperation::Claim, [Fault::ReplyHeld; 9]);
    for sent in 2.. {
        paused(&fixture, Duration::from_secs(30));
        while !first.is_finished() && claims(&fixture) < sent {
            tokio::task::yield_now().await;
        }
        if first.is_finished() {
            break;
        }
    }
    let error = first.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
    assert_eq!(runs.count(), 0);
    fixture.events.wait_for("released", 1).await;
}

/// Records the events that it saw, and panics every time.
#[derive(Clone, Debug, Default)]
struct Fragile(Arc<Mutex<Vec<&'static str>>>);

impl Observer for Fragile {
    fn observe(&self, event: &Event<'_>) {
        let name = match event.kind {
            EventKind::Renewed => "renewed",
            EventKind::Completed { .. } => "completed",
            _ => "other",
        };
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .push(name);
        panic!("a bug in somebody's observer");
    }
}

impl Fragile {
    fn count(&self, name: &str) -> usize {
        let seen = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        seen.iter().filter(|seen| **seen == name).count()
    }
}

async fn an_observer_that_panics_costs_no_answer_and_no_lease(fixture: Fixture) {
    let observer = Fragile::default();
    let fixture = fixture.with(|engine| engine.observer(observer.clone()));
    let runs = Runs::default();
    let answer = fixture.pay().run(|_| async {
        for renewals in 1..=3 {
            let third = Duration::from_secs(10);
            wakes(&fixture, third).await;
            while observer.count("renewed") < renewals {
                tokio::task::yield_now().await;
            }
        }
        receipt(runs.start())
    });
    assert_eq!(answer.await, receipt(1));
    assert_eq!(observer.count("completed"), 1);
    assert_eq!(paid(&fixture, &runs).await, receipt(1));
}

async fn a_renewal_asked_for_runs_on_the_engines_thread(fixture: Fixture) {
    let claim = claimed(fixture.pay()).await;
    claim.renew().await.unwrap();
    let log = fixture.store.log();
    let mut renewals = log
        .iter()
        .filter(|sent| sent.operation == StoreOperation::Renew);
    assert_eq!(
        renewals.next().expect("it was renewed").thread,
        "idem-background"
    );
    fixture.fail(StoreOperation::Renew, [Fault::Refused]);
    let error = claim.renew().await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
    claim.release().await;
    let lost = fixture.pay().on_running(OnRunning::Reject);
    assert_eq!(lost.run(|_| async { Ok::<_, PayError>(1) }).await, Ok(1));
}
