//! The context of a body, and the calls that bodies make.

use idem_runtime::store::Fence;

use crate::prelude::*;

on_every_store! {
    a_body_knows_its_call, a_fence_grows_with_every_claim_and_stays_within_one,
    a_derived_key_stays_over_attempts_processes_and_hooks,
    a_derived_key_differs_by_label_key_operation_and_scope, a_context_outlives_its_body,
    a_nested_call_has_a_context_of_its_own, a_call_within_itself_is_refused_at_once,
    a_body_may_call_another_engine_or_scope, two_bodies_that_call_each_other_do_not_wait_for_ever,
    after_a_body_its_key_may_be_called_again,
}

/// Calls whose values have their own type, under a payment's operation.
fn any_type(call: Pay) -> Pay {
    call.on_other_type(OnOtherType::Accept)
}

async fn derived(call: Pay, label: &str) -> String {
    let derive = |cx: Context| async move { Ok::<_, PayError>(cx.derive_key(label)) };
    any_type(call).run(derive).await.unwrap()
}

async fn a_body_knows_its_call(fixture: Fixture) {
    let key = *fixture.key().digest();
    let answer = fixture.pay().run(|cx| async move {
        assert_eq!((cx.operation().as_str(), *cx.key()), ("pay", key));
        assert_eq!(*idem_runtime::context().key(), key);
        receipt(1)
    });
    assert_eq!(answer.await, receipt(1));
    assert!(idem_runtime::try_context().is_none());
}

async fn a_fence_grows_with_every_claim_and_stays_within_one(fixture: Fixture) {
    let mut last = Fence::default();
    for _ in 0..5 {
        let call = fixture.pay().run(|cx| async move {
            let fence = cx.fence().await?;
            assert!(fence > last);
            Err::<u64, _>(PayError::Declined {
                run: u32::try_from(fence.get() & 0xffff).unwrap(),
            })
        });
        // The stored record shows that the fence was not requested from the store again.
        call.await.unwrap_err();
        let entry = entry(&fixture).await;
        assert!(entry.fence() > last);
        last = entry.fence();
        entry.reset().await.unwrap();
    }
    let call = any_type(fixture.pay()).run(|cx| async move {
        let fence = cx.fence().await?;
        assert_eq!(cx.fence().await, Ok(fence), "the same every time");
        Ok::<_, PayError>(fence.get())
    });
    assert!(Fence::new(call.await.unwrap()) > last);
}

async fn a_derived_key_stays_over_attempts_processes_and_hooks(fixture: Fixture) {
    let first = derived(fixture.pay(), "bank").await;
    assert_eq!(first.len(), 43);
    entry(&fixture).await.reset().await.unwrap();
    panicked(fixture.pay()).await;
    let expected = first.clone();
    let hook = move |cx: Context| async move {
        assert_eq!(cx.derive_key("bank"), expected);
        Says::NotLanded
    };
    let expected = first.clone();
    let body = move |cx: Context| async move {
        assert_eq!((cx.attempt(), cx.derive_key("bank")), (2, expected));
        Err(PayError::Down) as Answer
    };
    let call = fixture.pay().run_reconciled(hook, body);
    assert_eq!(call.await, Err(PayError::Down));
    assert_eq!(derived(fixture.pay_far(), "bank").await, first);
    fixture.pass_in_store(Duration::from_hours(25));
    assert_eq!(
        derived(fixture.pay(), "bank").await,
        first,
        "of a new record"
    );
}

async fn a_derived_key_differs_by_label_key_operation_and_scope(fixture: Fixture) {
    let engine = &fixture.engine;
    let mut keys = vec![
        derived(engine.operation("pay").key(&1), "bank").await,
        derived(engine.operation("pay").key(&2), "bank").await,
        derived(engine.operation("pay").key(&3), "mail").await,
        derived(engine.operation("refund").key(&1), "bank").await,
        derived(engine.operation("pay").scope("a").key(&1), "bank").await,
        derived(engine.operation("pay").key("1"), "bank").await,
        derived(engine.operation("pay").key(&4), "").await,
    ];
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 7, "{keys:?}");
}

async fn a_context_outlives_its_body(fixture: Fixture) {
    let kept = Mutex::new(None);
    let call = fixture.pay().run(|cx| async {
        *kept.lock().unwrap() = Some(cx);
        receipt(1)
    });
    call.await.unwrap();
    let context = kept.into_inner().unwrap().unwrap();
    assert_eq!(
        (context.attempt(), *context.key()),
        (1, *fixture.key().digest())
    );
    assert!(context.fence().await.is_ok());
}

