//! How often a body may be started: what counts, where it ends, and what mends it.

use std::num::NonZeroU16;

use idem_tests::shop::assert_contains;

use crate::prelude::*;
use crate::rows::Row;

on_every_store! {
    each_attempt_without_an_answer_counts, a_system_error_counts_if_the_operation_is_set_so,
    the_engine_and_the_operation_set_the_limit, an_exhausted_key_reports_its_attempts,
    one_attempt_is_over_however_it_ended, the_last_attempt_is_not_repeated_because_it_did_not_land,
}

fn limited(call: Pay, attempts: u16) -> Pay {
    call.max_attempts(NonZeroU16::new(attempts))
}

fn once(call: Pay) -> Pay {
    limited(call, 1)
}

async fn attempt(call: Pay) -> Answer {
    call.run(|cx| async move { receipt(cx.attempt().into()) })
        .await
}

async fn exhausted(call: Pay, attempts: u32) {
    let error = refusal(answered(call).await);
    assert_eq!(error.kind(), &ErrorKind::Exhausted { attempts });
}

async fn each_attempt_without_an_answer_counts(fixture: Fixture) {
    crashed(&fixture, fixture.pay()).await;
    panicked(fixture.pay_far()).await;
    crashed(&fixture, fixture.pay_far()).await;
    panicked(fixture.pay()).await;
    assert_eq!(stands(&fixture).await, (EntryState::Released, 4));
    assert_eq!(attempt(fixture.pay()).await, receipt(5));
}

async fn a_system_error_counts_if_the_operation_is_set_so(fixture: Fixture) {
    let call = || limited(fixture.pay(), 3).count_errors(true);
    for _ in 0..3 {
        down(call()).await;
    }
    exhausted(call(), 3).await;
    let fixture = fixture.with(|engine| engine.count_errors(true));
    let call = || limited(fixture.engine.operation("pay").key(&8), 2);
    down(call()).await;
    down(call()).await;
    exhausted(call(), 2).await;
}

async fn the_engine_and_the_operation_set_the_limit(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.max_attempts(NonZeroU16::new(2)));
    panicked(fixture.pay()).await;
    panicked(fixture.pay()).await;
    exhausted(fixture.pay(), 2).await;
    panicked(limited(fixture.pay(), 3)).await;
    exhausted(limited(fixture.pay(), 3), 3).await;
    assert_eq!(attempt(fixture.pay().max_attempts(None)).await, receipt(4));
    // Without a limit there is always another attempt.
    let fixture = fixture.with(|engine| engine.max_attempts(None));
    let call = || fixture.engine.operation("pay").key(&8);
    for _ in 0..12 {
        panicked(call()).await;
    }
    assert_eq!(attempt(call()).await, receipt(13));
}

async fn an_exhausted_key_reports_its_attempts(fixture: Fixture) {
    for _ in 0..5 {
        crashed(&fixture, fixture.pay()).await;
    }
    let error = refusal(answered(fixture.pay_far()).await);
    assert_eq!(error.kind(), &ErrorKind::Exhausted { attempts: 5 });
    assert!(!error.is_retryable() && error.retry_after().is_none());
    assert_contains(&error, "5 attempts were abandoned");
    assert_eq!(stands(&fixture).await, (EntryState::Abandoned, 5));
}

async fn one_attempt_is_over_however_it_ended(fixture: Fixture) {
    for end in ["a system error", "a release by hand", "a panic", "a drop"] {
        let _row = Row::new(&fixture, end);
        let call = once(fixture.pay());
        match end {
            "a system error" => down(call).await,
            "a release by hand" => {
                claimed(call).await.release().await;
            }
            "a panic" => panicked(call).await,
            _ => {
                let call = call.on_cancel(OnCancel::Release);
                Body::start(call, receipt(7)).await.drop_caller().await;
                comes_to_stand(&fixture, |state| state == EntryState::Released).await;
            }
        }
        exhausted(once(fixture.pay_far()), 1).await;
        // A higher limit allows another attempt.
        assert_eq!(attempt(limited(fixture.pay(), 2)).await, receipt(2));
    }
}

async fn the_last_attempt_is_not_repeated_because_it_did_not_land(fixture: Fixture) {
    let counts = Counts::default();
    crashed(&fixture, once(fixture.pay())).await;
    for asked in 1..=3 {
        let answer = reconciled(once(fixture.pay()), Says::NotLanded, &counts).await;
        let error = refusal(answer);
        assert_eq!(error.kind(), &ErrorKind::Exhausted { attempts: 1 });
        assert_eq!(counts.both(), (asked, 0), "a body starts at most once");
    }
    assert_eq!(stands(&fixture).await.1, 1);
}
