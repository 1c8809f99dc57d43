//! Of which types answers are: a record knows it from its claim on. Of two functions under one operation, neither gets
//! the answer of the other, and no answer of another type is given by hand.

use std::fmt::Debug;

use idem_runtime::Outcome;
use serde::{Deserialize, Serialize};

use crate::prelude::*;
use crate::rows::Row;

on_every_store! {
    a_value_of_another_type_by_hand_is_refused_before_anything_is_written,
    an_error_of_another_type_by_hand_is_refused,
    a_claim_that_did_not_say_its_types_takes_any_answer, an_answer_by_hand_may_be_corrected,
    two_functions_do_not_replay_each_other, a_second_function_takes_nothing_over,
    a_second_function_waits_and_gets_no_answer,
    a_refusal_of_a_second_function_is_not_that_of_the_first,
    errors_of_another_type_are_not_replayed,
    a_released_or_reset_key_is_free_for_a_corrected_function,
    a_type_of_another_name_is_accepted_on_request,
}

const FOUND: Receipt = Receipt { run: 9 };

/// A receipt after a release in which it got another name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Bill {
    run: u32,
}

/// As a second error under the same operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, idem_runtime::Classify)]
enum RefundError {
    #[class(business)]
    Declined { run: u32 },
    #[class(delegate)]
    Idem(Error),
}

impl From<Error> for RefundError {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

/// A resolution is refused because of its type.
#[track_caller]
fn assert_refused(result: Result<(), Error>) {
    assert_eq!(*result.unwrap_err().kind(), ErrorKind::WrongType);
}

/// A call of a function with another type of values. It does not run.
async fn other<T: Debug>(call: Pay) -> Error
where
    Result<T, PayError>: Outcome<Classified>,
{
    let answer: Result<T, PayError> = call.run(|_| async { unreachable!("another's key") }).await;
    match answer {
        Err(PayError::Idem(error)) => error,
        answer => panic!("idem did not refuse: {answer:?}"),
    }
}

fn assert_wrong(error: &Error) {
    assert_eq!(*error.kind(), ErrorKind::WrongType, "{error}");
    assert!(!error.is_retryable());
}

async fn a_value_of_another_type_by_hand_is_refused_before_anything_is_written(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let resolutions = fixture.count(StoreOperation::Resolve);
    assert_refused(entry(&fixture).await.resolve(&5_u32).await);
    assert_eq!(fixture.count(StoreOperation::Resolve), resolutions);
    assert_eq!(stands(&fixture).await, (EntryState::Unknown, 1));
    entry(&fixture).await.resolve(&FOUND).await.unwrap();
    assert_eq!(answered(fixture.pay()).await, receipt(9));
}

async fn an_error_of_another_type_by_hand_is_refused(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let other = RefundError::Declined { run: 3 };
    assert_refused(entry(&fixture).await.resolve_error(&other).await);
    // A value is no error.
    assert_refused(entry(&fixture).await.resolve_error(&FOUND).await);
    assert_eq!(stands(&fixture).await, (EntryState::Unknown, 1));
    let declined = PayError::Declined { run: 3 };
    let seen = entry(&fixture).await;
    seen.resolve_error(&declined).await.unwrap();
    assert_eq!(answered(fixture.pay()).await, Err(declined.clone()));
    // The function keeps none.
    let _row = Row::new(&fixture, "on_error = unknown");
    let call = || fixture.pay().on_error(idem_runtime::on_error::Unknown);
    let first = call().run(|_| async { Err(PayError::TimedOut) as Answer });
    assert_eq!(first.await, Err(PayError::TimedOut));
    assert_refused(entry(&fixture).await.resolve_error(&declined).await);
    entry(&fixture).await.resolve(&FOUND).await.unwrap();
    assert_eq!(call().run(|_| async { never() }).await, receipt(9));
}

async fn a_claim_that_did_not_say_its_types_takes_any_answer(fixture: Fixture) {
    abandon(&fixture).await;
    entry(&fixture).await.resolve(&5_u32).await.unwrap();
    let read: Result<u32, PayError> = fixture.pay().run(|_| async { unreachable!() }).await;
    assert_eq!(read, Ok(5));
}

async fn an_answer_by_hand_may_be_corrected(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    assert!(!entry(&fixture).await.is_by_hand());
    let seen = entry(&fixture).await;
    seen.resolve(&Receipt { run: 1 }).await.unwrap();
    assert_eq!(answered(fixture.pay()).await, receipt(1));
    let seen = entry(&fixture).await;
    assert!(seen.is_by_hand());
    seen.resolve(&FOUND).await.unwrap();
    for call in [fixture.pay(), fixture.pay_far()] {
        assert_eq!(answered(call).await, receipt(9));
    }
    // That of a body is not.
    entry(&fixture).await.reset().await.unwrap();
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    let seen = entry(&fixture).await;
    assert!(!seen.is_by_hand());
    let refused = seen.resolve(&FOUND).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Changed);
}

