//! Steps whose outcome is open: they ended as unknown, or began and did not end. Their hooks, and operators, settle them.

use std::future::pending;

use idem_harness::HANG_LIMIT;
use idem_runtime::step;
use idem_runtime::testing::Sent;

use crate::prelude::*;
use crate::rows::Row;
use crate::steps::{counted, polled_until};

on_every_store! {
    an_unfinished_step_that_runs_once_is_unknown,
    an_unknown_step_ends_each_later_attempt_as_unknown, an_open_step_is_what_its_hook_finds,
    a_hook_that_cannot_say_is_asked_again_by_the_next_attempt,
    a_system_error_after_a_hook_leaves_the_question_open,
    a_task_that_hears_of_an_unknown_step_ends_its_body,
    a_claim_that_is_held_by_hand_gets_an_error_at_an_unknown_step,
    a_panic_beside_an_unknown_step_is_a_panic, a_panic_of_a_body_that_is_dropped_at_an_unknown_step_leaves_it_unknown,
    a_step_that_did_not_happen_runs_after_its_reset,
    a_step_that_happened_is_settled_with_its_value,
    a_step_that_is_kept_after_the_operators_look_prevents_the_reset,
    a_step_that_begins_again_renews_the_lease_on_the_engines_thread,
}

/// A call whose step of this name begins and has no end; its process then dies.
async fn interrupted(fixture: &Fixture, name: &'static str) {
    let begun = Semaphore::new(0);
    let mut call = Box::pin(fixture.pay().run(async |_| {
        let part = async |_| {
            begun.add_permits(1);
            pending::<Answer>().await
        };
        step(name, part).once().await
    }));
    polled_until(call.as_mut(), || begun.available_permits() > 0).await;
    drop(call);
    fixture.pass_in_store(LEASE_OVER);
}

/// A call whose step `charge` ends as unknown, ignored by its body.
async fn unknown_step(fixture: &Fixture) {
    let call = fixture.pay().run(async |_| {
        let charged = step("charge", async |_| Err(PayError::TimedOut) as Answer).await;
        assert_eq!(charged, Err(PayError::TimedOut));
        Err(PayError::Down) as Answer
    });
    assert_eq!(call.await, Err(PayError::Down));
}

async fn an_unfinished_step_that_runs_once_is_unknown(fixture: Fixture) {
    interrupted(&fixture, "mail").await;
    assert_eq!(fixture.count(StoreOperation::Append), 1);
    let label = Runs::default();
    let call = fixture.pay_far().run(async |_| {
        counted("label", &label).await?;
        step("mail", async |_| never()).once().await
    });
    assert_unknown(&refusal(call.await));
    assert_eq!(label.count(), 1);
    // An operator knows that no mail went out.
    entry(&fixture).await.reset_with_steps().await.unwrap();
    let mail = Runs::default();
    let call = fixture.pay_far().run(|_| counted("mail", &mail).once());
    assert_eq!(call.await, receipt(1));
}

async fn an_unknown_step_ends_each_later_attempt_as_unknown(fixture: Fixture) {
    unknown_step(&fixture).await;
    let label = Runs::default();
    let again = async || {
        let call = fixture.pay_far().run(async |_| {
            step("charge", async |_| never()).await?;
            counted("label", &label).await
        });
        assert_unknown(&refusal(call.await));
        assert_eq!(stands(&fixture).await.0, EntryState::Unknown);
    };
    again().await;
    again().await;
    // A reset keeps the steps.
    entry(&fixture).await.reset().await.unwrap();
    again().await;
    assert_eq!(label.count(), 0);
}

