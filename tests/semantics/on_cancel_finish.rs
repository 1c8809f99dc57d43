//! Bodies that run to their end whatever becomes of their caller (`on_cancel = finish`).

use crate::prelude::*;

on_every_store![
    a_finished_body_answers_its_caller_and_the_next_one,
    a_finished_body_survives_its_caller,
    a_finished_body_survives_its_caller_at_every_poll,
    a_finished_body_may_fail_after_its_caller_is_gone,
    a_panic_of_a_finished_body_reaches_its_caller,
    a_panic_of_a_finished_body_without_a_caller_gives_the_key_back,
    a_finished_body_is_renewed_after_its_caller_is_gone,
    a_finished_body_waits_for_a_slow_store_after_its_caller_is_gone,
    a_finished_body_has_its_context_and_its_engine,
    a_finished_body_may_not_call_itself,
    a_runtime_that_shuts_down_ends_a_finished_body,
];

/// A body that goes on when its test opens the gate.
#[derive(Clone, Debug)]
struct Gate {
    begun: Arc<Semaphore>,
    end: Arc<Semaphore>,
}

impl Gate {
    fn new() -> Self {
        let closed = || Arc::new(Semaphore::new(0));
        Self {
            begun: closed(),
            end: closed(),
        }
    }

    async fn body(self, answer: Answer) -> Answer {
        self.begun.add_permits(1);
        self.end.acquire().await.unwrap().forget();
        answer
    }

    /// Starts a finished body, and drops its caller when it has begun.
    async fn start_and_leave(&self, call: Pay, answer: Answer) {
        let body = self.clone();
        let mut call = Box::pin(call.finish(move |_| body.body(answer)));
        tokio::select! {
            _ = &mut call => unreachable!("the body waits"),
            begun = self.begun.acquire() => begun.unwrap().forget(),
        }
    }

    fn let_end(&self) {
        self.end.add_permits(1);
    }
}

async fn a_finished_body_answers_its_caller_and_the_next_one(fixture: Fixture) {
    let finish = fixture.pay().finish(|_| async { receipt(7) });
    assert_eq!(finish.await, receipt(7));
    let replay = fixture.pay().finish(|_| async { never() });
    assert_eq!(replay.await, receipt(7));
    assert_eq!(fixture.events.count("replayed"), 1);
}

async fn a_finished_body_survives_its_caller(fixture: Fixture) {
    let gate = Gate::new();
    gate.start_and_leave(fixture.pay(), receipt(7)).await;
    assert_eq!(fixture.events.count("dropped"), 0);
    assert_running(&refused_far(&fixture).await);
    let waits = tokio::spawn(answered(fixture.pay()));
    gate.let_end();
    assert_eq!(waits.await.unwrap(), receipt(7));
    assert_eq!(answered(fixture.pay_far()).await, receipt(7));
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

async fn a_finished_body_may_fail_after_its_caller_is_gone(fixture: Fixture) {
    let gate = Gate::new();
    gate.start_and_leave(fixture.pay(), Err(PayError::Down))
        .await;
    gate.let_end();
    comes_to_rest(&fixture).await;
    assert_eq!(stands(&fixture).await, (EntryState::Released, 0));
}

async fn a_panic_of_a_finished_body_reaches_its_caller(fixture: Fixture) {
    let body = |_| async { std::panic::panic_any("out of paper") as Answer };
    let panic = caught(fixture.pay().finish(body)).await.unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"out of paper"));
    assert_eq!(stands(&fixture).await, (EntryState::Released, 1));
}

async fn a_panic_of_a_finished_body_without_a_caller_gives_the_key_back(fixture: Fixture) {
    let gate = Gate::new();
    let body = gate.clone();
    let mut call = Box::pin(fixture.pay().finish(move |_| async move {
        body.body(receipt(7)).await?;
        std::panic::panic_any("out of paper") as Answer
    }));
    tokio::select! {
        _ = &mut call => unreachable!("the body waits"),
        begun = gate.begun.acquire() => begun.unwrap().forget(),
    }
    drop(call);
    gate.let_end();
    comes_to_rest(&fixture).await;
    assert_eq!(stands(&fixture).await, (EntryState::Released, 1));
}

