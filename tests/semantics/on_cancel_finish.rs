//! Bodies that run to their end without their caller (`on_cancel = finish`).

use crate::prelude::*;

on_every_store! {
    a_finished_body_survives_its_caller_at_every_poll,
    a_finished_body_may_end_in_every_way_after_its_caller_is_gone,
    a_panic_of_a_finished_body_reaches_its_caller, a_finished_body_has_its_context_and_its_engine,
    a_runtime_that_shuts_down_ends_a_finished_body,
}

async fn a_finished_body_survives_its_caller_at_every_poll(mut fixture: Fixture) {
    for polls in 0..1_000 {
        let (runs, far) = (Runs::default(), fixture.far.clone());
        let (body, call) = (runs.clone(), fixture.engine.operation("pay").key(&polls));
        let call = call.finish(move |_| async move {
            let run = body.start();
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            receipt(run)
        });
        let ended = poll_times(call, polls).await;
        comes_to_rest(&fixture).await;
        let again = far
            .operation("pay")
            .key(&polls)
            .on_running(OnRunning::Reject);
        if runs.count() == 1 {
            assert_eq!(answered(again).await, receipt(1));
        } else {
            // Its claim may have arrived behind its own release.
            let answer = paid(again, &runs).await;
            assert!(answer == receipt(1) || ended.is_none() && runs.count() == 0);
        }
        if ended.is_some() {
            assert_eq!(ended, Some(receipt(1)));
            return;
        }
        fixture = fixture.with(|engine| engine);
    }
    unreachable!("the call never ends");
}

async fn a_finished_body_may_end_in_every_way_after_its_caller_is_gone(fixture: Fixture) {
    let value = EntryState::Answered(idem_runtime::store::OutcomeKind::Value);
    for (key, ends, stands) in [
        (1, Some(receipt(7)), (value, 1)),
        (2, Some(Err(PayError::Down)), (EntryState::Released, 0)),
        (3, None, (EntryState::Released, 1)),
    ] {
        let call = |engine: &Engine| engine.operation("pay").key(&key);
        // A store that is slow to take the answer is waited for.
        let lost = [Fault::Lost, Fault::ReplyLost, Fault::Lost];
        fixture.fail(StoreOperation::Complete, lost);
        let body = |gate: Arc<Semaphore>, begun: Arc<Semaphore>| async move {
            begun.add_permits(1);
            gate.acquire().await.unwrap().forget();
            ends.unwrap_or_else(|| std::panic::panic_any("out of paper"))
        };
        let body = Body::begun(|gate, begun| {
            tokio::spawn(call(&fixture.engine).finish(move |_| body(gate, begun)))
        });
        body.await.leave().await.add_permits(1);
        let ended = async {
            loop {
                let entry = call(&fixture.far).entry().await.unwrap().unwrap();
                match entry.state() {
                    EntryState::Running { .. } => tokio::task::yield_now().await,
                    state => return (state, entry.attempts()),
                }
            }
        };
        assert_eq!(until(&fixture, ended).await, stands, "{key}");
        fixture.store.heal();
    }
}

async fn a_panic_of_a_finished_body_reaches_its_caller(fixture: Fixture) {
    let body = |_| async { std::panic::panic_any("out of paper") as Answer };
    let panic = caught(fixture.pay().finish(body)).await.unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"out of paper"));
    assert_eq!(stands(&fixture).await, (EntryState::Released, 1));
}

async fn a_finished_body_has_its_context_and_its_engine(fixture: Fixture) {
    let key = *fixture.key().digest();
    let body = move |cx: Context| async move {
        let here = idem_runtime::context();
        assert_eq!((here.attempt(), *here.key(), *cx.key()), (1, key, key));
        let engine = Engine::current().expect("the scope of the caller goes along");
        let inner = engine.operation("inner").key(&1);
        inner.run(|_| async { receipt(7) }).await
    };
    let finish = fixture.engine.scope(fixture.pay().finish(body));
    assert_eq!(finish.await, receipt(7));
    assert_eq!(fixture.events.count("claimed"), 2);
}

async fn a_runtime_that_shuts_down_ends_a_finished_body(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.max_running(1));
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
    let begun = Runs::default();
    let body = begun.clone();
    let mut call = Box::pin(fixture.pay().finish(move |_| async move {
        let _ = body.start();
        std::future::pending::<Answer>().await
    }));
    // The caller is on this runtime, the body on the other one.
    while begun.count() == 0 {
        let entered = runtime.enter();
        let polled = {
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            call.as_mut().poll(&mut cx)
        };
        drop(entered);
        assert!(polled.is_pending());
        tokio::task::yield_now().await;
    }
    let other = || fixture.engine.operation("other").key(&1);
    assert_refusal(answered(other()).await, &ErrorKind::TooManyRunning);
    runtime.shutdown_background();
    let error = refusal(call.await);
    assert_eq!(error.kind(), &ErrorKind::ShuttingDown);
    assert!(error.is_retryable());
    let next = paid(other(), &Runs::default()).await;
    assert_eq!(next, receipt(1), "its place is free");
    comes_to_rest(&fixture).await;
    assert_running(&refused_far(&fixture).await);
    let dropped = fixture.events.count("dropped");
    assert_eq!(dropped, 1, "it lapses with its lease");
}

/// The output of a future that never waits, polled without a runtime.
fn at_once<F: Future>(future: F) -> F::Output {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match pin!(future).poll(&mut cx) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn without_a_runtime_the_body_runs_in_its_callers_place() {
    let fixture = Fixture::memory();
    let caller = std::thread::current().id();
    let body = move |_| async move {
        assert_eq!(std::thread::current().id(), caller);
        receipt(7)
    };
    assert_eq!(at_once(fixture.pay().finish(body)), receipt(7));
    assert_eq!(at_once(answered(fixture.pay())), receipt(7));
}

#[tokio::test]
async fn a_caller_that_is_never_polled_again_does_not_stop_a_finished_body() {
    let (fixture, gate) = (Fixture::memory(), Arc::new(Semaphore::new(0)));
    let end = Arc::clone(&gate);
    let mut call = Box::pin(fixture.pay().finish(move |_| async move {
        end.acquire().await.unwrap().forget();
        receipt(7)
    }));
    assert!(poll_once(call.as_mut()).await.is_none());
    gate.add_permits(1);
    comes_to_rest(&fixture).await;
    assert_eq!(answered(fixture.pay_far()).await, receipt(7));
    assert_eq!(call.await, receipt(7));
}
