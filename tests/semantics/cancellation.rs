//! A future that is dropped, wherever it stands: nothing that finished is lost or freed, and the key
//! is treated as the operation says.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idem_runtime::{EntryState, OnCancel, OnLeaseLost, OnPanic, OnRunning};
use idem_tests::events::Events;
use idem_tests::faulty::{Fault, Faulty, Operation};
use idem_tests::on_every_store;
use idem_tests::pay::{PayError, Runs};
use idem_tests::world::World;

use crate::stage::{
    Answer, Body, LEASE_OVER, Pay, answered, assert_running, assert_unknown, caught, comes_to_rest,
    paid, poll_once, poll_times, receipt, refusal, refused_far, stands, until,
};

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
    an_unknown_on_drop_counts_and_says_so,
    a_hold_tells_the_store_nothing,
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

/// Drops a call after 0, 1, 2, … polls, each time in a world with new engines and under a new key,
/// and looks at what is left when the engine has come to rest.
async fn dropped_at_every_poll(
    mut world: World,
    call: impl Fn(Pay) -> Pay,
    answer: Answer,
    check: impl AsyncFn(&World, &dyn Fn() -> Pay, &Steps),
) {
    for polls in 0..POLLS {
        let (steps, far) = (Steps::default(), world.far.clone());
        let pay = call(world.engine.operation("pay").key(&polls));
        let call = pay.run(|_| body(steps.clone(), answer.clone()));
        let ended = poll_times(call, polls).await;
        comes_to_rest(&world).await;
        let again = || {
            let call = far.operation("pay").key(&polls);
            call.on_running(OnRunning::Reject)
        };
        check(&world, &again, &steps).await;
        if let Some(output) = ended {
            assert_eq!(output, answer);
            assert!(polls > 3, "the body alone takes four polls");
            return;
        }
        world = world.with(|engine| engine);
    }
    unreachable!("the call never ends");
}

/// A key whose body never began is as if nobody had called. A claim on the wire when its caller goes
/// may arrive behind its own release; then it is over with its lease.
async fn is_free(world: &World, again: &dyn Fn() -> Pay) {
    let runs = Runs::default();
    let answer = paid(again(), &runs).await;
    if answer != receipt(1) {
        assert_running(&refusal(answer));
        world.pass_in_store(LEASE_OVER);
        assert_eq!(paid(again(), &runs).await, receipt(1));
    }
}

async fn dropped_at_every_poll_and_held(world: World) {
    let check = async |world: &World, again: &dyn Fn() -> Pay, steps: &Steps| {
        if steps.has("ended") {
            assert_eq!(answered(again()).await, receipt(7));
        } else if steps.has("begun") {
            assert_running(&refusal(answered(again()).await));
            world.pass_in_store(LEASE_OVER);
            let second = again().run(|cx| async move { receipt(cx.attempt().into()) });
            assert_eq!(second.await, receipt(2), "the first attempt counts");
        } else {
            is_free(world, again).await;
        }
    };
    dropped_at_every_poll(world, |pay| pay, receipt(7), check).await;
}

async fn dropped_at_every_poll_and_released(world: World) {
    let check = async |world: &World, again: &dyn Fn() -> Pay, steps: &Steps| {
        if steps.has("ended") {
            assert_eq!(answered(again()).await, receipt(7));
        } else if steps.has("begun") {
            let second = again().run(|cx| async move { receipt(cx.attempt().into()) });
            assert_eq!(second.await, receipt(1), "it is free at once");
        } else {
            is_free(world, again).await;
        }
    };
    let call = |pay: Pay| pay.on_cancel(OnCancel::Release);
    dropped_at_every_poll(world, call, receipt(7), check).await;
}

async fn dropped_at_every_poll_and_unknown(world: World) {
    let check = async |world: &World, again: &dyn Fn() -> Pay, steps: &Steps| {
        if steps.has("ended") {
            assert_eq!(answered(again()).await, receipt(7));
        } else if steps.has("begun") {
            assert_unknown(&refusal(answered(again()).await));
        } else {
            is_free(world, again).await;
        }
    };
    let call = |pay: Pay| pay.on_cancel(OnCancel::Unknown);
    dropped_at_every_poll(world, call, receipt(7), check).await;
}

