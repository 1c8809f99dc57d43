//! Bodies that do not end in a result: panics and dropped futures.

use crate::prelude::*;

on_every_store![
    a_panic_gives_the_key_back_and_goes_on,
    panics_use_attempts_up,
    a_dropped_body_holds_its_key_until_the_lease_is_over,
    a_dropped_body_is_no_longer_renewed,
    a_late_success_heals_an_exhausted_key,
    one_attempt_means_at_most_once,
];

async fn a_panic_gives_the_key_back_and_goes_on(fixture: Fixture) {
    panicked(fixture.pay()).await;
    assert_eq!(
        fixture.events.all(),
        ["claimed 1", "panicked", "released and counted"]
    );
    let answer = fixture.pay().run(|cx| async move {
        assert_eq!(cx.attempt(), 2, "the attempt that panicked counts");
        receipt(2)
    });
    assert_eq!(answer.await, receipt(2));
}

async fn panics_use_attempts_up(fixture: Fixture) {
    for _ in 0..5 {
        panicked(fixture.pay()).await;
    }
    let error = answered(fixture.pay()).await.unwrap_err();
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
    assert_running(&refusal(answered(call()).await));
    fixture.pass_in_store(Duration::from_secs(2));
    let answer = call().run(|cx| async move {
        assert_eq!(cx.attempt(), 2);
        receipt(2)
    });
    assert_eq!(answer.await, receipt(2));
}

async fn a_dropped_body_is_no_longer_renewed(fixture: Fixture) {
    dropped(&fixture, &Runs::default()).await;
    fixture.clock.advance(Duration::from_mins(1));
    // A second body is renewed, which shows that the engine's thread has been awake.
    let other = fixture.engine.operation("other").key(&1);
    let other = Body::start(other, receipt(1)).await;
    wakes(&fixture, Duration::from_secs(10)).await;
    fixture.events.wait_for("renewed", 1).await;
    other.end().await.unwrap();
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
    let last = Body::start(fixture.pay(), receipt(2)).await;
    // The process of the last attempt is paused for longer than its lease.
    fixture.pass_in_store(Duration::from_secs(31));
    let call = fixture.pay().on_running(OnRunning::Reject);
    let error = answered(call).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Exhausted { attempts: 2 });
    assert_eq!(last.end().await, receipt(2));
    let healed = answered(fixture.pay()).await;
    assert_eq!(healed, receipt(2));
}

async fn one_attempt_means_at_most_once(fixture: Fixture) {
    let runs = Runs::default();
    let fixture = fixture.with(|engine| engine.max_attempts(std::num::NonZeroU16::new(1)));
    dropped(&fixture, &runs).await;
    fixture.pass_in_store(Duration::from_secs(31));
    let error = answered(fixture.pay()).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Exhausted { attempts: 1 });
    assert_eq!(runs.count(), 1);
}
