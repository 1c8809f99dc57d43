//! Steps: which parts of a body a later attempt runs again.

use std::cell::Cell;

use idem_runtime::{OnPanic, OnUnconfirmed, StepCall, step};

use crate::prelude::*;

on_every_store![
    a_finished_step_is_not_run_again_after_a_system_error,
    a_finished_step_is_not_run_again_after_a_crash,
    a_finished_step_is_not_run_again_after_a_panic,
    a_finished_step_is_not_run_again_after_a_drop,
    a_step_takes_one_round_trip_and_its_replay_none,
    a_call_without_steps_sends_nothing_more,
    parallel_steps_are_all_kept_in_few_round_trips,
    a_business_error_of_a_step_is_kept,
    a_system_error_of_a_step_is_not_kept,
    an_unknown_step_ends_the_next_attempt_as_unknown,
    an_unknown_step_that_its_hook_finds_is_kept,
    an_unfinished_step_runs_again,
    an_unfinished_step_that_runs_once_is_unknown,
    an_unknown_outcome_stays_unknown_after_its_reset_keeps_the_steps,
    a_step_that_did_not_happen_runs_after_its_reset,
    a_step_that_happened_is_settled_with_its_value,
    a_step_that_runs_once_may_run_again_after_a_system_error,
    a_step_in_another_task_ends_the_call_as_well,
    an_unfinished_step_with_a_hook_is_asked_about,
    a_hook_that_finds_nothing_lets_the_step_run,
    a_hook_that_cannot_say_ends_the_call_as_unknown,
    a_name_is_used_once_in_an_attempt,
    steps_do_not_nest,
    a_step_within_a_call_within_a_step_is_one_of_that_call,
    a_step_outside_of_a_body_is_refused,
    a_loop_distinguishes_its_steps,
    the_key_of_a_step_is_the_same_in_every_attempt,
    another_input_is_a_mismatch,
    another_type_is_refused_and_nothing_runs_again,
    a_result_that_cannot_be_kept_is_returned_and_not_run_again,
    more_steps_than_a_record_holds_are_refused_before_they_start,
    steps_that_are_not_asked_for_again_are_reported,
    a_key_with_steps_stays_with_its_request,
    an_append_that_fails_is_sent_again,
    an_append_without_a_reply_hands_over_the_value,
    a_lenient_call_goes_on_without_a_confirmed_step,
    a_step_that_was_not_confirmed_is_kept_by_the_release,
    a_zombie_keeps_no_step,
    a_step_that_is_kept_after_the_operators_look_prevents_the_reset,
    no_step_starts_after_the_lease_is_lost,
    a_renewal_of_a_claim_with_steps_keeps_them,
    a_lost_record_is_written_again_with_its_steps,
    a_record_that_is_lost_before_its_release_is_written_again_with_its_steps,
    a_late_release_of_an_expired_record_writes_nothing,
    an_answer_is_stored_without_steps,
    an_unprotected_call_runs_its_steps_and_refuses_those_that_run_once,
    a_repeat_of_a_corrected_request_does_not_get_the_steps_of_another,
];

/// A step of this name, which counts its runs.
pub(crate) fn counted<'r>(
    name: &'static str,
    runs: &'r Runs,
) -> StepCall<
    impl FnOnce(idem_runtime::Step) -> std::future::Ready<Answer> + 'r,
    std::future::Ready<Answer>,
> {
    step(name, move |_| std::future::ready(receipt(runs.start())))
}

/// A body with two steps, that ends with a system error unless it may finish.
async fn two_steps(runs: [&Runs; 2], ends: Answer) -> Answer {
    counted("charge", runs[0]).await?;
    counted("label", runs[1]).await?;
    ends
}

fn runs<const N: usize>() -> [Runs; N] {
    std::array::from_fn(|_| Runs::default())
}

fn counts<const N: usize>(runs: &[Runs; N]) -> [u32; N] {
    runs.each_ref().map(Runs::count)
}

/// Polls all of them in this task, until each has ended.
async fn join_all<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = all.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|cx| {
        for (future, output) in &mut all {
            if output.is_none()
                && let std::task::Poll::Ready(ready) = future.as_mut().poll(cx)
            {
                *output = Some(ready);
            }
        }
        if all.iter().all(|(_, output)| output.is_some()) {
            let outputs = all.iter_mut().map(|(_, output)| output.take().unwrap());
            return std::task::Poll::Ready(outputs.collect());
        }
        std::task::Poll::Pending
    })
    .await
}

/// Does the work while the next append gets no reply, until its deadline.
pub(crate) async fn without_reply<T>(fixture: &Fixture, work: impl Future<Output = T>) -> T {
    let next = appends(fixture) + 1;
    let late = async {
        sent(fixture, StoreOperation::Append, next).await;
        others().await;
        fixture.clock.advance(THIRD);
    };
    let (output, ()) = tokio::join!(work, late);
    output
}

pub(crate) fn appends(fixture: &Fixture) -> usize {
    fixture.count(StoreOperation::Append)
}

