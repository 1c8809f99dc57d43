//! Steps whose schedules a review found to be wrong.

use std::future::pending;

use idem_harness::HANG_LIMIT;
use idem_runtime::on_error::Keep;
use idem_runtime::{Answer as Sourced, step};

use serde::{Deserialize, Serialize};

use crate::prelude::*;
use crate::steps::{appends, counted, without_reply};

on_every_store![
    a_beginning_that_fails_after_a_hook_leaves_the_question_open,
    a_system_error_after_a_hook_leaves_the_question_open,
    a_server_that_forgot_the_record_keeps_the_steps_of_a_release,
    a_step_that_was_dropped_may_not_be_advised_to_take_another_name,
    a_system_error_is_told_although_it_could_not_be_recorded,
    a_step_returns_an_answer_with_its_source,
    a_reconciliation_of_the_call_keeps_its_steps,
    a_refusal_of_a_step_is_no_answer_of_the_call,
    nor_is_one_in_an_error_that_is_not_read_back,
];

/// A process that begins `label`, and is paused before its effect.
async fn paused_before_its_effect(fixture: &Fixture) {
    let begun = Semaphore::new(0);
    let mut call = Box::pin(fixture.pay().run(|_| {
        step("label", async |_| {
            begun.add_permits(1);
            pending::<Answer>().await
        })
        .once()
    }));
    while begun.available_permits() == 0 {
        assert!(poll_once(call.as_mut()).await.is_none());
        tokio::task::yield_now().await;
    }
    drop(call);
    fixture.pass_in_store(LEASE_OVER);
}

async fn a_beginning_that_fails_after_a_hook_leaves_the_question_open(fixture: Fixture) {
    paused_before_its_effect(&fixture).await;
    // The hook finds nothing yet, and the beginning of this attempt is not confirmed.
    fixture.fail(StoreOperation::Append, [Fault::ReplyHangs]);
    let answer = fixture.pay_far().run(|_| async {
        let label =
            step("label", async |_| never()).reconcile(async |_| Reconciled::<Receipt>::NotLanded);
        let refused = refusal(label.await);
        assert_eq!(*refused.kind(), ErrorKind::StoreUnavailable, "{refused}");
        Err(PayError::Down) as Answer
    });
    assert_eq!(
        without_reply(&fixture, answer).await,
        Err(PayError::Down),
        "it did not start"
    );
    // Now the effect of the first attempt lands: only the hook can tell.
    let [asked, label] = &[Runs::default(), Runs::default()];
    let answer = fixture.pay_far().run(|_| {
        counted("label", label).reconcile(async |_| {
            let _ = asked.start();
            Reconciled::Landed(Receipt { run: 7 })
        })
    });
    assert_eq!(answer.await, receipt(7));
    assert_eq!((asked.count(), label.count()), (1, 0));
}

async fn a_system_error_after_a_hook_leaves_the_question_open(fixture: Fixture) {
    paused_before_its_effect(&fixture).await;
    let answer = fixture.pay_far().run(|_| {
        step("label", async |_| Err(PayError::Down) as Answer)
            .reconcile(async |_| Reconciled::<Receipt>::NotLanded)
    });
    assert_eq!(answer.await, Err(PayError::Down));
    let [asked, label] = &[Runs::default(), Runs::default()];
    let answer = fixture.pay_far().run(|_| {
        counted("label", label).reconcile(async |_| {
            let _ = asked.start();
            Reconciled::Landed(Receipt { run: 7 })
        })
    });
    assert_eq!(answer.await, receipt(7));
    assert_eq!((asked.count(), label.count()), (1, 0));
}

async fn a_server_that_forgot_the_record_keeps_the_steps_of_a_release(fixture: Fixture) {
    let charge = Runs::default();
    let answer = fixture.pay().run(|_| async {
        counted("charge", &charge).await?;
        // Longer than the record lives: as a server that has forgotten it, within the lease of the holder.
        fixture.pass_in_store(Duration::from_hours(24 * 40));
        Err(PayError::Down) as Answer
    });
    assert_eq!(answer.await, Err(PayError::Down));
    let answer = fixture.pay_far().run(|_| counted("charge", &charge));
    assert_eq!(answer.await, receipt(1));
    assert_eq!(charge.count(), 1);
}

async fn a_step_that_was_dropped_may_not_be_advised_to_take_another_name(fixture: Fixture) {
    let answer = fixture.pay().run(|_| async {
        let mut first = Box::pin(step("charge", async |_| pending::<Answer>().await));
        assert!(poll_once(first.as_mut()).await.is_none());
        // As by `tokio::time::timeout`.
        drop(first);
        step("charge", async |_| never()).await
    });
    let told = refusal(answer.await).to_string();
    // With another name the step has another key, and the other side charges twice.
    assert!(!told.contains("add what distinguishes them"), "{told}");
    assert_eq!(appends(&fixture), 0);
}

