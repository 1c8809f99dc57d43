//! Unknown outcomes: how they come about, the refusals of callers, and how they end.

use std::time::SystemTime;

use idem_runtime::OnPanic;

use crate::prelude::*;

on_every_store![
    an_error_of_class_unknown_leaves_it_unknown,
    on_error_unknown_leaves_each_error_unknown,
    on_drop_unknown_leaves_a_dropped_call_unknown,
    on_panic_unknown_leaves_a_panicked_call_unknown,
    a_later_attempt_is_the_one_that_is_named,
    no_policy_runs_an_unknown_key_again,
    an_unknown_outcome_does_not_reveal_its_error,
    since_is_the_end_of_the_attempt,
    another_request_is_still_a_mismatch,
    an_unknown_outcome_expires_with_its_ttl,
    a_late_success_heals_it,
    a_late_failure_does_not,
    a_nested_unknown_makes_the_outer_one_unknown,
    an_unknown_outcome_of_an_overtaken_attempt_stays_unknown,
];

/// The outcome is unknown, for this reason.
async fn unknown_because(fixture: &Fixture, cause: &str) {
    comes_to_rest(fixture).await;
    let error = refused_far(fixture).await;
    assert_unknown(&error);
    assert!(error.to_string().contains(cause), "{error}");
    assert!(!error.is_retryable() && error.retry_after().is_none());
    assert_eq!(stands(fixture).await.0, EntryState::Unknown);
}

async fn an_error_of_class_unknown_leaves_it_unknown(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    assert_eq!(fixture.events.count("completed unknown"), 1);
    unknown_because(&fixture, "attempt 1 ended with an error of class unknown").await;
}

async fn on_error_unknown_leaves_each_error_unknown(fixture: Fixture) {
    let call = fixture.pay().on_error(idem_runtime::on_error::Unknown);
    let call = call.run(|_| async { Err(PayError::Declined { run: 1 }) as Answer });
    assert_eq!(call.await, Err(PayError::Declined { run: 1 }));
    unknown_because(&fixture, "attempt 1 ended with an error of class unknown").await;
}

async fn on_drop_unknown_leaves_a_dropped_call_unknown(fixture: Fixture) {
    let call = fixture.pay().on_cancel(OnCancel::Unknown);
    Body::start(call, receipt(7)).await.drop_caller().await;
    unknown_because(&fixture, "attempt 1 was cancelled half-way").await;
}

async fn on_panic_unknown_leaves_a_panicked_call_unknown(fixture: Fixture) {
    panicked(fixture.pay().on_panic(OnPanic::Unknown)).await;
    unknown_because(&fixture, "attempt 1 panicked").await;
    assert_eq!(stands(&fixture).await.1, 1);
}

async fn a_later_attempt_is_the_one_that_is_named(fixture: Fixture) {
    crashed(&fixture, fixture.pay()).await;
    panicked(fixture.pay()).await;
    timed_out(fixture.pay()).await;
    unknown_because(&fixture, "attempt 3 ended with an error").await;
}

async fn no_policy_runs_an_unknown_key_again(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let calls = [
        fixture.pay(),
        fixture.pay().on_duplicate(OnDuplicate::Reject),
        fixture.pay().max_attempts(None),
        fixture.pay().on_cancel(OnCancel::Release),
        fixture.pay_far(),
    ];
    for call in calls {
        assert_unknown(&refusal(answered(call).await));
    }
    let finish = fixture.pay().finish(|_| async { never() });
    assert_unknown(&refusal(finish.await));
    let kept = fixture.pay().on_error(idem_runtime::on_error::Keep);
    let kept = kept.run(|_| async { never() });
    assert_unknown(&refusal(kept.await));
    fixture.pass_in_store(Duration::from_hours(20));
    assert_unknown(&refused_far(&fixture).await);
    assert_eq!(stands(&fixture).await, (EntryState::Unknown, 1));
}

/// An error with contents that no other party may read.
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

async fn an_unknown_outcome_does_not_reveal_its_error(fixture: Fixture) {
    let secret = "card 4111-1111";
    let call = || {
        fixture
            .pay()
            .fingerprint(secret)
            .on_error(idem_runtime::on_error::Unknown)
    };
    let body = |_| async { Err::<Receipt, _>(Leaky::Secret(secret.to_owned())) };
    call().run(body).await.unwrap_err();
    let again = call().run(|_| async { unreachable!("nobody knows") as Result<Receipt, Leaky> });
    let Err(Leaky::Idem(error)) = again.await else {
        unreachable!("idem has the answer")
    };
    assert_unknown(&error);
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    let all = format!("{error} {error:?} {entry:?} {:?}", fixture.events.all());
    assert!(!all.contains("4111"), "{all}");
}

