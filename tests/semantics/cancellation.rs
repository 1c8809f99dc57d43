//! A future that is dropped, wherever it stands: nothing that finished is lost or freed, and the key
//! is treated as the operation says.

use std::sync::PoisonError;

use idem_runtime::OnPanic;
use idem_tests::events::Events;
use idem_tests::faulty::Faulty;

use crate::prelude::*;

on_every_store![
    dropped_at_every_poll_and_held,
    dropped_at_every_poll_and_released,
    dropped_at_every_poll_and_unknown,
    dropped_at_every_poll_with_a_system_error,
    dropped_at_every_poll_of_a_replay,
    a_panic_at_every_await_and_released,
    a_panic_at_every_await_and_unknown,
    a_released_body_is_gone_before_its_key_is_free,
    an_unknown_body_is_gone_before_its_key_is_unknown,
    a_body_that_lost_its_lease_is_gone_before_its_key_is_free,
    a_panicked_body_is_gone_before_its_key_is_free,
    a_body_dropped_while_its_answer_travels_is_stored,
    a_body_dropped_while_its_answer_is_lost_is_stored,
    a_body_dropped_while_its_release_travels_is_released,
    a_release_on_drop_that_is_lost_is_sent_again,
    a_release_on_drop_does_not_count,
    an_unknown_on_drop_counts_and_is_reported,
    a_hold_sends_nothing_to_the_store,
    a_body_that_never_began_counts_for_nothing,
];