async fn a_finished_step_is_not_run_again_after_a_system_error(fixture: Fixture) {
    let [charge, label] = &runs();
    for (ends, labels) in [
        (Err(PayError::Down), 1),
        (Err(PayError::Down), 1),
        (receipt(9), 1),
    ] {
        let answer = fixture
            .pay()
            .run(|_| two_steps([charge, label], ends.clone()));
        assert_eq!(answer.await, ends);
        assert_eq!((charge.count(), label.count()), (1, labels));
    }
    assert_eq!(answered(fixture.pay_far()).await, receipt(9));
}

/// A call whose body keeps the step `charge`, then waits, and is dropped.
async fn dropped_behind_charge(fixture: &Fixture, call: Pay, charge: &Runs) {
    let mut call = Box::pin(call.run(|_| async {
        counted("charge", charge).await?;
        std::future::pending::<Answer>().await
    }));
    while fixture.events.count("step kept") == 0 {
        assert!(poll_once(call.as_mut()).await.is_none());
        tokio::task::yield_now().await;
    }
}

async fn a_finished_step_is_not_run_again_after_a_crash(fixture: Fixture) {
    let all @ [charge, label] = &runs();
    dropped_behind_charge(&fixture, fixture.pay(), charge).await;
    fixture.pass_in_store(LEASE_OVER);
    let second = fixture.pay_far().run(|cx| async move {
        assert_eq!(cx.attempt(), 2);
        two_steps([charge, label], receipt(2)).await
    });
    assert_eq!(second.await, receipt(2));
    assert_eq!(counts(all), [1, 1]);
    assert_eq!(fixture.events.count("step replayed: charge"), 1);
}

async fn a_finished_step_is_not_run_again_after_a_panic(fixture: Fixture) {
    let [charge, label] = &runs();
    for on_panic in [OnPanic::Release, OnPanic::Release] {
        let call = fixture.pay().on_panic(on_panic).run(|_| async {
            counted("charge", charge).await?;
            std::panic::panic_any("out of paper") as Answer
        });
        assert!(caught(call).await.is_err());
    }
    let answer = fixture
        .pay_far()
        .run(|_| two_steps([charge, label], receipt(1)));
    assert_eq!(answer.await, receipt(1));
    assert_eq!((charge.count(), label.count()), (1, 1));
}

async fn a_finished_step_is_not_run_again_after_a_drop(fixture: Fixture) {
    let [charge, label] = &runs();
    let call = fixture.pay().on_cancel(OnCancel::Release);
    dropped_behind_charge(&fixture, call, charge).await;
    comes_to_rest(&fixture).await;
    let answer = fixture
        .pay_far()
        .run(|_| two_steps([charge, label], receipt(1)));
    assert_eq!(answer.await, receipt(1));
    assert_eq!((charge.count(), label.count()), (1, 1));
}

async fn a_step_takes_one_round_trip_and_its_replay_none(fixture: Fixture) {
    let [charge, label] = &runs();
    let answer = fixture
        .pay()
        .run(|_| two_steps([charge, label], Err(PayError::Down)));
    assert_eq!(answer.await, Err(PayError::Down));
    assert_eq!((claims(&fixture), appends(&fixture)), (1, 2));
    let answer = fixture
        .pay()
        .run(|_| two_steps([charge, label], receipt(1)));
    assert_eq!(answer.await, receipt(1));
    assert_eq!((claims(&fixture), appends(&fixture)), (2, 2));
    assert_eq!(
        fixture.store.log().len(),
        6,
        "two claims, two steps, a release and an answer"
    );
}

async fn a_call_without_steps_sends_nothing_more(fixture: Fixture) {
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    assert_eq!(fixture.store.log().len(), 2);
}

async fn parallel_steps_are_all_kept_in_few_round_trips(fixture: Fixture) {
    let all = (0..32).map(|_| Cell::new(0_u32)).collect::<Vec<_>>();
    let body = |ends: Answer| {
        let all = &all;
        move |_| async move {
            let steps = all.iter().enumerate().map(|(number, runs)| {
                step(("ship", number), async move |_| {
                    tokio::task::yield_now().await;
                    runs.set(runs.get() + 1);
                    receipt(runs.get())
                })
            });
            for shipped in join_all(steps).await {
                assert_eq!(shipped, receipt(1));
            }
            ends
        }
    };
    // The first append has no reply before every other step has ended.
    fixture.fail(StoreOperation::Append, [Fault::ReplyHeld]);
    let deliver = async {
        sent(&fixture, StoreOperation::Append, 1).await;
        others().await;
        fixture.store.deliver();
    };
    let (answer, ()) = tokio::join!(fixture.pay().run(body(Err(PayError::Down))), deliver);
    assert_eq!(answer, Err(PayError::Down));
    assert_eq!(appends(&fixture), 2);
    assert_eq!(fixture.pay_far().run(body(receipt(3))).await, receipt(3));
    assert!(all.iter().all(|runs| runs.get() == 1));
}

async fn a_business_error_of_a_step_is_kept(fixture: Fixture) {
    let asked = Runs::default();
    let body = |ends: Answer| {
        let asked = &asked;
        move |_| async move {
            let declined = step("charge", async |_| {
                Err(PayError::Declined { run: asked.start() }) as Answer
            });
            assert_eq!(declined.await, Err(PayError::Declined { run: 1 }));
            ends
        }
    };
    assert_eq!(
        fixture.pay().run(body(Err(PayError::Down))).await,
        Err(PayError::Down)
    );
    assert_eq!(fixture.pay().run(body(receipt(7))).await, receipt(7));
    assert_eq!(asked.count(), 1);
}

