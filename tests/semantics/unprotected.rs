//! Bodies that run without protection, as configured: on an outage, or switched off.

use std::num::NonZeroU16;

use crate::prelude::*;

on_every_store! {
    an_outage_runs_the_body_where_engine_or_operation_say_so,
    a_body_without_protection_stores_nothing_and_is_not_replayed,
    a_body_without_protection_knows_that_it_has_none,
    a_body_without_protection_may_finish_panic_and_be_dropped,
    a_claim_by_hand_is_never_without_protection, a_refusal_by_the_store_is_no_outage,
    an_outage_while_reconciling_runs_nothing, a_body_that_may_start_once_does_not_start_in_an_outage, all_callers_of_an_unavailable_store_run_without_it,
    a_queue_in_front_of_a_store_that_is_gone_is_an_outage,
}

fn runs_bare(call: Pay) -> Pay {
    call.on_outage(OnOutage::Run)
}

/// No claim reaches the store any more.
fn cut_off(fixture: &Fixture) {
    fixture.fail(StoreOperation::Claim, [Fault::Lost; 10_000]);
}

/// The outcome of a call while time passes.
async fn in_time<T: Send + 'static>(
    fixture: &Fixture,
    call: impl Future<Output = T> + Send + 'static,
) -> T {
    fixture.finished(tokio::spawn(call)).await
}

/// A call that runs without protection; `runs` counts.
async fn bare(fixture: &Fixture, call: Pay, runs: &Runs) -> Answer {
    let runs = runs.clone();
    in_time(fixture, async move { paid(call, &runs).await }).await
}

async fn an_outage_runs_the_body_where_engine_or_operation_say_so(mut fixture: Fixture) {
    for (of_engine, of_operation, runs) in [
        (None, None, false),
        (None, Some(OnOutage::Run), true),
        (Some(OnOutage::Run), None, true),
        (Some(OnOutage::Run), Some(OnOutage::Fail), false),
    ] {
        let events = idem_tests::events::Events::default();
        fixture = fixture.with(|engine| {
            let engine = engine.observer(events.clone());
            match of_engine {
                Some(it) => engine.on_outage(it),
                None => engine,
            }
        });
        cut_off(&fixture);
        let call = match of_operation {
            Some(it) => fixture.pay().on_outage(it),
            None => fixture.pay(),
        };
        let answer = bare(&fixture, call, &Runs::default()).await;
        let row = format!("{of_engine:?}, {of_operation:?}");
        if runs {
            assert_eq!(answer, receipt(1), "{row}");
            assert_eq!(events.count("unprotected: "), 1, "{row}");
            let told = events.all().concat();
            assert!(told.contains("an injected fault"), "{row}: {told}");
        } else {
            let error = refusal(answer);
            assert_eq!(error.kind(), &ErrorKind::StoreUnavailable, "{row}");
            assert_eq!(events.count("unprotected: "), 0, "{row}");
        }
        assert_eq!(events.count("claimed"), 0, "{row}");
    }
}

/// The engine runs in an outage; the operation may start once, and has started.
async fn a_body_that_may_start_once_does_not_start_in_an_outage(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.on_outage(OnOutage::Run));
    let once = || fixture.pay().max_attempts(NonZeroU16::new(1));
    let runs = Runs::default();
    let down = |_| {
        runs.start();
        async { Err(PayError::Down) as Answer }
    };
    once().run(down).await.unwrap_err();
    cut_off(&fixture);
    let error = refusal(bare(&fixture, once(), &runs).await);
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
    assert_eq!(runs.count(), 1);
    let both = refusal(bare(&fixture, runs_bare(once()), &runs).await);
    assert_eq!(both.kind(), &ErrorKind::InvalidPolicy);
    let twice = fixture.pay().max_attempts(NonZeroU16::new(2));
    assert_eq!(bare(&fixture, twice, &runs).await, receipt(2));
    let fixture = fixture.with(|engine| engine.max_attempts(NonZeroU16::new(1)));
    let both = refusal(bare(&fixture, runs_bare(fixture.pay()), &runs).await);
    assert_eq!(both.kind(), &ErrorKind::InvalidPolicy);
}

async fn a_body_without_protection_stores_nothing_and_is_not_replayed(fixture: Fixture) {
    cut_off(&fixture);
    let runs = Runs::default();
    for run in 1..=3 {
        let answer = bare(&fixture, runs_bare(fixture.pay()), &runs).await;
        assert_eq!(answer, receipt(run));
    }
    comes_to_rest(&fixture).await;
    assert_eq!(fixture.count(StoreOperation::Complete), 0);
    assert!(fixture.pay_far().entry().await.unwrap().is_none());
}

async fn a_body_without_protection_knows_that_it_has_none(fixture: Fixture) {
    cut_off(&fixture);
    let key = *fixture.key().digest();
    let call = runs_bare(fixture.pay()).run(move |cx: Context| async move {
        assert_eq!((cx.attempt(), *cx.key()), (0, key));
        let error = cx.fence().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
        assert_eq!(cx.lease_remaining(), Duration::ZERO);
        // The documented `timeout_at(cx.deadline(), …)` must not fail at once.
        assert!(cx.deadline() > std::time::Instant::now());
        assert_eq!(cx.derive_key("bank").len(), 43);
        let lost = std::pin::pin!(cx.lease_lost());
        assert!(poll_once(lost).await.is_none());
        assert_eq!(idem_runtime::context().attempt(), 0);
        receipt(1)
    });
    assert_eq!(in_time(&fixture, call).await, receipt(1));
}

