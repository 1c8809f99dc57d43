//! Outcomes that nobody knows: how they come about, what callers are told, and what ends them.

use std::time::{Duration, SystemTime};

use idem_runtime::clock::Clock;
use idem_runtime::{EntryState, Error, ErrorKind, OnCancel, OnDuplicate, OnPanic};
use idem_tests::on_every_store;
use idem_tests::pay::{PayError, Receipt, Runs};
use idem_tests::world::World;

use crate::stage::{
    Answer, Body, LEASE_OVER, answered, assert_unknown, comes_to_rest, crashed, paid, panicked,
    receipt, refusal, refused_far, stands, timed_out,
};

on_every_store![
    an_error_of_class_unknown_leaves_it_unknown,
    any_error_leaves_it_unknown_where_the_operation_says_so,
    a_drop_leaves_it_unknown_where_the_operation_says_so,
    a_panic_leaves_it_unknown_where_the_operation_says_so,
    a_later_attempt_is_the_one_that_is_named,
    nobody_runs_it_again_whatever_his_policy,
    nobody_is_told_what_the_error_was,
    since_is_when_it_ended,
    another_request_is_still_a_mismatch,
    it_is_forgotten_with_its_ttl,
    a_late_success_heals_it,
    a_late_failure_does_not,
    a_nested_unknown_makes_the_outer_one_unknown,
];

/// Nobody knows the outcome, because of this.
async fn unknown_because(world: &World, cause: &str) {
    comes_to_rest(world).await;
    let error = refused_far(world).await;
    assert_unknown(&error);
    assert!(error.to_string().contains(cause), "{error}");
    assert!(!error.is_retryable() && error.retry_after().is_none());
    assert_eq!(stands(world).await.0, EntryState::Unknown);
}

async fn an_error_of_class_unknown_leaves_it_unknown(world: World) {
    timed_out(world.pay()).await;
    assert_eq!(world.events.count("completed unknown"), 1);
    unknown_because(&world, "attempt 1 ended with an error of class unknown").await;
}

async fn any_error_leaves_it_unknown_where_the_operation_says_so(world: World) {
    let call = world.pay().errors_are_unknown();
    let call = call.run(|_| async { Err(PayError::Declined { run: 1 }) as Answer });
    assert_eq!(call.await, Err(PayError::Declined { run: 1 }));
    unknown_because(&world, "attempt 1 ended with an error of class unknown").await;
}

async fn a_drop_leaves_it_unknown_where_the_operation_says_so(world: World) {
    let call = world.pay().on_cancel(OnCancel::Unknown);
    Body::start(call, receipt(7)).await.drop_caller().await;
    unknown_because(&world, "attempt 1 was cancelled half-way").await;
}

async fn a_panic_leaves_it_unknown_where_the_operation_says_so(world: World) {
    panicked(world.pay().on_panic(OnPanic::Unknown)).await;
    unknown_because(&world, "attempt 1 panicked").await;
    assert_eq!(stands(&world).await.1, 1);
}

async fn a_later_attempt_is_the_one_that_is_named(world: World) {
    crashed(&world, world.pay()).await;
    panicked(world.pay()).await;
    timed_out(world.pay()).await;
    unknown_because(&world, "attempt 3 ended with an error").await;
}

async fn nobody_runs_it_again_whatever_his_policy(world: World) {
    timed_out(world.pay()).await;
    let calls = [
        world.pay(),
        world.pay().on_duplicate(OnDuplicate::Reject),
        world.pay().max_attempts(None),
        world.pay().on_cancel(OnCancel::Release),
        world.pay_far(),
    ];
    for call in calls {
        assert_unknown(&refusal(answered(call).await));
    }
    let finish = world.pay().finish(|_| async { crate::stage::never() });
    assert_unknown(&refusal(finish.await));
    let kept = world
        .pay()
        .keep_errors()
        .run(|_| async { crate::stage::never() });
    assert_unknown(&refusal(kept.await));
    world.pass_in_store(Duration::from_hours(20));
    assert_unknown(&refused_far(&world).await);
    assert_eq!(stands(&world).await, (EntryState::Unknown, 1));
}

