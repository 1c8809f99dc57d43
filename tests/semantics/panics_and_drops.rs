//! Bodies that do not end in a result: panics and dropped futures.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use idem_runtime::{ErrorKind, OnRunning};
use idem_tests::fixture::Fixture;
use idem_tests::on_every_store;
use idem_tests::payment::{PayError, Receipt, Runs};
use tokio::sync::Semaphore;

on_every_store![
    a_panic_gives_the_key_back_and_goes_on,
    panics_use_attempts_up,
    a_dropped_body_holds_its_key_until_the_lease_is_over,
    a_dropped_body_is_no_longer_renewed,
    a_late_success_heals_an_exhausted_key,
    one_attempt_means_at_most_once,
];

fn never<T>() -> Result<T, PayError> {
    unreachable!("this body must not run")
}

/// Runs a body that panics, and returns its message.
async fn panicking(fixture: &Fixture) -> String {
    let body = |_| async { std::panic::panic_any("out of paper") as Result<Receipt, PayError> };
    let call = fixture.pay().run(body);
    let panic = tokio::task::unconstrained(futures_catch(call))
        .await
        .unwrap_err();
    panic
        .downcast_ref::<&str>()
        .copied()
        .unwrap_or_default()
        .to_owned()
}

/// Awaits a future and catches its panic.
async fn futures_catch<F: Future>(future: F) -> std::thread::Result<F::Output> {
    let mut future = Box::pin(future);
    std::future::poll_fn(|cx| {
        match std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => std::task::Poll::Ready(Err(panic)),
        }
    })
    .await
}

async fn a_panic_gives_the_key_back_and_goes_on(fixture: Fixture) {
    assert_eq!(panicking(&fixture).await, "out of paper");
    assert_eq!(
        fixture.events.all(),
        ["claimed 1", "panicked", "released and counted"]
    );
    let answer = fixture.pay().run(|cx| async move {
        assert_eq!(cx.attempt(), 2, "the attempt that panicked counts");
        Ok::<_, PayError>(Receipt { run: 2 })
    });
    assert_eq!(answer.await, Ok(Receipt { run: 2 }));
}

async fn panics_use_attempts_up(fixture: Fixture) {
    for _ in 0..5 {
        panicking(&fixture).await;
    }
    let error = fixture
        .pay()
        .run(|_| async { never::<Receipt>() })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Exhausted { attempts: 5 });
}

/// Starts a body and drops it half-way.
async fn dropped(fixture: &Fixture, runs: &Runs) {
    let gate = Arc::new(Semaphore::new(0));
    let started = Arc::clone(&gate);
    let body = |_| async move {
        let _ = runs.start();
        started.add_permits(1);
        std::future::pending::<Result<Receipt, PayError>>().await
    };
    tokio::select! {
        _ = fixture.pay().run(body) => unreachable!("the body does not end"),
        permit = gate.acquire() => permit.unwrap().forget(),
    }
}

async fn a_dropped_body_holds_its_key_until_the_lease_is_over(fixture: Fixture) {
    let runs = Runs::default();
    dropped(&fixture, &runs).await;
    assert_eq!(fixture.events.count("dropped"), 1);
    let call = || fixture.pay().on_running(OnRunning::Reject);
    fixture.pass_in_store(Duration::from_secs(28));
    let error = call()
        .run(|_| async { never::<Receipt>() })
        .await
        .unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Running { .. }),
        "{error:?}"
    );
    fixture.pass_in_store(Duration::from_secs(2));
    let answer = call().run(|cx| async move {
        assert_eq!(cx.attempt(), 2);
        Ok::<_, PayError>(Receipt { run: 2 })
    });
    assert_eq!(answer.await, Ok(Receipt { run: 2 }));
}

async fn a_dropped_body_is_no_longer_renewed(fixture: Fixture) {
    dropped(&fixture, &Runs::default()).await;
    fixture.clock.advance(Duration::from_mins(1));
    // A second body is renewed, which shows that the engine's thread has been awake.
    let gate = Arc::new(Semaphore::new(0));
    let end = Arc::clone(&gate);
    let other = tokio::spawn(
        fixture
            .engine
            .operation("other")
            .key(&1)
            .run(|_| async move {
                end.acquire().await.unwrap().forget();
                Ok::<_, PayError>(Receipt { run: 1 })
            }),
    );
    fixture.events.wait_for("claimed", 2).await;
    fixture.clock.sleeper_within(Duration::from_secs(10)).await;
    fixture.clock.advance(Duration::from_secs(10));
    fixture.events.wait_for("renewed", 1).await;
    gate.add_permits(1);
    other.await.unwrap().unwrap();
    assert_eq!(
        fixture.events.count("renewed"),
        1,
        "only the second body's lease"
    );
    assert_eq!(fixture.events.count("lease lost"), 0);
}

async fn a_late_success_heals_an_exhausted_key(fixture: Fixture) {
    let max = std::num::NonZeroU16::new(2);
    let fixture = fixture.with(|engine| engine.max_attempts(max));
    dropped(&fixture, &Runs::default()).await;
    fixture.pass_in_store(Duration::from_secs(30));
    let gate = Arc::new(Semaphore::new(0));
    let end = Arc::clone(&gate);
    let last = tokio::spawn(fixture.pay().run(|_| async move {
        end.acquire().await.unwrap().forget();
        Ok::<_, PayError>(Receipt { run: 2 })
    }));
    fixture.events.wait_for("claimed", 2).await;
    // The process of the last attempt is paused for longer than its lease.
    fixture.pass_in_store(Duration::from_secs(31));
    let call = fixture.pay().on_running(OnRunning::Reject);
    let error = call
        .run(|_| async { never::<Receipt>() })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Exhausted { attempts: 2 });
    gate.add_permits(1);
    assert_eq!(last.await.unwrap(), Ok(Receipt { run: 2 }));
    let healed = fixture.pay().run(|_| async { never::<Receipt>() }).await;
    assert_eq!(healed, Ok(Receipt { run: 2 }));
}

async fn one_attempt_means_at_most_once(fixture: Fixture) {
    let runs = Runs::default();
    let fixture = fixture.with(|engine| engine.max_attempts(std::num::NonZeroU16::new(1)));
    dropped(&fixture, &runs).await;
    fixture.pass_in_store(Duration::from_secs(31));
    let error = fixture
        .pay()
        .run(|_| async { never::<Receipt>() })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Exhausted { attempts: 1 });
    assert_eq!(runs.count(), 1);
}