/// How far a body came.
#[derive(Clone, Debug, Default)]
struct Steps(Arc<Mutex<Vec<&'static str>>>);

impl Steps {
    fn note(&self, step: &'static str) {
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        steps.push(step);
    }

    fn has(&self, step: &str) -> bool {
        let steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        steps.contains(&step)
    }
}

/// A body of three awaits that ends with this.
async fn body(steps: Steps, answer: Answer) -> Answer {
    steps.note("begun");
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    steps.note("ended");
    answer
}

/// More polls than any of these calls takes; the call that ends before shows that all were tried.
const POLLS: usize = 1_000;

/// Drops a call after 0, 1, 2, … polls, each time in a fixture with new engines and under a new key, and checks
/// the result when the engine has come to rest.
async fn dropped_at_every_poll(
    mut fixture: Fixture,
    call: impl Fn(Pay) -> Pay,
    answer: Answer,
    check: impl AsyncFn(&Fixture, &dyn Fn() -> Pay, &Steps),
) {
    for polls in 0..POLLS {
        let (steps, far) = (Steps::default(), fixture.far.clone());
        let pay = call(fixture.engine.operation("pay").key(&polls));
        let call = pay.run(|_| body(steps.clone(), answer.clone()));
        let ended = poll_times(call, polls).await;
        comes_to_rest(&fixture).await;
        let again = || {
            let call = far.operation("pay").key(&polls);
            call.on_running(OnRunning::Reject)
        };
        check(&fixture, &again, &steps).await;
        if let Some(output) = ended {
            assert_eq!(output, answer);
            assert!(polls > 3, "the body alone takes four polls");
            return;
        }
        fixture = fixture.with(|engine| engine);
    }
    unreachable!("the call never ends");
}

/// A key whose body never began is as if it had never been called. A claim on the wire when its caller goes may
/// arrive behind its own release; then it is over with its lease.
async fn is_free(fixture: &Fixture, again: &dyn Fn() -> Pay) {
    let runs = Runs::default();
    let answer = paid(again(), &runs).await;
    if answer != receipt(1) {
        assert_running(&refusal(answer));
        fixture.pass_in_store(LEASE_OVER);
        assert_eq!(paid(again(), &runs).await, receipt(1));
    }
}

async fn dropped_at_every_poll_and_held(fixture: Fixture) {
    let check = async |fixture: &Fixture, again: &dyn Fn() -> Pay, steps: &Steps| {
        if steps.has("ended") {
            assert_eq!(answered(again()).await, receipt(7));
        } else if steps.has("begun") {
            assert_running(&refusal(answered(again()).await));
            fixture.pass_in_store(LEASE_OVER);
            let second = again().run(|cx| async move { receipt(cx.attempt().into()) });
            assert_eq!(second.await, receipt(2), "the first attempt counts");
        } else {
            is_free(fixture, again).await;
        }
    };
    dropped_at_every_poll(fixture, |pay| pay, receipt(7), check).await;
}

async fn dropped_at_every_poll_and_released(fixture: Fixture) {
    let check = async |fixture: &Fixture, again: &dyn Fn() -> Pay, steps: &Steps| {
        if steps.has("ended") {
            assert_eq!(answered(again()).await, receipt(7));
        } else if steps.has("begun") {
            let second = again().run(|cx| async move { receipt(cx.attempt().into()) });
            assert_eq!(second.await, receipt(1), "it is free at once");
        } else {
            is_free(fixture, again).await;
        }
    };
    let call = |pay: Pay| pay.on_cancel(OnCancel::Release);
    dropped_at_every_poll(fixture, call, receipt(7), check).await;
}

async fn dropped_at_every_poll_and_unknown(fixture: Fixture) {
    let check = async |fixture: &Fixture, again: &dyn Fn() -> Pay, steps: &Steps| {
        if steps.has("ended") {
            assert_eq!(answered(again()).await, receipt(7));
        } else if steps.has("begun") {
            assert_unknown(&refusal(answered(again()).await));
        } else {
            is_free(fixture, again).await;
        }
    };
    let call = |pay: Pay| pay.on_cancel(OnCancel::Unknown);
    dropped_at_every_poll(fixture, call, receipt(7), check).await;
}

async fn dropped_at_every_poll_with_a_system_error(fixture: Fixture) {
    let check = async |fixture: &Fixture, again: &dyn Fn() -> Pay, steps: &Steps| {
        if steps.has("begun") && !steps.has("ended") {
            assert_unknown(&refusal(answered(again()).await));
        } else {
            // It never began, or has given its key back.
            is_free(fixture, again).await;
        }
    };
    let call = |pay: Pay| pay.on_cancel(OnCancel::Unknown);
    dropped_at_every_poll(fixture, call, Err(PayError::Down), check).await;
}

async fn dropped_at_every_poll_of_a_replay(mut fixture: Fixture) {
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    for polls in 0..POLLS {
        let ended = poll_times(answered(fixture.pay()), polls).await;
        comes_to_rest(&fixture).await;
        assert_eq!(answered(fixture.pay_far()).await, receipt(1));
        if ended.is_some() {
            return;
        }
        fixture = fixture.with(|engine| engine);
    }
    unreachable!("the call never ends");
}

/// Panics at the n-th of four places.
async fn panics_at(place: u32) -> Answer {
    for step in 0..4 {
        if step == place {
            std::panic::panic_any("out of paper")
        }
        tokio::task::yield_now().await;
    }
    receipt(7)
}

async fn a_panic_at_every_await_and_released(mut fixture: Fixture) {
    for place in 0..4 {
        let call = fixture.pay().run(|_| panics_at(place));
        caught(call).await.unwrap_err();
        comes_to_rest(&fixture).await;
        let counted = u16::try_from(place).unwrap() + 1;
        assert_eq!(stands(&fixture).await, (EntryState::Released, counted));
        fixture = fixture.with(|engine| engine);
    }
    let last = fixture.pay().run(|_| panics_at(4));
    assert_eq!(last.await, receipt(7));
}

async fn a_panic_at_every_await_and_unknown(mut fixture: Fixture) {
    for place in 0..4 {
        let call = fixture.engine.operation("pay").key(&place);
        let call = call.on_panic(OnPanic::Unknown).run(|_| panics_at(place));
        caught(call).await.unwrap_err();
        comes_to_rest(&fixture).await;
        let again = refusal(answered(fixture.far.operation("pay").key(&place)).await);
        assert_unknown(&again);
        assert!(again.to_string().contains("attempt 1 panicked"), "{again}");
        fixture = fixture.with(|engine| engine);
    }
}

/// A value held by a body: when dropped, it records how often the end of the body had been reported.
struct Holds {
    events: Events,
    store: Faulty,
    told: Arc<Mutex<Option<usize>>>,
}

impl Drop for Holds {
    fn drop(&mut self) {
        let stored =
            self.store.count(StoreOperation::Release) + self.store.count(StoreOperation::Complete);
        let told = stored + self.events.count("dropped") + self.events.count("panicked");
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
    }
}

/// Runs a body that holds such a value until it waits, or panics. Returns how often its end had been reported
/// when the value was dropped.
async fn told_before(fixture: &Fixture, call: Pay, panics: bool) -> usize {
    let told = Arc::new(Mutex::new(None));
    let holds = Holds {
        events: fixture.events.clone(),
        store: fixture.store.clone(),
        told: Arc::clone(&told),
    };
    let mut call = Box::pin(caught(call.run(|_| async move {
        let _holds = holds;
        tokio::task::yield_now().await;
        assert!(!panics, "out of paper");
        std::future::pending::<Answer>().await
    })));
    if panics {
        call.await.unwrap_err();
    } else {
        while fixture.events.count("claimed") == 0 {
            assert!(poll_once(call.as_mut()).await.is_none());
            tokio::task::yield_now().await;
        }
        drop(call);
    }
    let told = told.lock().unwrap_or_else(PoisonError::into_inner).take();
    told.expect("what the body held is gone")
}

async fn a_released_body_is_gone_before_its_key_is_free(fixture: Fixture) {
    let call = fixture.pay().on_cancel(OnCancel::Release);
    assert_eq!(told_before(&fixture, call, false).await, 0);
    fixture.events.wait_for("released", 1).await;
}

async fn an_unknown_body_is_gone_before_its_key_is_unknown(fixture: Fixture) {
    let call = fixture.pay().on_cancel(OnCancel::Unknown);
    assert_eq!(told_before(&fixture, call, false).await, 0);
    fixture.events.wait_for("completed unknown", 1).await;
}

async fn a_body_that_lost_its_lease_is_gone_before_its_key_is_free(fixture: Fixture) {
    fixture.fail(StoreOperation::Renew, [Fault::Hangs; 1_000]);
    let told = Arc::new(Mutex::new(None));
    let holds = Holds {
        events: fixture.events.clone(),
        store: fixture.store.clone(),
        told: Arc::clone(&told),
    };
    let call = fixture.pay().on_cancel(OnCancel::Release);
    let call = call.on_lease_lost(OnLeaseLost::Cancel);
    let call = tokio::spawn(call.run(|_| async move {
        let _holds = holds;
        std::future::pending::<Answer>().await
    }));
    fixture.events.wait_for("claimed", 1).await;
    fixture.clock.advance(LEASE_OVER);
    assert_running(&refusal(until(&fixture, call).await.unwrap()));
    let told = told.lock().unwrap_or_else(PoisonError::into_inner).take();
    assert_eq!(told, Some(0), "of the end of what still held something");
    assert_eq!(fixture.events.count("released"), 1);
}

async fn a_panicked_body_is_gone_before_its_key_is_free(fixture: Fixture) {
    assert_eq!(told_before(&fixture, fixture.pay(), true).await, 0);
    assert_eq!(fixture.events.count("released and counted"), 1);
}

/// Starts a call and drops it when it has sent this.
async fn dropped_after_sending(fixture: &Fixture, operation: StoreOperation, answer: Answer) {
    let call = fixture.pay().on_cancel(OnCancel::Release);
    let mut call = Box::pin(call.run(|_| async { answer }));
    while fixture.count(operation) == 0 {
        assert!(poll_once(call.as_mut()).await.is_none());
        tokio::task::yield_now().await;
    }
}

async fn a_body_dropped_while_its_answer_travels_is_stored(fixture: Fixture) {
    fixture.fail(StoreOperation::Complete, [Fault::ReplyHeld]);
    dropped_after_sending(&fixture, StoreOperation::Complete, receipt(7)).await;
    comes_to_rest(&fixture).await;
    assert_eq!(fixture.count(StoreOperation::Release), 0, "it has finished");
    assert_eq!(fixture.events.count("dropped"), 0);
    assert_eq!(answered(fixture.pay_far()).await, receipt(7));
}

async fn a_body_dropped_while_its_answer_is_lost_is_stored(fixture: Fixture) {
    let lost = [Fault::Hangs, Fault::Lost, Fault::ReplyLost, Fault::Lost];
    fixture.fail(StoreOperation::Complete, lost);
    dropped_after_sending(&fixture, StoreOperation::Complete, receipt(7)).await;
    comes_to_rest(&fixture).await;
    assert_eq!(fixture.count(StoreOperation::Release), 0, "it has finished");
    assert_eq!(answered(fixture.pay_far()).await, receipt(7));
}

async fn a_body_dropped_while_its_release_travels_is_released(fixture: Fixture) {
    fixture.fail(StoreOperation::Release, [Fault::Hangs]);
    dropped_after_sending(&fixture, StoreOperation::Release, Err(PayError::Down)).await;
    comes_to_rest(&fixture).await;
    assert_eq!(stands(&fixture).await, (EntryState::Released, 0));
}

async fn a_release_on_drop_that_is_lost_is_sent_again(fixture: Fixture) {
    let lost = [Fault::Lost, Fault::ReplyLost, Fault::Lost];
    fixture.fail(StoreOperation::Release, lost);
    let call = fixture.pay().on_cancel(OnCancel::Release);
    Body::start(call, receipt(7)).await.drop_caller().await;
    comes_to_rest(&fixture).await;
    assert_eq!(fixture.count(StoreOperation::Release), 4);
    assert_eq!(stands(&fixture).await, (EntryState::Released, 0));
}

async fn a_release_on_drop_does_not_count(fixture: Fixture) {
    for dropped in 1..=7 {
        let call = fixture.pay().on_cancel(OnCancel::Release);
        Body::start(call, receipt(7)).await.drop_caller().await;
        fixture.events.wait_for("released", dropped).await;
    }
    assert_eq!(stands(&fixture).await, (EntryState::Released, 0));
}

async fn an_unknown_on_drop_counts_and_is_reported(fixture: Fixture) {
    let call = fixture.pay().on_cancel(OnCancel::Unknown);
    Body::start(call, receipt(7)).await.drop_caller().await;
    fixture.events.wait_for("completed unknown", 1).await;
    assert_eq!(stands(&fixture).await, (EntryState::Unknown, 1));
    let error = refused_far(&fixture).await;
    assert_unknown(&error);
    let cause = "attempt 1 was cancelled half-way";
    assert!(error.to_string().contains(cause), "{error}");
}

async fn a_hold_sends_nothing_to_the_store(fixture: Fixture) {
    let body = Body::start(fixture.pay(), receipt(7)).await;
    let told = fixture.store.log().len();
    body.drop_caller().await;
    comes_to_rest(&fixture).await;
    assert_eq!(fixture.store.log().len(), told);
    assert!(assert_running(&refused_far(&fixture).await) > Duration::from_secs(20));
}

async fn a_body_that_never_began_counts_for_nothing(fixture: Fixture) {
    drop(answered(fixture.pay()));
    fixture.fail(StoreOperation::Claim, [Fault::ReplyHeld]);
    let mut call = Box::pin(answered(fixture.pay().on_cancel(OnCancel::Unknown)));
    while fixture.pay_far().entry().await.unwrap().is_none() {
        assert!(poll_once(call.as_mut()).await.is_none());
    }
    drop(call);
    comes_to_rest(&fixture).await;
    assert_eq!(stands(&fixture).await, (EntryState::Released, 0));
    assert_eq!(fixture.events.count("dropped"), 0, "there was no body");
}
