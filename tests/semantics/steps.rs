//! Steps: which parts of a body a later attempt runs again, and which steps are refused.

use std::cell::Cell;
use std::future::{Ready, pending, ready};
use std::pin::Pin;

use futures_util::future::join_all;
use idem_runtime::{Step, StepCall, step};

use crate::prelude::*;
use crate::rows::Row;

on_every_store! {
    a_finished_step_is_not_run_again, parallel_steps_are_all_kept_in_few_round_trips,
    a_step_is_kept_unless_it_ended_with_a_system_error, steps_do_not_nest,
    a_step_outside_of_a_body_is_refused, the_key_of_a_step_is_the_same_in_every_attempt,
    another_input_is_a_mismatch, another_type_is_refused_and_nothing_runs_again,
    a_result_that_cannot_be_kept_is_returned_and_not_run_again,
    steps_that_are_not_asked_for_again_are_reported,
    an_unprotected_call_runs_its_steps_and_refuses_those_that_run_once,
}

/// A step of this name, which counts its runs.
pub(crate) fn counted<'r>(
    name: &'static str,
    runs: &'r Runs,
) -> StepCall<impl FnOnce(Step) -> Ready<Answer> + 'r, Ready<Answer>> {
    step(name, move |_| ready(receipt(runs.start())))
}

/// A call with the step `charge`, which then ends like this.
pub(crate) async fn charged(call: Pay, charge: &Runs, ends: Answer) -> Answer {
    let body = async |_| {
        counted("charge", charge).await?;
        ends
    };
    call.run(body).await
}

/// A call that ends with a system error after its step `charge`.
pub(crate) async fn charged_in_vain(call: Pay, charge: &Runs) {
    let answer = charged(call, charge, Err(PayError::Down)).await;
    assert_eq!(answer, Err(PayError::Down));
}

/// The next attempt, in another process, does not repeat the step `charge`.
pub(crate) async fn assert_charged_once(fixture: &Fixture, charge: &Runs) {
    let answer = charged(fixture.pay_far(), charge, receipt(9)).await;
    assert_eq!((answer, charge.count()), (receipt(9), 1));
}

/// A body with two steps, which then ends like this.
pub(crate) async fn two_steps([charge, label]: [&Runs; 2], ends: Answer) -> Answer {
    counted("charge", charge).await?;
    counted("label", label).await?;
    ends
}

pub(crate) async fn polled_until<F: Future>(mut call: Pin<&mut F>, so: impl Fn() -> bool) {
    while !so() {
        assert!(poll_once(call.as_mut()).await.is_none());
        tokio::task::yield_now().await;
    }
}

/// How many appends were sent so far.
pub(crate) fn appends(fixture: &Fixture) -> usize {
    fixture.count(StoreOperation::Append)
}

/// A process that dies behind its step.
async fn crashed_behind_charge(fixture: &Fixture, charge: &Runs) {
    let behind = Cell::new(false);
    let mut call = Box::pin(fixture.pay().run(async |_| {
        counted("charge", charge).await?;
        behind.set(true);
        pending::<Answer>().await
    }));
    polled_until(call.as_mut(), || behind.get()).await;
    drop(call);
    fixture.pass_in_store(LEASE_OVER);
}

async fn a_finished_step_is_not_run_again(fixture: Fixture) {
    for (crashes, attempt) in [(false, 1), (true, 3)] {
        let _row = Row::new(&fixture, ("crashes", crashes));
        let [charge, label] = &[Runs::default(), Runs::default()];
        for _ in 0..2 {
            if crashes {
                crashed_behind_charge(&fixture, charge).await;
            } else {
                charged_in_vain(fixture.pay(), charge).await;
            }
        }
        let call = fixture.pay_far().run(async |cx| {
            assert_eq!(cx.attempt(), attempt);
            two_steps([charge, label], receipt(9)).await
        });
        assert_eq!(call.await, receipt(9));
        assert_eq!((charge.count(), label.count()), (1, 1));
        assert_eq!(answered(fixture.pay()).await, receipt(9));
    }
    assert_eq!(fixture.events.count("step replayed: charge"), 4);
    // The hook of a call that is asked about knows nothing of its steps.
    let _row = Row::new(&fixture, "a reconciliation of the call");
    let charge = Runs::default();
    crashed_behind_charge(&fixture, &charge).await;
    let hook = async |_| Says::NotLanded;
    let body = async |_| counted("charge", &charge).await;
    let answer = fixture.pay_far().run_reconciled(hook, body).await;
    assert_eq!((answer, charge.count()), (receipt(1), 1));
}

