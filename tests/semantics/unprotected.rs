//! Bodies that run without protection, as configured: on an outage, or switched off.

use std::process::Command;

use crate::prelude::*;
use crate::rows::Row;

on_every_store![
    an_outage_runs_the_body_where_engine_or_operation_say_so,
    a_body_without_protection_stores_nothing_and_is_not_replayed,
    a_body_without_protection_knows_that_it_has_none,
    a_body_without_protection_may_finish_fail_and_panic,
    a_claim_by_hand_is_never_without_protection,
    a_refusal_by_the_store_is_no_outage,
    an_outage_after_the_claim_is_none,
    an_outage_while_reconciling_runs_nothing,
    all_callers_of_an_unavailable_store_run_without_it,
    a_store_that_is_full_busy_or_refuses_is_no_outage,
    a_queue_in_front_of_a_store_that_is_gone_is_an_outage,
    a_store_is_out_of_reach_if_it_has_replied_to_nothing_for_long,
    a_server_that_is_not_there_is_an_outage_while_others_reply,
];

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
        for fault in [Fault::Lost, Fault::Hangs] {
            let events = idem_tests::events::Events::default();
            fixture = fixture.with(|engine| {
                let engine = engine.observer(events.clone());
                match of_engine {
                    Some(it) => engine.on_outage(it),
                    None => engine,
                }
            });
            fixture.fail(StoreOperation::Claim, [fault; 10_000]);
            let (before, call) = (claims(&fixture), fixture.pay());
            let call = match of_operation {
                Some(it) => call.on_outage(it),
                None => call,
            };
            let call = tokio::spawn(async move { paid(call, &Runs::default()).await });
            if fault == Fault::Hangs {
                // For as long as a claim may take.
                sent(&fixture, StoreOperation::Claim, before + 1).await;
                fixture.clock.advance(Duration::from_secs(2));
            }
            let answer = fixture.finished(call).await;
            let row = format!("{of_engine:?}, {of_operation:?}, {fault:?}");
            if runs {
                assert_eq!(answer, receipt(1), "{row}");
            } else {
                let error = refusal(answer);
                assert_eq!(error.kind(), &ErrorKind::StoreUnavailable, "{row}");
            }
            assert_eq!(events.count("unprotected: "), usize::from(runs), "{row}");
            assert_eq!(events.count("claimed"), 0, "{row}");
            let told = events.all().concat();
            let has_reason = told.contains("an injected fault");
            assert!(
                !runs || fault == Fault::Hangs || has_reason,
                "{row}: {told}"
            );
            fixture.store.heal();
        }
    }
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