async fn a_system_error_of_a_step_is_not_kept(fixture: Fixture) {
    let asked = Runs::default();
    for expected in [Err(PayError::Down), receipt(2)] {
        let answer = fixture.pay().run(|_| async {
            step("charge", async |_| match asked.start() {
                1 => Err(PayError::Down),
                run => receipt(run),
            })
            .await
        });
        assert_eq!(answer.await, expected);
    }
    assert_eq!(appends(&fixture), 1);
}

/// A call whose step ends as unknown, and whose body ignores that.
async fn unknown_step(fixture: &Fixture) {
    let answer = fixture.pay().run(|_| async {
        let charged = step("charge", async |_| Err(PayError::TimedOut) as Answer).await;
        assert_eq!(charged, Err(PayError::TimedOut));
        Err(PayError::Down) as Answer
    });
    assert_eq!(answer.await, Err(PayError::Down));
}

async fn an_unknown_step_ends_the_next_attempt_as_unknown(fixture: Fixture) {
    unknown_step(&fixture).await;
    let label = Runs::default();
    for _ in 0..2 {
        let answer = fixture.pay_far().run(|_| async {
            step("charge", async |_| never()).await?;
            counted("label", &label).await
        });
        let error = refusal(answer.await);
        assert_unknown(&error);
    }
    assert_eq!(label.count(), 0);
    assert_eq!(stands(&fixture).await.0, EntryState::Unknown);
}

async fn an_unknown_step_that_its_hook_finds_is_kept(fixture: Fixture) {
    unknown_step(&fixture).await;
    let asked = Runs::default();
    for ends in [Err(PayError::Down), receipt(2)] {
        let answer = fixture.pay_far().run(|_| async {
            let charged = step("charge", async |_| never()).reconcile(async |_| {
                Reconciled::Landed(Receipt {
                    run: 40 + asked.start(),
                })
            });
            assert_eq!(charged.await, receipt(41));
            ends.clone()
        });
        assert_eq!(answer.await, ends);
    }
    assert_eq!(asked.count(), 1);
}

/// A call whose step begins and does not end; its process then dies.
async fn interrupted<F, R, P, H>(
    fixture: &Fixture,
    part: impl FnOnce(Arc<Semaphore>) -> StepCall<F, R, P, H>,
) where
    F: FnOnce(idem_runtime::Step) -> R,
    R: Future<Output = Answer>,
    StepCall<F, R, P, H>: Future<Output = Answer>,
{
    let begun = Arc::new(Semaphore::new(0));
    let part = part(Arc::clone(&begun));
    let mut call = Box::pin(fixture.pay().run(|_| part));
    while begun.available_permits() == 0 {
        assert!(poll_once(call.as_mut()).await.is_none());
        tokio::task::yield_now().await;
    }
    drop(call);
    fixture.pass_in_store(LEASE_OVER);
}

async fn hangs(begun: Arc<Semaphore>) -> Answer {
    begun.add_permits(1);
    std::future::pending().await
}

async fn an_unfinished_step_runs_again(fixture: Fixture) {
    interrupted(&fixture, |begun| {
        step("charge", async |_| hangs(begun).await)
    })
    .await;
    let charge = Runs::default();
    let answer = fixture.pay_far().run(|_| counted("charge", &charge));
    assert_eq!(answer.await, receipt(1));
}

async fn an_unfinished_step_that_runs_once_is_unknown(fixture: Fixture) {
    interrupted(&fixture, |begun| {
        step("mail", async |_| hangs(begun).await).once()
    })
    .await;
    assert_eq!(appends(&fixture), 1);
    let label = Runs::default();
    let answer = fixture.pay_far().run(|_| async {
        counted("label", &label).await?;
        step("mail", async |_| never()).once().await
    });
    let error = refusal(answer.await);
    assert_unknown(&error);
    assert!(error.to_string().contains("a step"), "{error}");
    assert_eq!(label.count(), 1);
    // An operator knows that no mail went out.
    let entry = fixture
        .engine
        .operation("pay")
        .key(&7)
        .entry()
        .await
        .unwrap()
        .unwrap();
    entry.reset_with_steps().await.unwrap();
    let mail = Runs::default();
    let answer = fixture.pay_far().run(|_| counted("mail", &mail).once());
    assert_eq!(answer.await, receipt(1));
}

async fn an_unknown_outcome_stays_unknown_after_its_reset_keeps_the_steps(fixture: Fixture) {
    unknown_step(&fixture).await;
    let again = || async {
        let answer = fixture.pay_far().run(|_| step("charge", async |_| never()));
        assert_unknown(&refusal(answer.await));
    };
    again().await;
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    entry.reset().await.unwrap();
    again().await;
}