async fn an_open_step_is_what_its_hook_finds(fixture: Fixture) {
    for ended in [true, false] {
        for landed in [true, false] {
            let _row = Row::new(&fixture, (("ended", ended), ("landed", landed)));
            if ended {
                unknown_step(&fixture).await;
            } else {
                interrupted(&fixture, "charge").await;
            }
            let [asked, runs] = &[Runs::default(), Runs::default()];
            for ends in [Err(PayError::Down), receipt(8)] {
                let call = fixture.pay_far().run(async |_| {
                    let charge = counted("charge", runs).reconcile(async |_| {
                        let run = 40 + asked.start();
                        if landed {
                            return Reconciled::Landed(Receipt { run });
                        }
                        Reconciled::NotLanded
                    });
                    assert_eq!(charge.await, receipt(if landed { 41 } else { 1 }));
                    ends.clone()
                });
                assert_eq!(call.await, ends);
            }
            assert_eq!((asked.count(), runs.count()), (1, u32::from(!landed)));
        }
    }
}

async fn a_hook_that_cannot_say_is_asked_again_by_the_next_attempt(fixture: Fixture) {
    interrupted(&fixture, "label").await;
    let asked = Runs::default();
    for last in [false, false, true] {
        let hook = async |_| match asked.start() {
            1 => Err(()),
            run if last => Ok(Reconciled::Landed(Receipt { run })),
            _ => Ok(Reconciled::Unknown),
        };
        let label = step("label", async |_| never()).reconcile(hook);
        let answer = fixture.pay_far().run(|_| label).await;
        if last {
            assert_eq!(answer, receipt(3));
        } else {
            assert_unknown(&refusal(answer));
            // The key is free, so that the next attempt asks.
            assert_eq!(stands(&fixture).await.0, EntryState::Released);
        }
    }
    assert_eq!(answered(fixture.pay_far()).await, receipt(3));
}

/// Only the hook knows whether the earlier attempt's effect landed meanwhile.
async fn a_system_error_after_a_hook_leaves_the_question_open(fixture: Fixture) {
    interrupted(&fixture, "label").await;
    let label = step("label", async |_| Err(PayError::Down) as Answer);
    let label = label.reconcile(async |_| Says::NotLanded);
    assert_eq!(fixture.pay_far().run(|_| label).await, Err(PayError::Down));
    let label = step("label", async |_| never()).reconcile(async |_| LANDED);
    assert_eq!(fixture.pay_far().run(|_| label).await, receipt(7));
}

async fn a_task_that_hears_of_an_unknown_step_ends_its_body(fixture: Fixture) {
    interrupted(&fixture, "mail").await;
    let call = fixture.pay_far().run(async |cx| {
        let mail = async move { cx.step("mail", async |_| never()).once().await };
        let told = tokio::spawn(mail).await.expect("it does not panic");
        assert_unknown(&refusal(told));
        receipt(1)
    });
    assert_unknown(&refusal(call.await));
    assert_eq!(stands(&fixture).await.0, EntryState::Unknown);
}

async fn a_claim_that_is_held_by_hand_gets_an_error_at_an_unknown_step(fixture: Fixture) {
    interrupted(&fixture, "mail").await;
    let claim = claimed(fixture.pay_far()).await;
    let mail = claim.context().step("mail", async |_| never()).once();
    assert_unknown(&refusal(mail.await));
    claim.release().await;
}

async fn a_panic_beside_an_unknown_step_is_a_panic(fixture: Fixture) {
    interrupted(&fixture, "mail").await;
    let call = tokio::spawn(fixture.pay().run(|cx| async move {
        let mut mail = Box::pin(cx.step("mail", async |_| never()).once());
        assert!(poll_once(mail.as_mut()).await.is_none());
        std::panic::panic_any("beside it") as Answer
    }));
    assert!(call.await.unwrap_err().is_panic());
    let mail = step("mail", async |_| never()).once();
    assert_unknown(&refusal(fixture.pay_far().run(|_| mail).await));
}

/// Panics when it is dropped.
struct Booby;

impl Drop for Booby {
    fn drop(&mut self) {
        std::panic::panic_any("out of paper")
    }
}