/// An error with something in it that nobody else may read.
#[derive(Clone, Debug, PartialEq)]
enum Leaky {
    Secret(String),
    Idem(Error),
}

impl From<Error> for Leaky {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

async fn nobody_is_told_what_the_error_was(world: World) {
    let secret = "card 4111-1111";
    let call = || world.pay().fingerprint(secret).errors_are_unknown();
    let body = |_| async { Err::<Receipt, _>(Leaky::Secret(secret.to_owned())) };
    call().run(body).await.unwrap_err();
    let again = call().run(|_| async { unreachable!("nobody knows") as Result<Receipt, Leaky> });
    let Err(Leaky::Idem(error)) = again.await else {
        unreachable!("idem has the answer")
    };
    assert_unknown(&error);
    let entry = world.pay().entry().await.unwrap().unwrap();
    let all = format!("{error} {error:?} {entry:?} {:?}", world.events.all());
    assert!(!all.contains("4111"), "{all}");
}

async fn since_is_when_it_ended(world: World) {
    let ended = world.clock.calendar();
    timed_out(world.pay()).await;
    let later = Duration::from_hours(2);
    world.pass_in_store(later);
    world.clock.advance(later);
    for error in [
        refused_far(&world).await,
        refusal(answered(world.pay()).await),
    ] {
        let ErrorKind::Unknown { since } = *error.kind() else {
            panic!("{error:?}")
        };
        // A store on another machine has a pace of its own.
        let off = distance(since, ended);
        assert!(off < Duration::from_mins(1), "{off:?} off");
    }
}

fn distance(a: SystemTime, b: SystemTime) -> Duration {
    a.duration_since(b).unwrap_or_else(|error| error.duration())
}

async fn another_request_is_still_a_mismatch(world: World) {
    timed_out(world.pay().fingerprint(&"ten")).await;
    let other = refusal(answered(world.pay().fingerprint(&"eleven")).await);
    assert_eq!(other.kind(), &ErrorKind::Mismatch);
    assert_unknown(&refusal(answered(world.pay().fingerprint(&"ten")).await));
}

async fn it_is_forgotten_with_its_ttl(world: World) {
    let call = || world.pay().ttl(Duration::from_mins(10));
    timed_out(call()).await;
    world.pass_in_store(Duration::from_mins(9));
    assert_unknown(&refusal(answered(call()).await));
    world.pass_in_store(Duration::from_mins(1));
    assert_eq!(paid(call(), &Runs::default()).await, receipt(1));
}

/// An attempt that was overtaken by one after which nobody knows.
async fn overtaken(world: &World, answer: Answer) -> Body {
    let first = Body::start(world.pay(), answer).await;
    world.pass_in_store(LEASE_OVER);
    timed_out(world.pay_far()).await;
    assert_unknown(&refused_far(world).await);
    first
}

async fn a_late_success_heals_it(world: World) {
    let first = overtaken(&world, receipt(7)).await;
    assert_eq!(first.end().await, receipt(7));
    assert_eq!(world.events.count("completed value late"), 1);
    assert_eq!(answered(world.pay_far()).await, receipt(7));
}

async fn a_late_failure_does_not(world: World) {
    let declined = Err(PayError::Declined { run: 1 });
    let first = overtaken(&world, declined).await;
    assert_unknown(&refusal(first.end().await));
    assert_unknown(&refused_far(&world).await);
}

async fn a_nested_unknown_makes_the_outer_one_unknown(world: World) {
    let inner = || world.engine.operation("inner").key(&1);
    timed_out(inner()).await;
    let outer = world.pay().run(|_| answered(inner()));
    assert_unknown(&refusal(outer.await));
    assert_unknown(&refused_far(&world).await);
}