async fn a_finished_body_is_renewed_after_its_caller_is_gone(fixture: Fixture) {
    let gate = Gate::new();
    gate.start_and_leave(fixture.pay(), receipt(7)).await;
    for renewals in 1..=6 {
        renewed(&fixture, THIRD, renewals).await;
        assert_running(&refused_far(&fixture).await);
    }
    gate.let_end();
    comes_to_rest(&fixture).await;
    assert_eq!(answered(fixture.pay_far()).await, receipt(7));
}

async fn a_finished_body_waits_for_a_slow_store_after_its_caller_is_gone(fixture: Fixture) {
    let lost = [Fault::Lost, Fault::ReplyLost, Fault::Lost];
    fixture.fail(StoreOperation::Complete, lost);
    let gate = Gate::new();
    gate.start_and_leave(fixture.pay(), receipt(7)).await;
    gate.let_end();
    comes_to_rest(&fixture).await;
    assert_eq!(answered(fixture.pay_far()).await, receipt(7));
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

async fn a_finished_body_may_not_call_itself(fixture: Fixture) {
    let again = fixture.pay();
    let body = |_| async move {
        let error = refusal(answered(again).await);
        assert_eq!(error.kind(), &ErrorKind::Reentered);
        receipt(7)
    };
    assert_eq!(fixture.pay().finish(body).await, receipt(7));
    // Nor may a finished call inside a body of the same key.
    let again = fixture.engine.operation("pay").key(&8);
    let outer = fixture.engine.operation("pay").key(&8).run(|_| async move {
        let error = refusal(again.finish(|_| async { never() }).await);
        assert_eq!(error.kind(), &ErrorKind::Reentered);
        receipt(8)
    });
    assert_eq!(outer.await, receipt(8));
}

async fn a_runtime_that_shuts_down_ends_a_finished_body(fixture: Fixture) {
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
    let gate = Gate::new();
    let body = gate.clone();
    let mut call = Box::pin(fixture.pay().finish(move |_| body.body(receipt(7))));
    // The caller is on this runtime, the body on the other one.
    while gate.begun.available_permits() == 0 {
        let entered = runtime.enter();
        let polled = {
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            call.as_mut().poll(&mut cx)
        };
        drop(entered);
        assert!(polled.is_pending());
        tokio::task::yield_now().await;
    }
    runtime.shutdown_background();
    let error = refusal(call.await);
    assert_eq!(error.kind(), &ErrorKind::ShuttingDown);
    assert!(error.is_retryable());
    comes_to_rest(&fixture).await;
    assert_running(&refused_far(&fixture).await);
    assert_eq!(
        fixture.events.count("dropped"),
        1,
        "it lapses with its lease"
    );
}

/// Awaits without any runtime.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);

    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut cx = std::task::Context::from_waker(&waker);
    let mut future = Box::pin(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
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
    assert_eq!(block_on(fixture.pay().finish(body)), receipt(7));
    assert_eq!(block_on(answered(fixture.pay())), receipt(7));
}

#[tokio::test]
async fn a_caller_that_is_never_polled_again_does_not_stop_a_finished_body() {
    let (fixture, gate) = (Fixture::memory(), Gate::new());
    let body = gate.clone();
    let mut call = Box::pin(fixture.pay().finish(move |_| body.body(receipt(7))));
    assert!(poll_once(call.as_mut()).await.is_none());
    gate.let_end();
    comes_to_rest(&fixture).await;
    assert_eq!(answered(fixture.pay_far()).await, receipt(7));
    assert_eq!(call.await, receipt(7));
}