async fn a_panic_of_a_body_that_is_dropped_at_an_unknown_step_leaves_it_unknown(fixture: Fixture) {
    interrupted(&fixture, "mail").await;
    let call = fixture.pay_far().on_cancel(OnCancel::Release);
    let call = call.run(async |_| {
        let _booby = Booby;
        step("mail", async |_| never()).once().await
    });
    let panic = caught(call).await.unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"out of paper"));
    assert_eq!(stands(&fixture).await.0, EntryState::Unknown);
}

/// As in a handler that calls asynchronous code from synchronous code.
#[test]
fn an_unknown_step_under_a_blocking_wait_does_not_hang() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let engine = Engine::new(MemoryStore::new());
    let pay = move || engine.operation("pay").key(&7);
    let ended = runtime.block_on(async {
        let half_way = |_| async { std::panic::panic_any("half-way") as Answer };
        let call = pay().run(move |_| step("mail", half_way).once());
        assert!(tokio::spawn(call).await.unwrap_err().is_panic());
        let call = tokio::spawn(pay().run(|_| async {
            let wait = tokio::runtime::Handle::current();
            let mail = step("mail", async |_| never()).once();
            tokio::task::block_in_place(|| wait.block_on(mail))
        }));
        tokio::time::timeout(HANG_LIMIT, call).await
    });
    runtime.shutdown_background();
    let answer = ended.expect("it hangs, and holds its thread and its key");
    assert_unknown(&refusal(answer.unwrap()));
}

/// Finds a reset that drops finished steps, or keeps the record unchanged.
async fn a_step_that_did_not_happen_runs_after_its_reset(fixture: Fixture) {
    let [mail, charge] = &[Runs::default(), Runs::default()];
    let order = async |second: Answer| {
        let body = async |_| {
            counted("mail", mail).await?;
            // Another of this name is finished, and stays so.
            counted("charge", charge).await?;
            step(("charge", 2), async |_| second).once().await
        };
        fixture.pay_far().run(body).await
    };
    let timed_out = Err(PayError::TimedOut);
    assert_eq!(order(timed_out.clone()).await, timed_out);
    let not_landed = |name| (name, Reconciled::NotLanded);
    // A missing step, and a finished one.
    for steps in [
        &[not_landed("ship")][..],
        &[not_landed("charge"), not_landed("mail")],
    ] {
        let refused = entry(&fixture).await.reset_steps(steps).await.unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::InvalidStep, "{steps:?}");
    }
    let charged = [not_landed("charge")];
    entry(&fixture).await.reset_steps(&charged).await.unwrap();
    assert_eq!(order(receipt(7)).await, receipt(7));
    assert_eq!((mail.count(), charge.count()), (1, 1));
}

/// Finds a value that the step cannot read, or another step gets.
async fn a_step_that_happened_is_settled_with_its_value(fixture: Fixture) {
    fn landed<'a>(name: &'a str, json: &'a str) -> (&'a str, Reconciled<&'a str>) {
        (name, Reconciled::Landed(json))
    }
    let (mail, ships) = (Runs::default(), Runs::default());
    let order = async |charged: Answer| {
        let body = async |_| {
            counted("mail", &mail).await?;
            // Interrupted, and ended: the two ways to an open step.
            for number in [1, 2] {
                let ship = step(("ship", number), async |_| {
                    let _ = ships.start();
                    charged.clone()
                });
                ship.once().await?;
            }
            step("charge", async |_| charged).await
        };
        fixture.pay_far().run(body).await
    };
    let open = async || {
        let answer = order(Err(PayError::TimedOut)).await;
        assert_eq!(answer, Err(PayError::TimedOut));
    };
    let refused = async |steps: &[(&str, Reconciled<&str>)], kind| {
        let refused = entry(&fixture).await.reset_steps(steps).await.unwrap_err();
        assert_eq!(*refused.kind(), kind, "{refused}");
    };
    let json = serde_json::to_string(&Receipt { run: 9 }).unwrap();
    open().await;
    refused(&[landed("mail", &json)], ErrorKind::InvalidStep).await;
    refused(&[landed("ship", "7 7")], ErrorKind::NotStored).await;
    // Nothing was changed: its hook, or an operator, is asked still.
    assert!(matches!(order(receipt(1)).await, Err(PayError::Idem(_))));
    let shipped = [landed("ship", &json)];
    entry(&fixture).await.reset_steps(&shipped).await.unwrap();
    open().await;
    assert_eq!(ships.count(), 2, "the second ship is open now");
    // Two finished and open steps of one name: the open one is settled.
    entry(&fixture).await.reset_steps(&shipped).await.unwrap();
    open().await;
    // A value by hand may be corrected; that of a body may not.
    let wrong = serde_json::to_string(&Receipt { run: 8 }).unwrap();
    for value in [&wrong, &json] {
        let charged = [landed("charge", value)];
        entry(&fixture).await.reset_steps(&charged).await.unwrap();
    }
    let twice = [landed("charge", &json), ("charge", Reconciled::NotLanded)];
    refused(&twice, ErrorKind::InvalidStep).await;
    assert_eq!(order(Err(PayError::TimedOut)).await, receipt(9));
    assert_eq!((mail.count(), ships.count()), (1, 2));
}