/// Finds a reset that takes a finished step away with the unknown one, or that leaves the record as it was.
async fn a_step_that_did_not_happen_runs_after_its_reset(fixture: Fixture) {
    let runs = [Runs::default(), Runs::default()];
    let first = fixture.pay_far().run(|_| async {
        counted("mail", &runs[0]).await?;
        // Another of this name is finished, and stays so.
        counted("charge", &runs[1]).await?;
        let second = step(("charge", 2), async |_| Err(PayError::TimedOut) as Answer);
        second.once().await
    });
    assert_eq!(first.await, Err(PayError::TimedOut));
    let entry = async || fixture.pay().entry().await.unwrap().unwrap();
    let not_landed = |name| (name, Reconciled::NotLanded);
    let missing = entry().await.reset_steps(&[not_landed("ship")]).await;
    assert_eq!(*missing.unwrap_err().kind(), ErrorKind::InvalidStep);
    let both = [not_landed("charge"), not_landed("mail")];
    let finished = entry().await.reset_steps(&both).await;
    assert_eq!(*finished.unwrap_err().kind(), ErrorKind::InvalidStep);
    entry().await.reset_steps(&both[..1]).await.unwrap();
    let again = fixture.pay_far().run(|_| async {
        counted("mail", &runs[0]).await?;
        counted("charge", &runs[1]).await?;
        step(("charge", 2), async |_| receipt(7)).once().await
    });
    assert_eq!(again.await, receipt(7));
    assert_eq!(counts(&runs), [1, 1]);
}

/// Finds a value that the step cannot read, and one that is given to another step.
async fn a_step_that_happened_is_settled_with_its_value(fixture: Fixture) {
    let (mail, ships) = (Runs::default(), Runs::default());
    let order = async |charged: Answer| {
        let body = fixture.pay_far().run(|_| async {
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
        });
        body.await
    };
    assert_eq!(
        order(Err(PayError::TimedOut)).await,
        Err(PayError::TimedOut)
    );
    let entry = async || fixture.pay().entry().await.unwrap().unwrap();
    let json = serde_json::to_string(&receipt(9).unwrap()).unwrap();
    let landed = |name, json| (name, Reconciled::Landed(json));
    for (step, kind) in [
        (landed("mail", &*json), ErrorKind::InvalidStep),
        (landed("ship", "7 7"), ErrorKind::NotStored),
    ] {
        let refused = entry().await.reset_steps(&[step]).await;
        assert_eq!(*refused.unwrap_err().kind(), kind);
    }
    let long = format!("\"{}\"", "x".repeat(300 << 10));
    let refused = entry().await.reset_steps(&[landed("ship", &*long)]).await;
    assert_eq!(*refused.unwrap_err().kind(), ErrorKind::NotStored);
    // Nothing was changed: its hook, or an operator, is asked still.
    assert!(matches!(order(receipt(1)).await, Err(PayError::Idem(_))));
    let settled = [landed("ship", &*json)];
    entry().await.reset_steps(&settled).await.unwrap();
    assert_eq!(
        order(Err(PayError::TimedOut)).await,
        Err(PayError::TimedOut)
    );
    assert_eq!(ships.count(), 2, "the second ship is open now");
    // Two finished and open steps of one name: the open one is settled.
    entry().await.reset_steps(&settled).await.unwrap();
    assert_eq!(
        order(Err(PayError::TimedOut)).await,
        Err(PayError::TimedOut)
    );
    // A value by hand may be corrected; that of a body may not.
    let wrong = serde_json::to_string(&receipt(8).unwrap()).unwrap();
    for value in [&*wrong, &*json] {
        let charged = [landed("charge", value)];
        entry().await.reset_steps(&charged).await.unwrap();
    }
    let twice = [landed("charge", &*json), ("charge", Reconciled::NotLanded)];
    let refused = entry().await.reset_steps(&twice).await;
    assert_eq!(*refused.unwrap_err().kind(), ErrorKind::InvalidStep);
    assert_eq!(order(Err(PayError::TimedOut)).await, receipt(9));
    assert_eq!((mail.count(), ships.count()), (1, 2));
}

async fn a_step_that_runs_once_may_run_again_after_a_system_error(fixture: Fixture) {
    let mail = Runs::default();
    for expected in [Err(PayError::Down), receipt(2)] {
        let answer = fixture.pay().run(|_| {
            let send = async |_| match mail.start() {
                1 => Err(PayError::Down),
                run => receipt(run),
            };
            step("mail", send).once()
        });
        assert_eq!(answer.await, expected);
    }
}

async fn a_step_in_another_task_ends_the_call_as_well(fixture: Fixture) {
    unknown_step(&fixture).await;
    let answer = fixture.pay_far().run(|cx| async move {
        let task = tokio::spawn(async move { cx.step("charge", async |_| never()).await });
        task.await.expect("it does not panic")
    });
    assert_unknown(&refusal(answer.await));
}

async fn an_unfinished_step_with_a_hook_is_asked_about(fixture: Fixture) {
    let hook = async |_| Reconciled::Landed(Receipt { run: 5 });
    interrupted(&fixture, |begun| {
        step("label", async |_| hangs(begun).await).reconcile(hook)
    })
    .await;
    let answer = fixture
        .pay_far()
        .run(|_| step("label", async |_| never()).reconcile(hook));
    assert_eq!(answer.await, receipt(5));
}