#[tokio::test]
async fn a_step_may_fail_as_often_as_it_is_retried() {
    let engine = Engine::new(MemoryStore::new());
    let mail = Runs::default();
    for attempt in 1..=3_000 {
        let ends = if attempt < 3_000 {
            Err(PayError::Down)
        } else {
            receipt(1)
        };
        let call = engine.operation("pay").key(&7).run(|_| {
            step("mail", async |_| {
                let _ = mail.start();
                ends.clone()
            })
            .once()
        });
        assert_eq!(call.await, ends, "attempt {attempt}");
    }
    assert_eq!(mail.count(), 3_000);
}

async fn a_system_error_is_told_although_it_could_not_be_recorded(fixture: Fixture) {
    let answer = fixture.pay().run(|_| {
        step("mail", async |_| {
            // The part says that nothing happened, and only that cannot be recorded.
            fixture.fail(StoreOperation::Append, [Fault::Lost; 1_000]);
            Err(PayError::Down) as Answer
        })
        .once()
    });
    assert_eq!(until(&fixture, answer).await, Err(PayError::Down));
}

async fn a_step_returns_an_answer_with_its_source(fixture: Fixture) {
    for ends in [Err(PayError::Down), receipt(1)] {
        let answer = fixture.pay().run(|_| async {
            let part = async |_| Ok::<_, PayError>(Sourced::from(Receipt { run: 1 }));
            let charge = step("charge", part).await?;
            assert_eq!(charge.run, 1);
            ends.clone()
        });
        assert_eq!(answer.await, ends);
    }
}

async fn a_reconciliation_of_the_call_keeps_its_steps(fixture: Fixture) {
    let charge = Runs::default();
    let mut call = Box::pin(fixture.pay().run(|_| async {
        counted("charge", &charge).await?;
        pending::<Answer>().await
    }));
    while fixture.events.count("step kept") == 0 {
        assert!(poll_once(call.as_mut()).await.is_none());
        tokio::task::yield_now().await;
    }
    drop(call);
    fixture.pass_in_store(LEASE_OVER);
    let answer = fixture.pay_far().run_reconciled(
        |_| async { Reconciled::<Receipt>::NotLanded },
        |_| counted("charge", &charge),
    );
    assert_eq!(answer.await, receipt(1));
    assert_eq!(charge.count(), 1);
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
    let ended = runtime.block_on(async {
        let panics = engine.clone();
        let call = tokio::spawn(async move {
            let call = panics.operation("pay").key(&7);
            call.run(|_| step("mail", async |_| half_way()).once())
                .await
        });
        assert!(call.await.unwrap_err().is_panic());
        let call = tokio::spawn(async move {
            let call = engine.operation("pay").key(&7);
            call.run(|_| async {
                let wait = tokio::runtime::Handle::current();
                tokio::task::block_in_place(|| {
                    wait.block_on(step("mail", async |_| never()).once())
                })
            })
            .await
        });
        tokio::time::timeout(HANG_LIMIT, call).await
    });
    runtime.shutdown_background();
    let answer = ended.expect("it hangs, and holds its thread and its key");
    assert_unknown(&refusal(answer.unwrap()));
}

fn half_way() -> Answer {
    panic!("half-way")
}

async fn a_refusal_of_a_step_is_no_answer_of_the_call(fixture: Fixture) {
    let [charge, mail] = &[Runs::default(), Runs::default()];
    let call = async |fails| {
        let call = fixture.pay_far().on_error(Keep);
        let answer = call.run(|_| async {
            counted("charge", charge).await?;
            let mail = counted("mail", mail).once();
            if fails {
                fixture.fail(StoreOperation::Append, [Fault::ReplyHangs]);
                return without_reply(&fixture, mail).await;
            }
            mail.await
        });
        answer.await
    };
    assert_eq!(
        *refusal(call(true).await).kind(),
        ErrorKind::StoreUnavailable
    );
    // Nothing was started: the customer has paid, and the repeat is to finish the order.
    assert_eq!(call(false).await, receipt(1));
}

/// Of one that is written, no field is read.
#[derive(Debug, Serialize, Deserialize)]
struct OneWay {
    #[serde(skip_serializing)]
    text: String,
}

impl From<PayError> for OneWay {
    fn from(error: PayError) -> Self {
        let text = format!("{error:?}");
        Self { text }
    }
}

impl From<Error> for OneWay {
    fn from(error: Error) -> Self {
        PayError::Idem(error).into()
    }
}

async fn nor_is_one_in_an_error_that_is_not_read_back(fixture: Fixture) {
    let [charge, mail] = &[Runs::default(), Runs::default()];
    let call = async |fails| {
        let call = fixture.pay_far().on_error(Keep);
        let answer = call.run(|_| async {
            counted("charge", charge).await?;
            let mail = counted("mail", mail).once();
            if fails {
                fixture.fail(StoreOperation::Append, [Fault::ReplyHangs]);
                return Ok(without_reply(&fixture, mail).await?);
            }
            Ok::<_, OneWay>(mail.await?)
        });
        answer.await
    };
    let refused = call(true).await.unwrap_err();
    assert!(refused.text.contains("mail"), "{refused:?}");
    assert_eq!(call(false).await.unwrap(), receipt(1).unwrap());
}