async fn parallel_steps_are_all_kept_in_few_round_trips(fixture: Fixture) {
    // Few enough that `join_all` polls them all whenever one is woken.
    let all = [const { Cell::new(0_u32) }; 28];
    let body = async |ends: Answer| {
        let steps = all.iter().enumerate().map(|(number, runs)| {
            step(("ship", number), async move |s| {
                assert_eq!(s.name(), "ship");
                tokio::task::yield_now().await;
                runs.set(runs.get() + 1);
                receipt(runs.get())
            })
        });
        for shipped in join_all(steps).await {
            assert_eq!(shipped, receipt(1));
        }
        ends
    };
    // The first append has no reply before every other step has ended.
    fixture.fail(StoreOperation::Append, [Fault::ReplyHeld]);
    let deliver = async {
        sent(&fixture, StoreOperation::Append, 1).await;
        others().await;
        fixture.store.deliver();
    };
    let first = fixture.pay().run(|_| body(Err(PayError::Down)));
    let (answer, ()) = tokio::join!(first, deliver);
    assert_eq!(answer, Err(PayError::Down));
    assert_eq!(appends(&fixture), 2);
    let second = fixture.pay_far().run(|_| body(receipt(3)));
    assert_eq!(second.await, receipt(3));
    assert!(all.iter().all(|runs| runs.get() == 1));
}

async fn a_step_is_kept_unless_it_ended_with_a_system_error(fixture: Fixture) {
    let declined: Answer = Err(PayError::Declined { run: 1 });
    for (first, once, second) in [
        (receipt(1), false, receipt(1)),
        (declined.clone(), false, declined),
        (Err(PayError::Down), false, receipt(2)),
        (Err(PayError::Down), true, receipt(2)),
    ] {
        let _row = Row::new(&fixture, (&first, once));
        let (runs, before) = (Runs::default(), appends(&fixture));
        for expected in [&first, &second, &second] {
            let call = fixture.pay().run(async |_| {
                let charge = step("charge", async |_| match runs.start() {
                    1 => first.clone(),
                    run => receipt(run),
                });
                let charged = if once {
                    charge.once().await
                } else {
                    charge.await
                };
                assert_eq!(charged, *expected);
                Err(PayError::Down) as Answer
            });
            assert_eq!(call.await, Err(PayError::Down));
        }
        assert_eq!(runs.count(), if first == second { 1 } else { 2 });
        assert!(once || appends(&fixture) - before == 1);
    }
}

/// The refusal of a step, which the body returns.
pub(crate) fn assert_invalid(answer: Answer, part: &str) {
    let error = refusal(answer);
    assert_eq!(error.kind(), &ErrorKind::InvalidStep);
    assert!(error.to_string().contains(part), "{error}");
}

async fn steps_do_not_nest(fixture: Fixture) {
    let runs = Runs::default();
    let outer = async |_| {
        let inner = step("inner", async |_| never()).await;
        assert_invalid(inner, "step `inner`: it is inside of another step");
        // A call within it has steps of its own.
        let call = fixture.engine.operation("inner").key(&1);
        call.run(|_| counted("charge", &runs)).await
    };
    let answer = fixture.pay().run(|_| step("charge", outer)).await;
    assert_eq!(answer, receipt(1));
    // The body shows nothing of the refusal.
    assert_eq!(fixture.events.count("refused InvalidStep"), 1);
}

async fn a_step_outside_of_a_body_is_refused(fixture: Fixture) {
    let outside = step("charge", async |_| never()).await;
    assert_invalid(outside, "outside of an idempotent body");
    // A task that outlives its body.
    let gate = Arc::new(Semaphore::new(0));
    let mut left_over = None;
    let call = fixture.pay().run(|cx| {
        let gate = Arc::clone(&gate);
        left_over = Some(tokio::spawn(async move {
            gate.acquire().await.unwrap().forget();
            cx.step("mail", async |_| never()).await
        }));
        ready(receipt(1))
    });
    assert_eq!(call.await, receipt(1));
    gate.add_permits(1);
    assert_invalid(left_over.unwrap().await.unwrap(), "the body has ended");
}

async fn the_key_of_a_step_is_the_same_in_every_attempt(fixture: Fixture) {
    let keys = Mutex::new(Vec::new());
    for _ in 0..2 {
        let call = fixture.pay().run(async |cx| {
            for name in ["charge", "label"] {
                let part = step(name, async |s| {
                    keys.lock().unwrap().push(s.key());
                    Err(PayError::Down) as Answer
                });
                assert_eq!(part.await, Err(PayError::Down));
            }
            assert!(!keys.lock().unwrap().contains(&cx.derive_key("charge")));
            Err(PayError::Down) as Answer
        });
        assert_eq!(call.await, Err(PayError::Down));
    }
    let keys = keys.into_inner().unwrap();
    assert_eq!(keys[..2], keys[2..]);
    assert_ne!(keys[0], keys[1]);
}