async fn a_hook_that_finds_nothing_lets_the_step_run(fixture: Fixture) {
    let hook = async |_| Reconciled::NotLanded;
    interrupted(&fixture, |begun| {
        step("label", async |_| hangs(begun).await).reconcile(hook)
    })
    .await;
    let label = Runs::default();
    for ends in [Err(PayError::Down), receipt(8)] {
        let answer = fixture.pay_far().run(|_| async {
            assert_eq!(counted("label", &label).reconcile(hook).await, receipt(1));
            ends.clone()
        });
        assert_eq!(answer.await, ends);
    }
}

async fn a_hook_that_cannot_say_ends_the_call_as_unknown(fixture: Fixture) {
    let hook = async |_| Err::<Reconciled<Receipt>, ()>(());
    interrupted(&fixture, |begun| {
        step("label", async |_| hangs(begun).await).reconcile(hook)
    })
    .await;
    for _ in 0..2 {
        let answer = fixture
            .pay_far()
            .run(|_| step("label", async |_| never()).reconcile(hook));
        assert_unknown(&refusal(answer.await));
    }
    // The key is free: a later attempt asks again.
    assert_eq!(stands(&fixture).await.0, EntryState::Released);
}

/// The refusal of a step, which the body returns.
fn assert_invalid(answer: Answer, part: &str) {
    let error = refusal(answer);
    assert_eq!(error.kind(), &ErrorKind::InvalidStep);
    assert!(error.to_string().contains(part), "{error}");
}

async fn a_name_is_used_once_in_an_attempt(fixture: Fixture) {
    let charge = Runs::default();
    for _ in 0..2 {
        let answer = fixture.pay().run(|_| async {
            counted("charge", &charge).await?;
            counted("charge", &charge).await
        });
        assert_invalid(
            answer.await,
            "step `charge`: this attempt has had a step of this name",
        );
    }
    assert_eq!(charge.count(), 1);
    assert_eq!(fixture.events.count("refused InvalidStep"), 2);
}

async fn steps_do_not_nest(fixture: Fixture) {
    let answer = fixture.pay().run(|_| {
        step("charge", async |_| {
            let inner = step("inner", async |_| never()).await;
            assert_invalid(inner, "step `inner`: it is inside of another step");
            receipt(1)
        })
    });
    assert_eq!(answer.await, receipt(1));
    // The body shows nothing of the refusal.
    assert_eq!(fixture.events.count("refused InvalidStep"), 1);
}

async fn a_step_within_a_call_within_a_step_is_one_of_that_call(fixture: Fixture) {
    let inner = Runs::default();
    for ends in [Err(PayError::Down), receipt(4)] {
        let answer = fixture.pay().run(|_| async {
            step("outer", async |_| {
                let call = fixture.engine.operation("inner").key(&1);
                call.run(|_| counted("outer", &inner)).await
            })
            .await?;
            ends.clone()
        });
        assert_eq!(answer.await, ends);
    }
    assert_eq!(inner.count(), 1);
}

async fn a_step_outside_of_a_body_is_refused(_: Fixture) {
    assert_invalid(
        step("charge", async |_| never()).await,
        "outside of an idempotent body",
    );
}

async fn a_loop_distinguishes_its_steps(fixture: Fixture) {
    let shipped = Mutex::new(Vec::new());
    for ends in [Err(PayError::Down), receipt(4)] {
        let answer = fixture.pay().run(|_| async {
            for item in 0..3 {
                let ship = step(("ship", item), async |s| {
                    assert_eq!(s.name(), "ship");
                    shipped.lock().unwrap().push(item);
                    receipt(item)
                });
                assert_eq!(ship.await, receipt(item));
            }
            ends.clone()
        });
        assert_eq!(answer.await, ends);
    }
    assert_eq!(*shipped.lock().unwrap(), [0, 1, 2]);
}

async fn the_key_of_a_step_is_the_same_in_every_attempt(fixture: Fixture) {
    let keys = Mutex::new(Vec::new());
    for expected in [Err(PayError::Down), receipt(1)] {
        let answer = fixture.pay().run(|cx| {
            let (keys, expected) = (&keys, &expected);
            async move {
                for name in ["charge", "label"] {
                    let key = step(name, async |s| {
                        keys.lock().unwrap().push(s.key());
                        Err(PayError::Down) as Answer
                    });
                    assert_eq!(key.await, Err(PayError::Down));
                }
                assert!(!keys.lock().unwrap().contains(&cx.derive_key("charge")));
                expected.clone()
            }
        });
        assert_eq!(answer.await, expected);
    }
    let keys = keys.into_inner().unwrap();
    assert_eq!(keys[..2], keys[2..]);
    assert_ne!(keys[0], keys[1]);
    assert_eq!(keys[0].len(), 43);
}

async fn another_input_is_a_mismatch(fixture: Fixture) {
    let charge = Runs::default();
    let pay = |cents: u32, ends: Answer| {
        let charge = &charge;
        fixture.pay().run(move |_| async move {
            counted("charge", charge).input(&cents).await?;
            ends
        })
    };
    assert_eq!(pay(100, Err(PayError::Down)).await, Err(PayError::Down));
    let error = refusal(pay(200, receipt(1)).await);
    assert_eq!(error.kind(), &ErrorKind::Mismatch);
    assert!(error.to_string().contains("step `charge`"), "{error}");
    assert_eq!(pay(100, receipt(1)).await, receipt(1));
    assert_eq!(charge.count(), 1);
}

