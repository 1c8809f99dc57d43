//! Unknown outcomes: how they come about, the refusals of callers, and how they end.

use std::time::SystemTime;

use idem_runtime::OnPanic;

use crate::prelude::*;
use crate::rows::Row;

on_every_store! {
    an_outcome_becomes_unknown_for_a_reason, no_policy_runs_an_unknown_key_again,
    since_is_the_end_of_the_attempt, an_unknown_outcome_expires_with_its_ttl,
    a_late_success_heals_it_and_a_late_failure_does_not,
    a_nested_unknown_makes_the_outer_one_unknown,
}

async fn an_outcome_becomes_unknown_for_a_reason(fixture: Fixture) {
    for (row, cause) in [
        ("on_error", "attempt 1 ended with an error of class unknown"),
        ("on_cancel", "attempt 1 was cancelled half-way"),
        ("on_panic", "attempt 1 panicked"),
        ("a later attempt", "attempt 3 ended with an error"),
    ] {
        let _row = Row::new(&fixture, row);
        match row {
            "on_error" => {
                let call = fixture.pay().on_error(idem_runtime::on_error::Unknown);
                let declined: Answer = Err(PayError::Declined { run: 1 });
                assert_eq!(call.run(|_| async { declined.clone() }).await, declined);
            }
            "on_cancel" => {
                let call = fixture.pay().on_cancel(OnCancel::Unknown);
                Body::start(call, receipt(7)).await.drop_caller().await;
            }
            "on_panic" => panicked(fixture.pay().on_panic(OnPanic::Unknown)).await,
            _ => {
                crashed(&fixture, fixture.pay()).await;
                panicked(fixture.pay()).await;
                timed_out(fixture.pay()).await;
            }
        }
        comes_to_stand(&fixture, |state| state == EntryState::Unknown).await;
        // The second one also waits until its own process has the reply, so that the next row does not join this call.
        let near = answered(fixture.pay());
        for error in [refused_far(&fixture).await, refusal(near.await)] {
            assert_unknown(&error);
            assert!(error.to_string().contains(cause), "{error}");
            assert!(!error.is_retryable() && error.retry_after().is_none());
        }
        let attempts = if row == "a later attempt" { 3 } else { 1 };
        assert_eq!(stands(&fixture).await, (EntryState::Unknown, attempts));
    }
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

async fn an_unknown_outcome_expires_with_its_ttl(fixture: Fixture) {
    let call = || fixture.pay().ttl(Duration::from_mins(10));
    timed_out(call()).await;
    fixture.pass_in_store(Duration::from_mins(9));
    assert_unknown(&refusal(answered(call()).await));
    fixture.pass_in_store(Duration::from_mins(1));
    assert_eq!(paid(call(), &Runs::default()).await, receipt(1));
}

async fn a_late_success_heals_it_and_a_late_failure_does_not(fixture: Fixture) {
    for late in [receipt(7), Err(PayError::Declined { run: 1 })] {
        let _row = Row::new(&fixture, &late);
        let first = Body::start(fixture.pay(), late.clone()).await;
        fixture.pass_in_store(LEASE_OVER);
        timed_out(fixture.pay_far()).await;
        assert_unknown(&refused_far(&fixture).await);
        let (answer, again) = (first.end().await, fixture.pay_far());
        if late.is_ok() {
            assert_eq!(answer, late);
            assert_eq!(fixture.events.count("completed value late"), 1);
            assert_eq!(answered(again).await, late);
        } else {
            assert_unknown(&refusal(answer));
            assert_unknown(&refusal(answered(again).await));
        }
    }
}

async fn a_nested_unknown_makes_the_outer_one_unknown(fixture: Fixture) {
    let inner = || fixture.engine.operation("inner").key(&1);
    timed_out(inner()).await;
    let outer = fixture.pay().run(|_| answered(inner()));
    assert_unknown(&refusal(outer.await));
    assert_unknown(&refused_far(&fixture).await);
}