async fn a_body_without_protection_may_finish_panic_and_be_dropped(fixture: Fixture) {
    cut_off(&fixture);
    let finished =
        runs_bare(fixture.pay()).finish(|cx| async move { receipt(cx.attempt().into()) });
    assert_eq!(in_time(&fixture, finished).await, receipt(0));
    let panics = |_| async { std::panic::panic_any("out of paper") as Answer };
    let panicked = caught(runs_bare(fixture.pay()).run(panics));
    in_time(&fixture, panicked).await.unwrap_err();
    let starting = Body::start(runs_bare(fixture.pay()), receipt(1));
    let dropped = in_time(&fixture, starting).await;
    dropped.drop_caller().await;
    comes_to_rest(&fixture).await;
}

async fn a_claim_by_hand_is_never_without_protection(fixture: Fixture) {
    cut_off(&fixture);
    let begun = in_time(&fixture, runs_bare(fixture.pay()).begin()).await;
    assert_eq!(begun.unwrap_err().kind(), &ErrorKind::StoreUnavailable);
    assert_eq!(fixture.events.count("unprotected"), 0);
}

async fn a_refusal_by_the_store_is_no_outage(fixture: Fixture) {
    let call = || runs_bare(fixture.pay()).on_running(OnRunning::Reject);
    let body = Body::start(fixture.pay_far().fingerprint(&"ten"), receipt(7)).await;
    assert_running(&refusal(answered(call()).await));
    let other = refusal(answered(call().fingerprint(&"eleven")).await);
    assert_eq!(other.kind(), &ErrorKind::Mismatch);
    assert_eq!(body.end().await, receipt(7));
    assert_eq!(answered(call()).await, receipt(7));
    fixture.plant(b"no record of ours");
    let error = refusal(answered(call()).await);
    assert_eq!(error.kind(), &ErrorKind::UnknownRecord);
    assert_eq!(fixture.events.count("unprotected"), 0);
}

async fn an_outage_while_reconciling_runs_nothing(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let faults = [Fault::None]
        .into_iter()
        .chain([Fault::Unreachable; 10_000]);
    fixture.fail(StoreOperation::Claim, faults);
    let hook = |_| async { Says::NotLanded };
    let call = runs_bare(fixture.pay()).run_reconciled(hook, |_| async { never() });
    let error = refusal(in_time(&fixture, call).await);
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable);
    assert_eq!(fixture.events.count("unprotected"), 0);
}

/// Load does not turn an unreachable store into a busy one.
async fn a_queue_in_front_of_a_store_that_is_gone_is_an_outage(fixture: Fixture) {
    fixture.fail(StoreOperation::Claim, [Fault::Overloaded; 10_000]);
    assert_refusal(
        in_time(&fixture, answered(runs_bare(fixture.pay()))).await,
        &ErrorKind::StoreUnavailable,
    );
    // Half of the claim's deadline without a reply.
    fixture.clock.advance(Duration::from_millis(1_100));
    for run in 1..=2 {
        let runs = Runs::default();
        let answer = bare(&fixture, runs_bare(fixture.pay()), &runs).await;
        assert_eq!(answer, receipt(1));
        assert_eq!(fixture.events.count("unprotected"), run);
    }
    fixture.store.heal();
    let other = fixture.engine.operation("pay").key(&"beside");
    assert_eq!(paid(other, &Runs::default()).await, receipt(1));
    fixture.fail(StoreOperation::Claim, [Fault::Overloaded]);
    assert_refusal(
        in_time(&fixture, answered(runs_bare(fixture.pay()))).await,
        &ErrorKind::StoreUnavailable,
    );
}

async fn all_callers_of_an_unavailable_store_run_without_it(fixture: Fixture) {
    fixture.fail(StoreOperation::Claim, [Fault::Hangs]);
    let runs = Runs::default();
    let tasks = duplicates(5, || runs_bare(fixture.pay()), &runs);
    others().await;
    fixture.clock.advance(Duration::from_secs(2));
    let answers = tasks.join_all().await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(runs.count(), 5);
    assert_eq!(fixture.events.count("unprotected"), 5);
    assert_eq!(claims(&fixture), 1, "they asked together");
}

#[tokio::test]
async fn a_disabled_engine_runs_every_body_and_tells_its_observer() {
    let events = idem_tests::events::Events::default();
    let builder = Engine::builder(MemoryStore::new()).observer(events.clone());
    let engine = builder.disabled().build().unwrap();
    let runs = Runs::default();
    for run in 1..=2 {
        let answer = paid(engine.operation("pay").key(&7), &runs).await;
        assert_eq!(answer, receipt(run));
    }
    assert_eq!(events.count("unprotected"), 2);
    assert_eq!(events.count("warning: DISABLED"), 1);
    let begun = engine.operation("pay").key(&7).begin().await;
    assert_eq!(begun.unwrap_err().kind(), &ErrorKind::NoEngine);
    let rest = engine.shutdown(Duration::from_secs(20)).await;
    assert_eq!(rest, Ok(()));
    let late = answered(engine.operation("pay").key(&7)).await;
    assert_refusal(late, &ErrorKind::ShuttingDown);
}
