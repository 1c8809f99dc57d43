//! The orderly end of an engine: running calls may finish, with all calls that they make, and nothing new
//! begins.

use idem_runtime::ShutdownError;

use crate::prelude::*;

on_every_store! {
    an_idle_engine_ends_at_once, new_calls_are_refused_for_good,
    a_running_body_is_waited_for_by_every_shutdown, a_body_that_outlived_its_caller_is_waited_for,
    a_body_without_protection_is_waited_for, a_hook_is_waited_for,
    a_claim_in_ones_hand_is_waited_for, a_background_completion_is_waited_for,
    a_shutdown_waits_for_remote_followers, a_follower_may_still_run_during_a_shutdown,
    inner_calls_of_a_running_body_still_work, calls_unfinished_at_the_deadline_are_counted,
}

const HOUR: Duration = Duration::from_hours(1);

/// Panics if the shutdown is over already.
macro_rules! assert_waits {
    ($shutdown:expr) => {
        others().await;
        assert_eq!(poll_once($shutdown.as_mut()).await, None);
    };
}

async fn is_waited_for<T>(fixture: &Fixture, ends: impl Future<Output = T>) -> T {
    let mut shutdown = pin!(fixture.engine.shutdown(HOUR));
    assert_waits!(shutdown);
    let output = ends.await;
    assert_eq!(shutdown.await, Ok(()));
    output
}

async fn an_idle_engine_ends_at_once(fixture: Fixture) {
    assert_eq!(fixture.engine.shutdown(Duration::ZERO).await, Ok(()));
    let used = fixture.with(|engine| engine);
    assert_eq!(paid(used.pay(), &Runs::default()).await, receipt(1));
    assert_eq!(used.engine.shutdown(Duration::ZERO).await, Ok(()));
    assert_eq!(used.engine.shutdown(HOUR).await, Ok(()), "again");
}

async fn new_calls_are_refused_for_good(fixture: Fixture) {
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    comes_to_rest(&fixture).await;
    for key in [7, 8] {
        let call = fixture.engine.operation("pay").key(&key);
        let error = refusal(answered(call).await);
        assert_eq!(error.kind(), &ErrorKind::ShuttingDown);
        assert!(error.is_retryable(), "another instance can answer");
    }
    let begun = fixture.engine.operation("pay").key(&8).begin().await;
    assert_eq!(*begun.unwrap_err().kind(), ErrorKind::ShuttingDown);
    let unprotected = fixture.pay().on_outage(OnOutage::Run);
    assert_refusal(answered(unprotected).await, &ErrorKind::ShuttingDown);
}

async fn a_running_body_is_waited_for_by_every_shutdown(fixture: Fixture) {
    let body = Body::start(fixture.pay(), receipt(7)).await;
    {
        let mut dropped = pin!(fixture.engine.shutdown(HOUR));
        assert_waits!(dropped);
    }
    let call = fixture.engine.operation("pay").key(&8);
    assert_refusal(answered(call).await, &ErrorKind::ShuttingDown);
    let answer = is_waited_for(&fixture, body.end()).await;
    assert_eq!(answer, receipt(7));
    assert_eq!(answered(fixture.pay_far()).await, receipt(7));
}

async fn a_body_that_outlived_its_caller_is_waited_for(fixture: Fixture) {
    let body = Body::start_finished(fixture.pay(), receipt(7)).await;
    let gate = body.leave().await;
    is_waited_for(&fixture, async { gate.add_permits(1) }).await;
    assert_eq!(answered(fixture.pay_far()).await, receipt(7));
}

async fn a_body_without_protection_is_waited_for(fixture: Fixture) {
    fixture.fail(StoreOperation::Claim, [Fault::Lost; 10_000]);
    let starting = Body::start(fixture.pay().on_outage(OnOutage::Run), receipt(7));
    let body = fixture.finished(tokio::spawn(starting)).await;
    let mut shutdown = pin!(fixture.engine.shutdown(Duration::from_secs(1)));
    assert_waits!(shutdown);
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(shutdown.await.unwrap_err().running, 1);
    let answer = is_waited_for(&fixture, body.end()).await;
    assert_eq!(answer, receipt(7));
}

async fn a_hook_is_waited_for(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let asking = Asking::start(&fixture, fixture.pay()).await;
    let answer = is_waited_for(&fixture, asking.end()).await;
    assert_eq!(answer, receipt(7));
}

async fn a_claim_in_ones_hand_is_waited_for(fixture: Fixture) {
    let claim = claimed(fixture.pay()).await;
    is_waited_for(&fixture, claim.release()).await;
}