async fn a_body_without_protection_may_finish_fail_and_panic(fixture: Fixture) {
    cut_off(&fixture);
    let finished =
        runs_bare(fixture.pay()).finish(|cx| async move { receipt(cx.attempt().into()) });
    assert_eq!(in_time(&fixture, finished).await, receipt(0));
    let down = runs_bare(fixture.pay()).run(|_| async { Err(PayError::Down) as Answer });
    assert_eq!(in_time(&fixture, down).await, Err(PayError::Down));
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

async fn an_outage_after_the_claim_is_none(fixture: Fixture) {
    fixture.fail(StoreOperation::Complete, [Fault::Refused]);
    let call = runs_bare(fixture.pay()).run(|cx| async move { receipt(cx.attempt().into()) });
    assert_eq!(call.await, receipt(1));
    assert_eq!(fixture.events.count("unprotected"), 0);
    comes_to_rest(&fixture).await;
    assert_eq!(answered(fixture.pay_far()).await, receipt(1));
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

/// The effects of a flood, and a store's refusals, switch no protection off.
async fn a_store_that_is_full_busy_or_refuses_is_no_outage(fixture: Fixture) {
    let faults = [Fault::Full, Fault::Overloaded, Fault::Busy, Fault::Refused];
    for (key, fault) in (0..).zip(faults) {
        fixture.fail(StoreOperation::Claim, [fault; 10_000]);
        let call = runs_bare(fixture.engine.operation("pay").key(&(key, "a full store")));
        let error = refusal(in_time(&fixture, answered(call)).await);
        assert_eq!(error.kind(), &ErrorKind::StoreUnavailable, "{fault:?}");
        fixture.store.heal();
    }
    assert_eq!(fixture.events.count("unprotected"), 0);
}

/// Load does not turn a store that is gone into one that is busy.
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

/// A claim hangs until its deadline is over; this long before, the store replies to another call.
async fn hangs_beside(fixture: &Fixture, quiet: Duration) -> Answer {
    let deadline = Duration::from_secs(2);
    let asked = claims(fixture);
    fixture.fail(StoreOperation::Claim, [Fault::Hangs]);
    let call = runs_bare(fixture.pay());
    let call = tokio::spawn(async move { paid(call, &Runs::default()).await });
    sent(fixture, StoreOperation::Claim, asked + 1).await;
    fixture.clock.sleeper_within(deadline).await;
    fixture.clock.advance(deadline.saturating_sub(quiet));
    let other = fixture.engine.operation("pay").key(&"beside");
    assert_eq!(paid(other, &Runs::default()).await, receipt(1));
    fixture.clock.advance(quiet);
    call.await.unwrap()
}

async fn a_store_is_out_of_reach_if_it_has_replied_to_nothing_for_long(mut fixture: Fixture) {
    for (quiet, is_out_of_reach) in [(900, false), (1_100, true)] {
        let _row = Row::new(&fixture, quiet);
        let unprotected = fixture.events.count("unprotected");
        let answer = hangs_beside(&fixture, Duration::from_millis(quiet)).await;
        if is_out_of_reach {
            assert_eq!(answer, receipt(1));
        } else {
            assert_refusal(answer, &ErrorKind::StoreUnavailable);
        }
        let told = fixture.events.count("unprotected") - unprotected;
        assert_eq!(told, usize::from(is_out_of_reach));
        fixture = fixture.with(|engine| engine);
    }
}

/// As one node of a cluster.
async fn a_server_that_is_not_there_is_an_outage_while_others_reply(fixture: Fixture) {
    for run in 1..=3 {
        let other = fixture.engine.operation("pay").key(&(run, "elsewhere"));
        assert_eq!(paid(other, &Runs::default()).await, receipt(1));
        fixture.fail(StoreOperation::Claim, [Fault::Unreachable; 10_000]);
        let answer = bare(&fixture, runs_bare(fixture.pay()), &Runs::default()).await;
        assert_eq!(answer, receipt(1));
        fixture.store.heal();
    }
    assert_eq!(fixture.events.count("unprotected"), 3);
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

/// Two calls of one key, both of which run.
async fn runs_twice(engine: &Engine) {
    let runs = Runs::default();
    for run in 1..=2 {
        let call = engine.operation("pay").key(&7);
        let body = |cx: Context| async move {
            assert_eq!(cx.attempt(), 0);
            assert!(cx.fence().await.is_err());
            Ok(())
        };
        let seen: Result<(), PayError> = call.run(body).await;
        assert_eq!(seen, Ok(()));
        assert_eq!(
            paid(engine.operation("pay").key(&7), &runs).await,
            receipt(run)
        );
    }
}

#[tokio::test]
async fn a_disabled_engine_runs_every_body() {
    let engine = Engine::disabled();
    runs_twice(&engine).await;
    let begun = engine.operation("pay").key(&7).begin().await;
    assert_eq!(begun.unwrap_err().kind(), &ErrorKind::NoEngine);
    let inside = engine.operation("pay").key(&7).run(|_| async {
        let error = refusal(answered(engine.operation("pay").key(&7)).await);
        assert_eq!(error.kind(), &ErrorKind::Reentered);
        receipt(1)
    });
    assert_eq!(inside.await, receipt(1));
    let rest = engine.shutdown(Duration::from_secs(20)).await;
    assert_eq!(rest, Ok(()));
    let error = refusal(answered(engine.operation("pay").key(&7)).await);
    assert_eq!(error.kind(), &ErrorKind::ShuttingDown);
}

#[tokio::test]
async fn a_disabled_engine_notifies_an_observer_of_ones_own() {
    let events = idem_tests::events::Events::default();
    let builder = Engine::builder(MemoryStore::new()).observer(events.clone());
    let engine = builder.disabled().build().unwrap();
    runs_twice(&engine).await;
    assert_eq!(events.count("unprotected"), 4);
    assert_eq!(events.count("warning: DISABLED"), 1);
}

#[tokio::test]
async fn no_environment_variable_disables_an_engine() {
    const NAME: &str = "unprotected::no_environment_variable_disables_an_engine";
    const VARIABLE: &str = "IDEM_DISABLED";
    let (fixture, runs) = (Fixture::memory(), Runs::default());
    assert_eq!(paid(fixture.pay(), &runs).await, receipt(1));
    assert_eq!(answered(fixture.pay()).await, receipt(1));
    if std::env::var_os(VARIABLE).is_some() {
        // This is the test, started once more by itself.
        assert!(Engine::current().is_none(), "none is installed");
        return;
    }
    for value in ["1", "true", "unprotected"] {
        let program = std::env::current_exe().unwrap();
        let mut child = Command::new(program);
        let child = child.args(["--exact", NAME]).env(VARIABLE, value);
        let output = child.output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "with {value:?}: {told}");
        assert!(told.contains("1 passed"), "with {value:?}: {told}");
    }
}