async fn another_input_is_a_mismatch(fixture: Fixture) {
    let charge = Runs::default();
    let pay = async |cents: u32, ends: Answer| {
        let body = async |_| {
            counted("charge", &charge).input(&cents).await?;
            ends
        };
        fixture.pay().run(body).await
    };
    assert_eq!(pay(100, Err(PayError::Down)).await, Err(PayError::Down));
    assert_refusal(pay(200, receipt(1)).await, &ErrorKind::Mismatch);
    assert_eq!(pay(100, receipt(1)).await, receipt(1));
    assert_eq!(charge.count(), 1);
}

async fn another_type_is_refused_and_nothing_runs_again(fixture: Fixture) {
    let number = fixture.pay().run(async |_| {
        let number = step("charge", async |_| Ok::<u32, PayError>(7)).await?;
        assert_eq!(number, 7);
        Err(PayError::Down) as Answer
    });
    assert_eq!(number.await, Err(PayError::Down));
    let another = fixture.pay().run(|_| step("charge", async |_| never()));
    assert_eq!(*refusal(another.await).kind(), ErrorKind::WrongType);
    let accepts = fixture.pay().on_other_type(OnOtherType::Accept);
    let accepted = accepts.run(async |_| {
        let number = step("charge", async |_| Ok::<u64, PayError>(1)).await?;
        receipt(u32::try_from(number).unwrap())
    });
    assert_eq!(accepted.await, receipt(7));
}

/// Results of these lengths, of which the last one is not stored.
async fn a_result_that_cannot_be_kept_is_returned_and_not_run_again(fixture: Fixture) {
    for lengths in [&[300 << 10][..], &[100 << 10; 3]] {
        let _row = Row::new(&fixture, lengths);
        let printed = Runs::default();
        let print = async |ends: Answer| {
            let body = async |_| {
                for (number, length) in lengths.iter().enumerate() {
                    let label = step(("label", number), async |_| {
                        let _ = printed.start();
                        Ok::<_, PayError>("x".repeat(*length))
                    });
                    assert_eq!(label.await?.len(), *length);
                }
                ends
            };
            fixture.pay().run(body).await
        };
        assert_eq!(print(Err(PayError::Down)).await, Err(PayError::Down));
        assert_refusal(print(receipt(1)).await, &ErrorKind::NotStored);
        assert_eq!(printed.count() as usize, lengths.len());
    }
}

async fn steps_that_are_not_asked_for_again_are_reported(fixture: Fixture) {
    let runs = &[Runs::default(), Runs::default()];
    let first = fixture
        .pay()
        .run(|_| two_steps(runs.each_ref(), Err(PayError::Down)));
    assert_eq!(first.await, Err(PayError::Down));
    let second = fixture.pay().run(|_| counted("label", &runs[1]));
    assert_eq!(second.await, receipt(1));
    assert_eq!(fixture.events.count("step unused: charge"), 1);
    assert_eq!(fixture.events.count("step unused"), 1);
}

async fn an_unprotected_call_runs_its_steps_and_refuses_those_that_run_once(fixture: Fixture) {
    fixture.fail(StoreOperation::Claim, [Fault::Unreachable; 1_000]);
    let charge = Runs::default();
    let call = fixture.pay().on_outage(OnOutage::Run).run(async |_| {
        counted("charge", &charge).await?;
        counted("mail", &charge).once().await
    });
    let answer = until(&fixture, call).await;
    assert_invalid(answer, "step `mail`: the call runs without protection");
    assert_eq!(charge.count(), 1);
}

#[tokio::test]
async fn a_step_may_fail_as_often_as_it_is_retried() {
    let engine = Engine::new(MemoryStore::new());
    for attempt in 1..=3_000 {
        let part = async |_| Err(PayError::Down) as Answer;
        let call = engine.operation("pay").key(&7);
        let answer = call.run(|_| step("mail", part).once()).await;
        assert_eq!(answer, Err(PayError::Down), "attempt {attempt}");
    }
}

/// A store of a kind that keeps no steps.
#[derive(Debug)]
struct Stepless(MemoryStore);

impl idem_runtime::testing::Forward for Stepless {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn keeps_journals(&self) -> bool {
        false
    }
}

#[tokio::test]
async fn a_store_that_keeps_no_steps_refuses_them_before_their_effect() {
    let charge = Runs::default();
    let engine = Engine::new(Stepless(MemoryStore::new()));
    let call = engine.operation("pay").key(&7);
    let error = refusal(charged(call, &charge, receipt(1)).await);
    assert_eq!(*error.kind(), ErrorKind::Unsupported);
    assert_eq!(charge.count(), 0);
}
