//! Reconciling in spite of the store, the lease or another process: the body starts only with a claim of its own, and
//! no answer is lost.

use crate::prelude::*;
use crate::rows::Row;

on_every_store! {
    the_lease_is_renewed_during_a_long_hook, an_overtaken_hook_gets_the_winners_answer,
    an_overtaken_hook_starts_no_body_beside_another_one,
    an_overtaken_hook_is_dropped_if_the_operation_cancels,
    a_verdict_from_before_another_body_starts_nothing,
}

async fn the_lease_is_renewed_during_a_long_hook(fixture: Fixture) {
    // All of it is over before the hook's deadline.
    let lease = Duration::from_secs(3);
    let fixture = fixture.with(|engine| engine.lease(lease));
    timed_out(fixture.pay()).await;
    let asking = Asking::start(&fixture, fixture.pay()).await;
    for renewals in 1..=6 {
        renewed(&fixture, lease / 3, renewals).await;
        assert_running(&refused_far(&fixture).await);
    }
    assert_eq!(asking.end().await, receipt(7));
}

/// A hook paused beyond its lease, until another hook has returned this.
async fn overtaken(fixture: &Fixture, says: Says, winner: Says) -> (Asking, Asking) {
    timed_out(fixture.pay()).await;
    let first = Asking::saying(fixture, fixture.pay(), says).await;
    fixture.pass_in_store(LEASE_OVER);
    let second = Asking::saying(fixture, fixture.pay_far(), winner).await;
    (first, second)
}

const OTHER: Says = Reconciled::Landed(Receipt { run: 9 });

async fn an_overtaken_hook_gets_the_winners_answer(fixture: Fixture) {
    // It found something else out, or nothing.
    for says in [OTHER, Says::Unknown] {
        let _row = Row::new(&fixture, &says);
        let (first, second) = overtaken(&fixture, says, LANDED).await;
        assert_eq!(second.end().await, receipt(7));
        let first = until(&fixture, first.end()).await;
        assert_eq!(first, receipt(7), "never its own");
        assert_eq!(answered(fixture.pay()).await, receipt(7));
    }
}

async fn an_overtaken_hook_starts_no_body_beside_another_one(fixture: Fixture) {
    let (first, second) = overtaken(&fixture, Says::NotLanded, LANDED).await;
    let error = refusal(until(&fixture, first.end()).await);
    assert_running(&error);
    assert_eq!(second.end().await, receipt(7), "its claim was not taken");
    assert_eq!(answered(fixture.pay()).await, receipt(7));
}

async fn an_overtaken_hook_is_dropped_if_the_operation_cancels(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let call = fixture.pay().on_lease_lost(OnLeaseLost::Cancel);
    let first = Asking::start(&fixture, call).await;
    fixture.pass_in_store(LEASE_OVER);
    let second = Asking::start(&fixture, fixture.pay_far()).await;
    assert_eq!(second.end().await, receipt(7));
    // A third of the lease later its renewal is refused.
    fixture.clock.advance(Duration::from_secs(9));
    let answer = until(&fixture, async { first.task.await.unwrap() }).await;
    assert_eq!(answer, receipt(7), "without having said anything");
}

/// The hook's lease lapsed while it ran, its renewals having no reply; another process took the key over, had
/// the effect and panicked. Found by the model in `tests/proof/protocol`.
async fn a_verdict_from_before_another_body_starts_nothing(fixture: Fixture) {
    abandon(&fixture).await;
    fixture.fail(StoreOperation::Renew, [Fault::Lost; 100]);
    let slow = Asking::saying(&fixture, fixture.pay(), Says::NotLanded).await;
    fixture.pass_in_store(LEASE_OVER);
    let body = |_| async { std::panic::panic_any("after the effect") as Answer };
    let far = fixture
        .pay_far()
        .run_reconciled(|_| async { Says::NotLanded }, body);
    tokio::spawn(far).await.unwrap_err();
    // A second effect, if it ran.
    assert_running(&refusal(slow.end().await));
    assert_eq!(fixture.events.count("dropped"), 1, "the abandoned one");
}