async fn since_is_the_end_of_the_attempt(fixture: Fixture) {
    let ended = fixture.clock.calendar();
    timed_out(fixture.pay()).await;
    let later = Duration::from_hours(2);
    fixture.pass_in_store(later);
    fixture.clock.advance(later);
    for error in [
        refused_far(&fixture).await,
        refusal(answered(fixture.pay()).await),
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

async fn another_request_is_still_a_mismatch(fixture: Fixture) {
    timed_out(fixture.pay().fingerprint(&"ten")).await;
    let other = refusal(answered(fixture.pay().fingerprint(&"eleven")).await);
    assert_eq!(other.kind(), &ErrorKind::Mismatch);
    assert_unknown(&refusal(answered(fixture.pay().fingerprint(&"ten")).await));
}

async fn an_unknown_outcome_expires_with_its_ttl(fixture: Fixture) {
    let call = || fixture.pay().ttl(Duration::from_mins(10));
    timed_out(call()).await;
    fixture.pass_in_store(Duration::from_mins(9));
    assert_unknown(&refusal(answered(call()).await));
    fixture.pass_in_store(Duration::from_mins(1));
    assert_eq!(paid(call(), &Runs::default()).await, receipt(1));
}

/// An attempt that was overtaken by one with an unknown outcome.
async fn overtaken(fixture: &Fixture, answer: Answer) -> Body {
    let first = Body::start(fixture.pay(), answer).await;
    fixture.pass_in_store(LEASE_OVER);
    timed_out(fixture.pay_far()).await;
    assert_unknown(&refused_far(fixture).await);
    first
}

async fn a_late_success_heals_it(fixture: Fixture) {
    let first = overtaken(&fixture, receipt(7)).await;
    assert_eq!(first.end().await, receipt(7));
    assert_eq!(fixture.events.count("completed value late"), 1);
    assert_eq!(answered(fixture.pay_far()).await, receipt(7));
}

async fn a_late_failure_does_not(fixture: Fixture) {
    let declined = Err(PayError::Declined { run: 1 });
    let first = overtaken(&fixture, declined).await;
    assert_unknown(&refusal(first.end().await));
    assert_unknown(&refused_far(&fixture).await);
}

async fn a_nested_unknown_makes_the_outer_one_unknown(fixture: Fixture) {
    let inner = || fixture.engine.operation("inner").key(&1);
    timed_out(inner()).await;
    let outer = fixture.pay().run(|_| answered(inner()));
    assert_unknown(&refusal(outer.await));
    assert_unknown(&refused_far(&fixture).await);
}

/// The time-out comes after the lease was lost; the successor releases the key.
async fn an_unknown_outcome_of_an_overtaken_attempt_stays_unknown(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.on_running(OnRunning::Reject));
    let gates = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
    let [first, second] = &gates;
    let body = |gate: &Arc<Semaphore>, error: PayError| {
        let gate = Arc::clone(gate);
        move |_| async move {
            gate.acquire().await.unwrap().forget();
            Err::<Receipt, _>(error)
        }
    };
    let overtaken = tokio::spawn(fixture.pay().run(body(first, PayError::TimedOut)));
    fixture.events.wait_for("claimed", 1).await;
    fixture.pass_in_store(LEASE_OVER);
    let successor = tokio::spawn(fixture.pay_far().run(body(second, PayError::Down)));
    fixture.events.wait_for("claimed", 2).await;
    first.add_permits(1);
    let _ = overtaken.await.unwrap().unwrap_err();
    second.add_permits(1);
    assert_eq!(successor.await.unwrap(), Err(PayError::Down));
    // It was refused because another call runs, and offers its own result in the background.
    loop {
        tokio::select! {
            biased;
            () = fixture.events.wait_for("completed unknown", 1) => break,
            () = fixture.clock.sleeper_within(Duration::from_secs(1)) => {
                fixture.clock.advance(Duration::from_millis(100));
            }
        }
    }
    let third = fixture.pay().run(|_| async { receipt(3) }).await;
    assert_unknown(&refusal(third));
}