/// Finds a reset whose act makes its journal the longer one. A paused process then runs its last step again.
async fn a_step_that_is_kept_after_the_operators_look_prevents_the_reset(fixture: Fixture) {
    let [charge, label] = &[Runs::default(), Runs::default()];
    let (gate, paused) = (Semaphore::new(0), Semaphore::new(0));
    let steps = async || {
        counted("charge", charge).await?;
        paused.add_permits(1);
        gate.acquire().await.unwrap().forget();
        counted("label", label).await
    };
    let mut call = Box::pin(fixture.pay().run(async |_| {
        steps().await?;
        paused.add_permits(1);
        pending::<Answer>().await
    }));
    polled_until(call.as_mut(), || paused.available_permits() == 1).await;
    fixture.pass_in_store(LEASE_OVER);
    let before = entry(&fixture).await;
    assert_eq!(before.state(), EntryState::Abandoned);
    gate.add_permits(1);
    polled_until(call.as_mut(), || paused.available_permits() == 2).await;
    fixture.pass_in_store(LEASE_OVER);
    // Of which the operator knows nothing.
    assert_eq!(
        *before.reset().await.unwrap_err().kind(),
        ErrorKind::Changed
    );
    let open = [("label", Reconciled::NotLanded)];
    let finished = entry(&fixture).await.reset_steps(&open).await.unwrap_err();
    assert_eq!(*finished.kind(), ErrorKind::InvalidStep);
    let seen = entry(&fixture).await.signed("Zoë", "stuck for an hour");
    seen.reset().await.unwrap();
    gate.add_permits(1);
    assert_eq!(
        fixture.pay_far().run(async |_| steps().await).await,
        receipt(1)
    );
    assert_eq!((charge.count(), label.count()), (1, 1));
    let history = entry(&fixture).await.history();
    assert_eq!(history.len(), 3, "{history:?}");
    drop(call);
}

/// A runtime blocked by a body would block all renewals' connection.
async fn a_step_that_begins_again_renews_the_lease_on_the_engines_thread(fixture: Fixture) {
    interrupted(&fixture, "charge").await;
    let (before, runs) = (fixture.store.log().len(), Runs::default());
    let call = fixture.pay_far().run(async |_| {
        let charge = counted("charge", &runs);
        charge.reconcile(async |_| Reconciled::NotLanded).await
    });
    assert_eq!(call.await, receipt(1));
    // Its beginning is in the record, so that this append is a renewal. The clock makes no other.
    let log = fixture.store.log();
    let renews =
        |sent: &&Sent| sent.operation == StoreOperation::Append && sent.thread == "idem-background";
    assert_eq!(log[before..].iter().filter(renews).count(), 1, "{log:?}");
}
