//! The attempts of a record, which explain another start of a body.

use std::time::SystemTime;

use idem_runtime::admin::{Attempt, AttemptEnd, Process};

use crate::labels::{label, labelled};
use crate::prelude::*;
use crate::rows::Row;
use crate::steps::{charged, charged_in_vain};

on_every_store! {
    an_attempt_is_recorded_as_it_ended, an_attempt_is_recorded_with_its_process,
    an_engine_that_records_nothing_leaves_no_trace,
    steps_that_cannot_be_read_are_dropped_by_a_reset_and_by_an_answer,
}

async fn recorded(fixture: &Fixture) -> Vec<Attempt> {
    let entry = fixture.pay().entry().await.unwrap();
    entry.expect("there is a record").recorded_attempts()
}

async fn ends(fixture: &Fixture) -> Vec<AttemptEnd> {
    let recorded = recorded(fixture).await;
    recorded.iter().map(|attempt| attempt.end).collect()
}

/// The key's events before it is read, and its recorded entries. Of entries, it has the ends and the kinds. A
/// value stands behind a failure, whether another process recorded that or this one.
async fn an_attempt_is_recorded_as_it_ended(fixture: Fixture) {
    use AttemptEnd::{BusinessError, Cancelled, Lapsed, Panicked, SystemError, Unknown, Value};
    let declined: Answer = Err(PayError::Declined { run: 1 });
    for (row, ended, kind) in [
        ("a system error", SystemError, b'a'),
        ("a crash", Lapsed, b'l'),
        ("a drop", Cancelled, b'a'),
        ("a panic", Panicked, b'a'),
        ("an unknown outcome that is reset", Unknown, b'a'),
        ("an unknown outcome that is resolved", Unknown, b'a'),
        ("a system error, then a business error", SystemError, b'a'),
    ] {
        let _row = Row::new(&fixture, row);
        match row {
            "a crash" => {
                crashed(&fixture, fixture.pay()).await;
                assert_eq!(ends(&fixture).await, [], "it had no time to");
                // The claim that takes over records it.
                drop(claimed(fixture.pay_far()).await);
                fixture.pass_in_store(LEASE_OVER);
            }
            "a drop" => {
                let call = fixture.pay().on_cancel(OnCancel::Release);
                Body::start(call, receipt(1)).await.drop_caller().await;
                comes_to_stand(&fixture, |state| state == EntryState::Released).await;
            }
            "a panic" => panicked(fixture.pay()).await,
            _ if row.starts_with("an unknown outcome") => timed_out(fixture.pay()).await,
            _ => down(fixture.pay()).await,
        }
        assert_eq!(ends(&fixture).await, [ended]);
        assert_eq!(stored(&fixture, 7).await[56 + 4], kind);
        let entry = entry(&fixture).await;
        let (last, answer) = match row {
            "a crash" => (&[Lapsed, Value][..], receipt(1)),
            "an unknown outcome that is resolved" => {
                entry.resolve(&Receipt { run: 1 }).await.unwrap();
                (&[][..], receipt(1))
            }
            "a system error, then a business error" => (&[BusinessError][..], declined.clone()),
            _ => {
                if row == "an unknown outcome that is reset" {
                    entry.reset().await.unwrap();
                }
                (&[Value][..], receipt(1))
            }
        };
        let call = fixture.pay().run(|_| async { answer.clone() });
        assert_eq!(call.await, answer);
        assert_eq!(answered(fixture.pay_far()).await, answer);
        assert_eq!(ends(&fixture).await, [&[ended][..], last].concat());
    }
}

async fn an_attempt_is_recorded_with_its_process(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.instance("payments-7f9c"));
    down(fixture.pay()).await;
    crashed(&fixture, fixture.pay_far()).await;
    crashed(&fixture, fixture.pay()).await;
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    let all = recorded(&fixture).await;
    // An orderly release does not count.
    let numbers: Vec<_> = all.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, [1, 1, 2, 3]);
    for attempt in &all {
        // The claim that takes over does not know the name of the instance.
        let instance = match attempt.end {
            AttemptEnd::Lapsed => "",
            _ => "payments-7f9c",
        };
        assert_eq!(attempt.instance, instance);
        assert_eq!(attempt.process(), Some(Process::this("payments-7f9c")));
        assert!(attempt.started() > SystemTime::UNIX_EPOCH);
    }
    for both in all.windows(2) {
        assert_ne!(both[0].owner, both[1].owner);
        assert!(both[0].fence < both[1].fence);
    }
}

async fn an_engine_that_records_nothing_leaves_no_trace(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.record_attempts(false));
    let pay = || labelled(fixture.pay());
    down(pay()).await;
    crashed(&fixture, pay()).await;
    crashed(&fixture, pay()).await;
    timed_out(pay()).await;
    assert_eq!(ends(&fixture).await, []);
    assert_eq!(label(&fixture).await, None);
    // A record without a journal.
    assert_eq!(stored(&fixture, 7).await[0], b'2');
}

async fn steps_that_cannot_be_read_are_dropped_by_a_reset_and_by_an_answer(fixture: Fixture) {
    for reset in [true, false] {
        let _row = Row::new(&fixture, ("reset", reset));
        let charge = Runs::default();
        charged_in_vain(fixture.pay(), &charge).await;
        // Behind the finished step there is an entry of a later version.
        let later = b"\0\0\0\x09Z12345678";
        fixture.plant(&[&stored(&fixture, 7).await[..], later].concat());
        let answer = charged(fixture.pay(), &charge, receipt(1)).await;
        assert_eq!(*refusal(answer).kind(), ErrorKind::UnknownRecord);
        if reset {
            entry(&fixture).await.reset_with_steps().await.unwrap();
            let answer = charged(fixture.pay(), &charge, receipt(1)).await;
            assert_eq!((answer, charge.count()), (receipt(1), 2));
        } else {
            // A body without the steps.
            assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
            let entry = entry(&fixture).await;
            assert_eq!(entry.steps(), [], "empty once the call is answered");
        }
    }
}

/// An answer taken back ends at a time of the engine's clock.
#[tokio::test]
async fn an_answer_that_is_reset_ended_when_it_was_stored() {
    let fixture = Fixture::memory();
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    fixture.pass_in_store(Duration::from_secs(5));
    fixture.clock.advance(Duration::from_secs(5));
    entry(&fixture).await.reset().await.unwrap();
    let [answered] = &recorded(&fixture).await[..] else {
        panic!("it is remembered");
    };
    assert_eq!(answered.end, AttemptEnd::Value);
    let lasted = answered.ended.duration_since(answered.started());
    assert!(lasted.unwrap() < Duration::from_secs(1), "{answered:?}");
}