async fn a_nested_call_has_a_context_of_its_own(fixture: Fixture) {
    let outer = *fixture.key().digest();
    let answer = fixture.pay().run(|_| async {
        let inner = fixture.engine.operation("inner").key(&1);
        let inner = inner.run(|cx| async move {
            assert_eq!(cx.operation().as_str(), "inner");
            assert_eq!(idem_runtime::context().key(), cx.key());
            receipt(2)
        });
        assert_eq!(inner.await, receipt(2));
        assert_eq!(*idem_runtime::context().key(), outer, "again");
        receipt(1)
    });
    assert_eq!(answer.await, receipt(1));
}

/// Runs this inside the body of `pay`.
async fn inside<F: Future<Output = ()>>(fixture: &Fixture, work: F) {
    let call = fixture.pay().run(|_| async {
        work.await;
        receipt(1)
    });
    // Nothing here needs time: a call that waited for itself would hang.
    assert_eq!(call.await, receipt(1));
}

async fn is_reentered(call: Pay) {
    let error = refusal(answered(call).await);
    assert_eq!(error.kind(), &ErrorKind::Reentered);
    assert!(!error.is_retryable(), "it would be so again");
}

/// In the body, its hook, and its functions, on any task.
async fn a_call_within_itself_is_refused_at_once(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let again = fixture.pay();
    let hook = |_| async {
        is_reentered(again).await;
        Says::NotLanded
    };
    let inner = || fixture.engine.operation("inner").key(&1);
    let innermost = || fixture.engine.operation("innermost").key(&1);
    let call = fixture.pay().run_reconciled(hook, |_| async {
        let asked = claims(&fixture);
        is_reentered(fixture.pay().fingerprint(&"other")).await;
        assert_eq!(claims(&fixture), asked, "the store was not asked");
        let call = inner().run(|_| async {
            let all = [fixture.pay(), inner(), innermost()];
            let call = innermost().finish(|_| async move {
                for again in all {
                    is_reentered(again).await;
                }
                receipt(3)
            });
            assert_eq!(call.await, receipt(3));
            receipt(2)
        });
        assert_eq!(call.await, receipt(2));
        receipt(1)
    });
    // Nothing here needs time: a call that waited for itself would hang.
    assert_eq!(call.await, receipt(1));
}

async fn a_body_may_call_another_engine_or_scope(fixture: Fixture) {
    let work = async {
        // That engine does not know that it waits for itself.
        let far = fixture.pay_far().on_running(OnRunning::Reject);
        assert_running(&refusal(answered(far).await));
        let scoped = fixture.engine.operation("pay").scope("b").key(&7);
        assert_eq!(paid(scoped, &Runs::default()).await, receipt(1));
    };
    inside(&fixture, work).await;
}

async fn two_bodies_that_call_each_other_do_not_wait_for_ever(fixture: Fixture) {
    let call = |mine: u32, other: u32| {
        let wait = OnRunning::Wait(Duration::from_secs(5));
        let inner = fixture.engine.operation("pay").key(&other).on_running(wait);
        fixture.engine.operation("pay").key(&mine).run(|_| async {
            tokio::task::yield_now().await;
            paid(inner, &Runs::default()).await
        })
    };
    let mut both = Box::pin(async { tokio::join!(call(1, 2), call(2, 1)) });
    while fixture.events.count("claimed") < 2 || fixture.clock.next_wake().is_none() {
        assert!(poll_once(both.as_mut()).await.is_none());
        tokio::task::yield_now().await;
    }
    for _ in 0..10 {
        assert!(poll_once(both.as_mut()).await.is_none());
        tokio::task::yield_now().await;
    }
    fixture.clock.advance(Duration::from_secs(5));
    let (first, second) = both.await;
    // The call that gives up first releases its key, and the other one may go on.
    let refused: Vec<_> = [first, second].into_iter().filter(Result::is_err).collect();
    assert!(!refused.is_empty());
    for answer in refused {
        assert_running(&refusal(answer));
    }
}

async fn after_a_body_its_key_may_be_called_again(fixture: Fixture) {
    inside(&fixture, async {}).await;
    assert_eq!(answered(fixture.pay()).await, receipt(1));
    // Nor does a body that was dropped hold its key in this task.
    let body = Body::start(fixture.engine.operation("pay").key(&8), receipt(8)).await;
    body.drop_caller().await;
    fixture.pass_in_store(LEASE_OVER);
    let again = fixture.engine.operation("pay").key(&8);
    assert_eq!(paid(again, &Runs::default()).await, receipt(1));
}