async fn two_functions_do_not_replay_each_other(fixture: Fixture) {
    let first: Result<u32, PayError> = fixture.pay().run(|_| async { Ok(7) }).await;
    assert_eq!(first, Ok(7));
    // Nor does a cool-down of the one refuse the other.
    let cool_down = (fixture.pay_far()).on_duplicate(OnDuplicate::Reject);
    for call in [fixture.pay(), fixture.pay_far(), cool_down] {
        assert_wrong(&other::<u64>(call).await);
    }
    let again: Result<u32, PayError> = fixture.pay().run(|_| async { unreachable!() }).await;
    assert_eq!(again, Ok(7), "the record is as it was");
}

async fn a_second_function_takes_nothing_over(fixture: Fixture) {
    // Abandoned.
    crashed(&fixture, fixture.pay()).await;
    assert_wrong(&other::<Bill>(fixture.pay_far()).await);
    assert_eq!(stands(&fixture).await, (EntryState::Abandoned, 1));
    // Unknown: its hook knows nothing of the other's effect.
    timed_out(fixture.pay()).await;
    let hook = |_| async { unreachable!("another's key") as Reconciled<Bill> };
    let answer = (fixture.pay_far()).run_reconciled(hook, |_| async { unreachable!() });
    let answer: Result<Bill, PayError> = answer.await;
    let Err(PayError::Idem(error)) = answer else {
        panic!("idem did not refuse: {answer:?}")
    };
    assert_wrong(&error);
    assert_eq!(stands(&fixture).await, (EntryState::Unknown, 2));
}

async fn a_second_function_waits_and_gets_no_answer(fixture: Fixture) {
    let body = Body::start(fixture.pay(), receipt(7)).await;
    let refused = other::<Bill>(fixture.pay_far().on_running(OnRunning::Reject)).await;
    assert!(matches!(refused.kind(), ErrorKind::Running { .. }));
    let [near, far] =
        [fixture.pay(), fixture.pay_far()].map(|call| tokio::spawn(other::<Bill>(call)));
    others().await;
    assert_eq!(body.end().await, receipt(7));
    for waiting in [near, far] {
        assert_wrong(&until(&fixture, waiting).await.unwrap());
    }
}

/// Calls of one key share the query of one of them.
async fn a_refusal_of_a_second_function_is_not_that_of_the_first(fixture: Fixture) {
    crashed(&fixture, fixture.pay()).await;
    fixture.fail(StoreOperation::Claim, [Fault::ReplyHeld]);
    let second = tokio::spawn(other::<Bill>(fixture.pay_far()));
    others().await;
    let first = tokio::spawn({
        let call = fixture.pay_far();
        async move { paid(call, &Runs::default()).await }
    });
    others().await;
    fixture.store.deliver();
    assert_wrong(&until(&fixture, second).await.unwrap());
    assert_eq!(until(&fixture, first).await.unwrap(), receipt(1));
}

async fn errors_of_another_type_are_not_replayed(fixture: Fixture) {
    let declined = PayError::Declined { run: 3 };
    let first = fixture
        .pay()
        .run(|_| async { Err(declined.clone()) as Answer });
    assert_eq!(first.await, Err(declined.clone()));
    let second: Result<Receipt, RefundError> = (fixture.pay_far())
        .run(|_| async { unreachable!("another's key") })
        .await;
    let Err(RefundError::Idem(error)) = second else {
        panic!("idem did not refuse: {second:?}")
    };
    assert_wrong(&error);
    assert_eq!(answered(fixture.pay()).await, Err(declined));
    // The type of errors does not matter to a value.
    let call = || fixture.engine.operation("pay").key(&8);
    assert_eq!(paid(call(), &Runs::default()).await, receipt(1));
    let read: Result<Receipt, RefundError> = call().run(|_| async { unreachable!() }).await;
    assert_eq!(read, Ok(Receipt { run: 1 }));
}

async fn a_released_or_reset_key_is_free_for_a_corrected_function(fixture: Fixture) {
    for reset in [false, true] {
        let _row = Row::new(&fixture, ("reset", reset));
        if reset {
            crashed(&fixture, fixture.pay()).await;
            assert_wrong(&other::<Bill>(fixture.pay()).await);
            entry(&fixture).await.reset().await.unwrap();
        } else {
            down(fixture.pay()).await;
        }
        let corrected = fixture
            .pay()
            .run(|_| async { Ok::<_, PayError>(Bill { run: 1 }) });
        assert_eq!(corrected.await, Ok(Bill { run: 1 }));
        assert_wrong(&refusal(answered(fixture.pay_far()).await));
    }
}

async fn a_type_of_another_name_is_accepted_on_request(fixture: Fixture) {
    let renamed = |call: Pay| call.on_other_type(OnOtherType::Accept);
    let never = |_| async { unreachable!("it is answered") as Result<Bill, PayError> };
    // The stored answer is read.
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    for call in [fixture.pay(), fixture.pay_far()] {
        assert_eq!(renamed(call).run(never).await, Ok(Bill { run: 1 }));
    }
    // The abandoned claim is taken over, and the record is of the new type from then on.
    entry(&fixture).await.reset().await.unwrap();
    crashed(&fixture, fixture.pay()).await;
    let body = |_| async { Ok::<_, PayError>(Bill { run: 2 }) };
    assert_eq!(
        renamed(fixture.pay_far()).run(body).await,
        Ok(Bill { run: 2 })
    );
    assert_wrong(&refusal(answered(fixture.pay()).await));
    assert_eq!(fixture.pay().run(never).await, Ok(Bill { run: 2 }));
}