async fn dropped_at_every_poll_with_a_system_error(world: World) {
    let check = async |world: &World, again: &dyn Fn() -> Pay, steps: &Steps| {
        if steps.has("begun") && !steps.has("ended") {
            assert_unknown(&refusal(answered(again()).await));
        } else {
            // It never began, or has given its key back.
            is_free(world, again).await;
        }
    };
    let call = |pay: Pay| pay.on_cancel(OnCancel::Unknown);
    dropped_at_every_poll(world, call, Err(PayError::Down), check).await;
}

async fn dropped_at_every_poll_of_a_replay(mut world: World) {
    assert_eq!(paid(world.pay(), &Runs::default()).await, receipt(1));
    for polls in 0..POLLS {
        let ended = poll_times(answered(world.pay()), polls).await;
        comes_to_rest(&world).await;
        assert_eq!(answered(world.pay_far()).await, receipt(1));
        if ended.is_some() {
            return;
        }
        world = world.with(|engine| engine);
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

async fn a_panic_at_every_await_and_released(mut world: World) {
    for place in 0..4 {
        let call = world.pay().run(|_| panics_at(place));
        caught(call).await.unwrap_err();
        comes_to_rest(&world).await;
        let counted = u16::try_from(place).unwrap() + 1;
        assert_eq!(stands(&world).await, (EntryState::Released, counted));
        world = world.with(|engine| engine);
    }
    let last = world.pay().run(|_| panics_at(4));
    assert_eq!(last.await, receipt(7));
}

async fn a_panic_at_every_await_and_unknown(mut world: World) {
    for place in 0..4 {
        let call = world.engine.operation("pay").key(&place);
        let call = call.on_panic(OnPanic::Unknown).run(|_| panics_at(place));
        caught(call).await.unwrap_err();
        comes_to_rest(&world).await;
        let again = refusal(answered(world.far.operation("pay").key(&place)).await);
        assert_unknown(&again);
        assert!(again.to_string().contains("attempt 1 panicked"), "{again}");
        world = world.with(|engine| engine);
    }
}

/// What a body holds: dropped, it remembers how often anybody had been told of the body's end.
struct Holds {
    events: Events,
    store: Faulty,
    told: Arc<Mutex<Option<usize>>>,
}

impl Drop for Holds {
    fn drop(&mut self) {
        let stored = self.store.count(Operation::Release) + self.store.count(Operation::Complete);
        let told = stored + self.events.count("dropped") + self.events.count("panicked");
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
    }
}

/// Runs a body that holds something until it waits, or panics, and says how often anybody had been
/// told of its end when what it held went.
async fn told_before(world: &World, call: Pay, panics: bool) -> usize {
    let told = Arc::new(Mutex::new(None));
    let holds = Holds {
        events: world.events.clone(),
        store: world.store.clone(),
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
        while world.events.count("claimed") == 0 {
            assert!(poll_once(call.as_mut()).await.is_none());
            tokio::task::yield_now().await;
        }
        drop(call);
    }
    let told = told.lock().unwrap_or_else(PoisonError::into_inner).take();
    told.expect("what the body held is gone")
}

async fn a_released_body_is_gone_before_its_key_is_free(world: World) {
    let call = world.pay().on_cancel(OnCancel::Release);
    assert_eq!(told_before(&world, call, false).await, 0);
    world.events.wait_for("released", 1).await;
}

async fn an_unknown_body_is_gone_before_its_key_is_unknown(world: World) {
    let call = world.pay().on_cancel(OnCancel::Unknown);
    assert_eq!(told_before(&world, call, false).await, 0);
    world.events.wait_for("completed unknown", 1).await;
}

async fn a_body_that_lost_its_lease_is_gone_before_its_key_is_free(world: World) {
    world.store.fail(Operation::Renew, [Fault::Hangs; 1_000]);
    let told = Arc::new(Mutex::new(None));
    let holds = Holds {
        events: world.events.clone(),
        store: world.store.clone(),
        told: Arc::clone(&told),
    };
    let call = world.pay().on_cancel(OnCancel::Release);
    let call = call.on_lease_lost(OnLeaseLost::Cancel);
    let call = tokio::spawn(call.run(|_| async move {
        let _holds = holds;
        std::future::pending::<Answer>().await
    }));
    world.events.wait_for("claimed", 1).await;
    world.clock.advance(LEASE_OVER);
    assert_running(&refusal(until(&world, call).await.unwrap()));
    let told = told.lock().unwrap_or_else(PoisonError::into_inner).take();
    assert_eq!(told, Some(0), "of the end of what still held something");
    assert_eq!(world.events.count("released"), 1);
}

async fn a_panicked_body_is_gone_before_its_key_is_free(world: World) {
    assert_eq!(told_before(&world, world.pay(), true).await, 0);
    assert_eq!(world.events.count("released and counted"), 1);
}

/// Starts a call and drops it when it has sent this.
async fn dropped_after_sending(world: &World, operation: Operation, answer: Answer) {
    let call = world.pay().on_cancel(OnCancel::Release);
    let mut call = Box::pin(call.run(|_| async { answer }));
    while world.store.count(operation) == 0 {
        assert!(poll_once(call.as_mut()).await.is_none());
        tokio::task::yield_now().await;
    }
}

async fn a_body_dropped_while_its_answer_travels_is_stored(world: World) {
    world.store.fail(Operation::Complete, [Fault::ReplyHeld]);
    dropped_after_sending(&world, Operation::Complete, receipt(7)).await;
    comes_to_rest(&world).await;
    assert_eq!(world.store.count(Operation::Release), 0, "it has finished");
    assert_eq!(world.events.count("dropped"), 0);
    assert_eq!(answered(world.pay_far()).await, receipt(7));
}

async fn a_body_dropped_while_its_answer_is_lost_is_stored(world: World) {
    let lost = [Fault::Hangs, Fault::Lost, Fault::ReplyLost, Fault::Lost];
    world.store.fail(Operation::Complete, lost);
    dropped_after_sending(&world, Operation::Complete, receipt(7)).await;
    comes_to_rest(&world).await;
    assert_eq!(world.store.count(Operation::Release), 0, "it has finished");
    assert_eq!(answered(world.pay_far()).await, receipt(7));
}

async fn a_body_dropped_while_its_release_travels_is_released(world: World) {
    world.store.fail(Operation::Release, [Fault::Hangs]);
    dropped_after_sending(&world, Operation::Release, Err(PayError::Down)).await;
    comes_to_rest(&world).await;
    assert_eq!(stands(&world).await, (EntryState::Released, 0));
}

async fn a_release_on_drop_that_is_lost_is_sent_again(world: World) {
    let lost = [Fault::Lost, Fault::ReplyLost, Fault::Lost];
    world.store.fail(Operation::Release, lost);
    let call = world.pay().on_cancel(OnCancel::Release);
    Body::start(call, receipt(7)).await.drop_caller().await;
    comes_to_rest(&world).await;
    assert_eq!(world.store.count(Operation::Release), 4);
    assert_eq!(stands(&world).await, (EntryState::Released, 0));
}

async fn a_release_on_drop_does_not_count(world: World) {
    for dropped in 1..=7 {
        let call = world.pay().on_cancel(OnCancel::Release);
        Body::start(call, receipt(7)).await.drop_caller().await;
        world.events.wait_for("released", dropped).await;
    }
    assert_eq!(stands(&world).await, (EntryState::Released, 0));
}

async fn an_unknown_on_drop_counts_and_says_so(world: World) {
    let call = world.pay().on_cancel(OnCancel::Unknown);
    Body::start(call, receipt(7)).await.drop_caller().await;
    world.events.wait_for("completed unknown", 1).await;
    assert_eq!(stands(&world).await, (EntryState::Unknown, 1));
    let error = refused_far(&world).await;
    assert_unknown(&error);
    let cause = "attempt 1 was cancelled half-way";
    assert!(error.to_string().contains(cause), "{error}");
}

async fn a_hold_tells_the_store_nothing(world: World) {
    let body = Body::start(world.pay(), receipt(7)).await;
    let told = world.store.log().len();
    body.drop_caller().await;
    comes_to_rest(&world).await;
    assert_eq!(world.store.log().len(), told);
    assert!(assert_running(&refused_far(&world).await) > Duration::from_secs(20));
}

async fn a_body_that_never_began_counts_for_nothing(world: World) {
    drop(answered(world.pay()));
    world.store.fail(Operation::Claim, [Fault::ReplyHeld]);
    let mut call = Box::pin(answered(world.pay().on_cancel(OnCancel::Unknown)));
    while world.pay_far().entry().await.unwrap().is_none() {
        assert!(poll_once(call.as_mut()).await.is_none());
    }
    drop(call);
    comes_to_rest(&world).await;
    assert_eq!(stands(&world).await, (EntryState::Released, 0));
    assert_eq!(world.events.count("dropped"), 0, "there was no body");
}
