//! What goes wrong around a body that ran, or is about to: none of it may run the body again.

use std::sync::{MutexGuard, PoisonError};

use idem_runtime::{
    Observer,
    observe::{Event, EventKind},
};

use crate::prelude::*;

on_every_store![
    a_grant_that_comes_after_its_lease_runs_nothing,
    an_observer_that_panics_costs_no_answer_and_no_lease,
    a_renewal_asked_for_runs_on_the_engines_thread,
];

/// Starts a call whose claim is granted and whose reply is on its way.
async fn claiming(fixture: &Fixture, runs: &Runs) -> JoinHandle<Answer> {
    fixture.fail(StoreOperation::Claim, [Fault::ReplyHeld]);
    let (call, runs) = (fixture.pay(), runs.clone());
    let call = tokio::spawn(async move { paid(call, &runs).await });
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
    assert_eq!(paid(fixture.pay_far(), &runs).await, receipt(1));
    paused(&fixture, Duration::from_secs(30));
    assert_eq!(first.await.unwrap(), receipt(1));
    assert_eq!(runs.count(), 1, "the late grant ran a second body");
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
        self.seen().push(name);
        panic!("a bug in somebody's observer");
    }
}

impl Fragile {
    fn seen(&self) -> MutexGuard<'_, Vec<&'static str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, name: &str) -> usize {
        self.seen().iter().filter(|seen| **seen == name).count()
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
    assert_eq!(paid(fixture.pay(), &runs).await, receipt(1));
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