async fn another_type_is_refused_and_nothing_runs_again(fixture: Fixture) {
    let number = fixture.pay().run(|_| async {
        let number = step("charge", async |_| Ok::<u32, PayError>(7)).await?;
        assert_eq!(number, 7);
        Err(PayError::Down) as Answer
    });
    assert_eq!(number.await, Err(PayError::Down));
    let answer = fixture.pay().run(|_| step("charge", async |_| never()));
    let error = refusal(answer.await);
    assert_eq!(error.kind(), &ErrorKind::WrongType);
    let accepted = fixture
        .pay()
        .on_other_type(OnOtherType::Accept)
        .run(|_| async {
            let number = step("charge", async |_| Ok::<u64, PayError>(1)).await?;
            receipt(u32::try_from(number).unwrap())
        });
    assert_eq!(accepted.await, receipt(7));
}

async fn a_result_that_cannot_be_kept_is_returned_and_not_run_again(fixture: Fixture) {
    let printed = Runs::default();
    let print = |ends: Answer| {
        let printed = &printed;
        fixture.pay().run(move |_| async move {
            let label = step("label", async |_| {
                let _ = printed.start();
                Ok::<_, PayError>("x".repeat(300 << 10))
            });
            assert_eq!(label.await?.len(), 300 << 10);
            ends
        })
    };
    assert_eq!(print(Err(PayError::Down)).await, Err(PayError::Down));
    let error = refusal(print(receipt(1)).await);
    assert_eq!(error.kind(), &ErrorKind::NotStored);
    assert_eq!(printed.count(), 1);
    // All of them together are too large as well.
    let all = |ends: Answer| {
        let printed = &printed;
        fixture
            .engine
            .operation("many")
            .key(&1)
            .run(move |_| async move {
                for number in 0..3 {
                    let label = step(("label", number), async |_| {
                        let _ = printed.start();
                        Ok::<_, PayError>("x".repeat(100 << 10))
                    });
                    label.await?;
                }
                ends
            })
    };
    assert_eq!(all(Err(PayError::Down)).await, Err(PayError::Down));
    assert_eq!(*refusal(all(receipt(1)).await).kind(), ErrorKind::NotStored);
    assert_eq!(printed.count(), 4);
}

async fn more_steps_than_a_record_holds_are_refused_before_they_start(fixture: Fixture) {
    let shipped = Runs::default();
    let answer = fixture.pay().run(|_| async {
        for number in 0..65 {
            step(("ship", number), async |_| receipt(shipped.start())).await?;
        }
        receipt(1)
    });
    assert_invalid(answer.await, "a call has at most 64 steps");
    assert_eq!(shipped.count(), 64);
}

async fn steps_that_are_not_asked_for_again_are_reported(fixture: Fixture) {
    let [charge, label] = &runs();
    let answer = fixture
        .pay()
        .run(|_| two_steps([charge, label], Err(PayError::Down)));
    assert_eq!(answer.await, Err(PayError::Down));
    let answer = fixture.pay().run(|_| counted("label", label));
    assert_eq!(answer.await, receipt(1));
    assert_eq!(fixture.events.count("step unused: charge"), 1);
    assert_eq!(fixture.events.count("step unused"), 1);
}

async fn a_key_with_steps_stays_with_its_request(fixture: Fixture) {
    let charge = Runs::default();
    let pay = |cents: u32, ends: Answer| {
        let charge = &charge;
        fixture.pay().fingerprint(&cents).run(move |_| async move {
            counted("charge", charge).await?;
            ends
        })
    };
    assert_eq!(pay(100, Err(PayError::Down)).await, Err(PayError::Down));
    assert_eq!(
        *refusal(pay(200, receipt(1)).await).kind(),
        ErrorKind::Mismatch
    );
    assert_eq!(pay(100, receipt(1)).await, receipt(1));
}

async fn a_repeat_of_a_corrected_request_does_not_get_the_steps_of_another(fixture: Fixture) {
    let pay = |cents: u32, answer: Answer| {
        let call = fixture.pay().fingerprint(&cents);
        call.run(move |_| async move { step("charge", async |_| answer).await })
    };
    // Nothing was kept, and the step may have told the other side of its key.
    assert_eq!(pay(100, Err(PayError::Down)).await, Err(PayError::Down));
    assert_eq!(
        *refusal(pay(200, receipt(1)).await).kind(),
        ErrorKind::Mismatch
    );
}

async fn an_append_that_fails_is_sent_again(fixture: Fixture) {
    for fault in Fault::TRANSIENT {
        let charge = Runs::default();
        let call = |ends: Answer| {
            let charge = &charge;
            let call = fixture
                .engine
                .operation("faults")
                .key(&format!("{fault:?}"));
            call.run(move |_| async move {
                counted("charge", charge).await?;
                ends
            })
        };
        fixture.fail(StoreOperation::Append, [fault]);
        let first = call(Err(PayError::Down));
        if let Fault::Hangs | Fault::ReplyHangs = fault {
            let error = refusal(without_reply(&fixture, first).await);
            assert_eq!(error.kind(), &ErrorKind::Unconfirmed);
        } else {
            assert_eq!(
                until(&fixture, first).await,
                Err(PayError::Down),
                "{fault:?}"
            );
        }
        assert_eq!(until(&fixture, call(receipt(1))).await, receipt(1));
        assert_eq!(charge.count(), 1, "{fault:?}");
    }
}

