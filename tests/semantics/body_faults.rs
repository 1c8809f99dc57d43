//! What goes wrong around a body that ran, or is about to: none of it may run the body again.

use idem_runtime::{Observer, observe::Event};

use crate::prelude::*;

on_every_store![
    a_grant_that_comes_after_its_lease_runs_nothing,
    an_observer_that_panics_costs_no_answer_and_no_lease,
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

/// Panics at every event.
#[derive(Clone, Debug)]
struct Fragile;

impl Observer for Fragile {
    fn observe(&self, _: &Event<'_>) {
        panic!("a bug in somebody's observer");
    }
}

async fn an_observer_that_panics_costs_no_answer_and_no_lease(fixture: Fixture) {
    let events = fixture.events.clone();
    let fixture = fixture.with(|engine| engine.observer((Fragile, events.clone())));
    let runs = Runs::default();
    let answer = fixture.pay().run(|_| async {
        for renewals in 1..=3 {
            wakes(&fixture, THIRD).await;
            fixture.events.wait_for("renewed", renewals).await;
        }
        receipt(runs.start())
    });
    assert_eq!(answer.await, receipt(1));
    assert_eq!(fixture.events.count("completed"), 1);
    assert_eq!(paid(fixture.pay(), &runs).await, receipt(1));
}