async fn a_background_completion_is_waited_for(fixture: Fixture) {
    fixture.fail(StoreOperation::Complete, [Fault::Hangs, Fault::ReplyHeld]);
    let mut call = Box::pin(fixture.pay().run(|_| async { receipt(7) }));
    while fixture.count(StoreOperation::Complete) == 0 {
        assert_eq!(poll_once(call.as_mut()).await, None);
        tokio::task::yield_now().await;
    }
    drop(call);
    is_waited_for(&fixture, async { fixture.store.deliver() }).await;
    assert_eq!(answered(fixture.pay_far()).await, receipt(7));
}

async fn a_shutdown_waits_for_remote_followers(fixture: Fixture) {
    let elsewhere = Body::start(fixture.pay_far(), receipt(7)).await;
    let patient = OnRunning::Wait(HOUR);
    let mut waits = Box::pin(answered(fixture.pay().on_running(patient)));
    assert!(poll_once(waits.as_mut()).await.is_none());
    let mut shutdown = pin!(fixture.engine.shutdown(HOUR));
    assert_waits!(shutdown);
    // No other event notifies the shutdown.
    drop(waits);
    let over = patiently("the shutdown is notified of the dropped call", shutdown).await;
    assert_eq!(over, Ok(()));
    assert_eq!(elsewhere.end().await, receipt(7));
}

async fn a_follower_may_still_run_during_a_shutdown(fixture: Fixture) {
    let body = Body::start(fixture.pay(), Err(PayError::Down)).await;
    let runs = Runs::default();
    let waits = tokio::spawn({
        let (call, runs) = (fixture.pay(), runs.clone());
        async move { paid(call, &runs).await }
    });
    others().await;
    let mut shutdown = pin!(fixture.engine.shutdown(HOUR));
    assert_waits!(shutdown);
    assert_eq!(body.end().await, Err(PayError::Down));
    assert_eq!(waits.await.unwrap(), receipt(1));
    assert_eq!(shutdown.await, Ok(()));
}

async fn inner_calls_of_a_running_body_still_work(fixture: Fixture) {
    let (gate, begun) = (Semaphore::new(0), Semaphore::new(0));
    let body = fixture.pay().run(|_| async {
        begun.add_permits(1);
        gate.acquire().await.unwrap().forget();
        let inner = |key: u32| fixture.engine.operation("inner").key(&key);
        inner(1).run(|_| async { receipt(7) }).await?;
        inner(2).finish(|_| async { receipt(8) }).await?;
        timed_out(inner(3)).await;
        reconciled(inner(3), LANDED, &Counts::default()).await
    });
    let mut body = pin!(body);
    tokio::select! {
        _ = &mut body => unreachable!("it waits"),
        begun = begun.acquire() => begun.unwrap().forget(),
    }
    let mut shutdown = pin!(fixture.engine.shutdown(HOUR));
    assert_waits!(shutdown);
    gate.add_permits(1);
    assert_eq!(body.await, receipt(7));
    assert_eq!(shutdown.await, Ok(()));
}

async fn calls_unfinished_at_the_deadline_are_counted(fixture: Fixture) {
    let running = Body::start(fixture.pay(), receipt(7)).await;
    let patient = OnRunning::Wait(HOUR);
    let waits = [(); 2].map(|()| tokio::spawn(answered(fixture.pay().on_running(patient))));
    let faults = [Fault::Hangs, Fault::ReplyHeld];
    fixture.fail(StoreOperation::Complete, faults);
    let other = fixture.engine.operation("pay").key(&8);
    let mut call = Box::pin(other.run(|_| async { receipt(8) }));
    while fixture.count(StoreOperation::Complete) == 0 {
        assert_eq!(poll_once(call.as_mut()).await, None);
        tokio::task::yield_now().await;
    }
    drop(call);
    sent(&fixture, StoreOperation::Complete, 2).await;
    let mut shutdown = pin!(fixture.engine.shutdown(Duration::from_secs(1)));
    assert_waits!(shutdown);
    fixture.clock.advance(Duration::from_secs(1));
    let unfinished: ShutdownError = shutdown.await.unwrap_err();
    assert_eq!(unfinished.waiting, 2);
    // The claim whose outcome is being stored is held as well.
    assert_eq!((unfinished.running, unfinished.storing), (2, 1));
    assert_eq!(running.end().await, receipt(7));
    for waits in waits {
        assert_eq!(waits.await.unwrap(), receipt(7), "what is late goes on");
    }
    fixture.store.deliver();
    comes_to_rest(&fixture).await;
}