async fn an_append_without_a_reply_hands_over_the_value(fixture: Fixture) {
    fixture.fail(StoreOperation::Append, [Fault::Lost; 1_000]);
    let answer = fixture.pay().run(|_| async {
        let charge = step("charge", async |_| receipt(3)).await;
        let error = refusal(charge);
        assert_eq!(error.kind(), &ErrorKind::Unconfirmed);
        assert!(error.to_string().contains("step `charge`"), "{error}");
        assert_eq!(error.unconfirmed::<u64>(), None);
        Ok::<_, PayError>(error.unconfirmed::<Receipt>().unwrap())
    });
    assert_eq!(until(&fixture, answer).await, receipt(3));
}

async fn a_lenient_call_goes_on_without_a_confirmed_step(fixture: Fixture) {
    fixture.fail(StoreOperation::Append, [Fault::Lost; 1_000]);
    let call = fixture.pay().on_unconfirmed(OnUnconfirmed::Return);
    let answer = call.run(|_| step("charge", async |_| receipt(3)));
    assert_eq!(until(&fixture, answer).await, receipt(3));
}

async fn a_step_that_was_not_confirmed_is_kept_by_the_release(fixture: Fixture) {
    let charge = Runs::default();
    fixture.fail(StoreOperation::Append, [Fault::Hangs]);
    let answer = fixture.pay().run(|_| async {
        let charged = counted("charge", &charge).await;
        assert_eq!(*refusal(charged).kind(), ErrorKind::Unconfirmed);
        Err(PayError::Down) as Answer
    });
    assert_eq!(without_reply(&fixture, answer).await, Err(PayError::Down));
    let answer = fixture.pay_far().run(|_| counted("charge", &charge));
    assert_eq!(answer.await, receipt(1));
}

/// Finds a reset whose act makes its journal the longer one, so that the last step of a paused process runs again.
async fn a_step_that_is_kept_after_the_operators_look_prevents_the_reset(fixture: Fixture) {
    let [charge, label] = &runs();
    let (gate, paused) = (Semaphore::new(0), Semaphore::new(0));
    let mut call = Box::pin(fixture.pay().run(|_| async {
        counted("charge", charge).await?;
        paused.add_permits(1);
        gate.acquire().await.unwrap().forget();
        counted("label", label).await?;
        paused.add_permits(1);
        std::future::pending::<Answer>().await
    }));
    let mut until_paused = async || {
        while paused.available_permits() == 0 {
            assert!(poll_once(call.as_mut()).await.is_none());
            tokio::task::yield_now().await;
        }
        paused.acquire().await.unwrap().forget();
        fixture.pass_in_store(LEASE_OVER);
    };
    until_paused().await;
    let entry = fixture.pay_far().entry().await.unwrap().unwrap();
    assert_eq!(entry.state(), EntryState::Abandoned);
    gate.add_permits(1);
    until_paused().await;
    // Of which the operator knows nothing.
    let open = [("label", Reconciled::NotLanded)];
    assert_eq!(*entry.reset().await.unwrap_err().kind(), ErrorKind::Changed);
    let entry = async || fixture.pay_far().entry().await.unwrap().unwrap();
    let finished = entry().await.reset_steps(&open).await.unwrap_err();
    assert_eq!(*finished.kind(), ErrorKind::InvalidStep);
    let seen = entry().await.signed("Zoë", "stuck for an hour");
    seen.reset().await.unwrap();
    let far = fixture.pay_far();
    let answer = far.run(|_| two_steps([charge, label], receipt(1)));
    assert_eq!(answer.await, receipt(1));
    assert_eq!((charge.count(), label.count()), (1, 1));
    let history = entry().await.history();
    assert_eq!(history.len(), 3, "{history:?}");
}

async fn a_zombie_keeps_no_step(fixture: Fixture) {
    let [charge, label, zombie] = &runs();
    let (gate, paused) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let mut call = Box::pin(
        fixture
            .pay()
            .on_lease_lost(OnLeaseLost::Continue)
            .run(|_| async {
                counted("charge", charge).await?;
                paused.add_permits(1);
                gate.acquire().await.unwrap().forget();
                let late = counted("zombie", zombie).await;
                assert!(matches!(refusal(late).kind(), ErrorKind::Running { .. }));
                let later = counted("later", zombie).await;
                assert!(matches!(refusal(later).kind(), ErrorKind::Running { .. }));
                Err(PayError::Down) as Answer
            }),
    );
    while paused.available_permits() == 0 {
        assert!(poll_once(call.as_mut()).await.is_none());
        tokio::task::yield_now().await;
    }
    fixture.pass_in_store(LEASE_OVER);
    let winner = fixture.pay_far().run(|_| async {
        two_steps([charge, label], receipt(1)).await?;
        gate.add_permits(1);
        assert_eq!(until(&fixture, call).await, Err(PayError::Down));
        Err(PayError::Down) as Answer
    });
    assert_eq!(winner.await, Err(PayError::Down));
    // The part ran before the store said that the claim is another's.
    assert_eq!((charge.count(), label.count(), zombie.count()), (1, 1, 1));
    let kept = fixture.pay_far().run(|_| async {
        two_steps([charge, label], receipt(1)).await?;
        counted("zombie", zombie).await
    });
    assert_eq!(kept.await, receipt(2), "no step of the zombie is kept");
}

async fn no_step_starts_after_the_lease_is_lost(fixture: Fixture) {
    let charge = Runs::default();
    let answer = fixture
        .pay()
        .on_lease_lost(OnLeaseLost::Continue)
        .run(|_| async {
            fixture.fail(StoreOperation::Renew, [Fault::Lost; 1_000]);
            fixture.clock.advance(LEASE_OVER);
            let refused = refusal(counted("charge", &charge).await);
            assert!(
                matches!(refused.kind(), ErrorKind::Running { .. }),
                "{refused}"
            );
            Err(PayError::Down) as Answer
        });
    assert_eq!(until(&fixture, answer).await, Err(PayError::Down));
    assert_eq!(charge.count(), 0);
}

async fn a_renewal_of_a_claim_with_steps_keeps_them(fixture: Fixture) {
    let charge = Runs::default();
    let answer = fixture.pay().run(|_| async {
        counted("charge", &charge).await?;
        for renewals in 1..4 {
            renewed(&fixture, THIRD, renewals).await;
        }
        Err(PayError::Down) as Answer
    });
    assert_eq!(answer.await, Err(PayError::Down));
    let answer = fixture.pay_far().run(|_| counted("charge", &charge));
    assert_eq!(answer.await, receipt(1));
    assert_eq!(charge.count(), 1);
}

async fn a_lost_record_is_written_again_with_its_steps(fixture: Fixture) {
    let [charge, label] = &runs();
    let answer = fixture.pay().run(|_| async {
        counted("charge", charge).await?;
        // Longer than the record lives: as a server that has forgotten it.
        fixture.pass_in_store(Duration::from_hours(24 * 40));
        counted("label", label).await?;
        fixture.pass_in_store(Duration::from_hours(24 * 40));
        renewed(&fixture, THIRD, 1).await;
        Err(PayError::Down) as Answer
    });
    assert_eq!(answer.await, Err(PayError::Down));
    let answer = fixture
        .pay_far()
        .run(|_| two_steps([charge, label], receipt(1)));
    assert_eq!(answer.await, receipt(1));
    assert_eq!((charge.count(), label.count()), (1, 1));
}

async fn a_record_that_is_lost_before_its_release_is_written_again_with_its_steps(
    fixture: Fixture,
) {
    let charge = Runs::default();
    let answer = fixture.pay().run(|_| async {
        counted("charge", &charge).await?;
        fixture.pass_in_store(Duration::from_hours(24 * 40));
        Err(PayError::Down) as Answer
    });
    assert_eq!(answer.await, Err(PayError::Down));
    let answer = fixture.pay_far().run(|_| counted("charge", &charge));
    assert_eq!(answer.await, receipt(1));
    assert_eq!(charge.count(), 1);
}

/// Another attempt may have run, and its answer may have expired: a later call is another one.
async fn a_late_release_of_an_expired_record_writes_nothing(fixture: Fixture) {
    let charge = Runs::default();
    // It is renewed no longer, and its lease lapses.
    let zombie = fixture.pay().max_run(Duration::from_secs(1));
    let zombie = zombie.on_lease_lost(OnLeaseLost::Continue);
    let answer = zombie.run(|_| async {
        counted("charge", &charge).await?;
        fixture.clock.advance(LEASE_OVER);
        fixture.events.wait_for("lease lost", 1).await;
        fixture.pass_in_store(Duration::from_hours(24 * 40));
        Err(PayError::Down) as Answer
    });
    assert_eq!(answer.await, Err(PayError::Down));
    assert!(fixture.pay_far().entry().await.unwrap().is_none());
}

async fn an_answer_is_stored_without_steps(fixture: Fixture) {
    let [charge, label] = &runs();
    let answer = fixture
        .pay()
        .run(|_| two_steps([charge, label], receipt(1)));
    assert_eq!(answer.await, receipt(1));
    let ReadReply::Found { record, .. } = fixture.store.read(&fixture.key()).await.unwrap() else {
        panic!("there is a record");
    };
    assert!(record.journal().is_empty() && record.header.journal.is_none());
    assert_eq!(answered(fixture.pay_far()).await, receipt(1));
}

async fn an_unprotected_call_runs_its_steps_and_refuses_those_that_run_once(fixture: Fixture) {
    fixture.fail(StoreOperation::Claim, [Fault::Unreachable; 1_000]);
    let charge = Runs::default();
    let answer = fixture.pay().on_outage(OnOutage::Run).run(|_| async {
        counted("charge", &charge).await?;
        counted("mail", &charge).once().await
    });
    assert_invalid(
        until(&fixture, answer).await,
        "step `mail`: the call runs without protection",
    );
    assert_eq!(charge.count(), 1);
}
