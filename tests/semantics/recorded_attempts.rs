//! The attempts that a record remembers, by which an operator sees why a body was started again.

use std::time::SystemTime;

use idem_harness::TestDir;
use idem_runtime::admin::{Attempt, AttemptEnd, Process};
use idem_runtime::step;
use idem_runtime::store::sql::SqliteStore;

use crate::labels::{LABEL, label, labelled};
use crate::prelude::*;
use crate::rows::Row;
use crate::steps::{charged, charged_in_vain};

on_every_store![
    a_call_that_succeeds_at_once_records_nothing,
    an_attempt_is_recorded_as_it_ended,
    an_attempt_is_recorded_with_its_process,
    attempts_and_steps_are_recorded_side_by_side,
    an_engine_that_records_nothing_leaves_no_trace,
    steps_that_cannot_be_read_are_dropped_by_a_reset_and_by_an_answer,
    an_end_is_explained,
];

async fn recorded(fixture: &Fixture) -> Vec<Attempt> {
    let entry = fixture.pay().entry().await.unwrap();
    entry.expect("there is a record").recorded_attempts()
}

pub(crate) async fn ends(fixture: &Fixture) -> Vec<AttemptEnd> {
    let recorded = recorded(fixture).await;
    recorded.iter().map(|attempt| attempt.end).collect()
}

/// The bytes of the record of the key of [`Fixture::pay`].
pub(crate) async fn stored(fixture: &Fixture) -> Vec<u8> {
    let ReadReply::Found { record, .. } = fixture.store.read(&fixture.key()).await.unwrap() else {
        panic!("there is a record");
    };
    record.as_bytes().to_vec()
}

async fn a_call_that_succeeds_at_once_records_nothing(fixture: Fixture) {
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    assert_eq!(recorded(&fixture).await, []);
    // The layout of a record without a journal.
    assert_eq!(stored(&fixture).await[0], b'2');
    let process = fixture.pay().entry().await.unwrap().unwrap().process();
    assert_eq!(process.map(|process| process.pid), Some(std::process::id()));
}

/// What happens to the key until it is looked at, and the ends and the kinds of the entries that are recorded by then.
/// A value stands behind a failure, whether another process recorded that or this one.
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
        assert_eq!(stored(&fixture).await[56 + 4], kind);
        let entry = fixture.pay().entry().await.unwrap().unwrap();
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
    down(fixture.pay()).await;
    crashed(&fixture, fixture.pay_far()).await;
    crashed(&fixture, fixture.pay()).await;
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    let all = recorded(&fixture).await;
    // An orderly release does not count.
    let numbers: Vec<_> = all.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, [1, 1, 1, 2, 3]);
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

/// A label is neither.
async fn attempts_and_steps_are_recorded_side_by_side(fixture: Fixture) {
    let (charge, pay) = (Runs::default(), || labelled(fixture.pay()));
    charged_in_vain(pay(), &charge).await;
    charged_in_vain(pay(), &charge).await;
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    let steps: Vec<_> = entry.steps().into_iter().map(|step| step.name).collect();
    assert_eq!(
        (&steps[..], charge.count()),
        (&["charge".to_owned()][..], 1)
    );
    assert_eq!(ends(&fixture).await, [AttemptEnd::SystemError; 2]);
    let answer = charged(pay(), &charge, receipt(1)).await;
    assert_eq!((answer, charge.count()), (receipt(1), 1));
    assert_eq!(ends(&fixture).await.len(), 3);
    assert_eq!(label(&fixture).await.as_deref(), Some(LABEL));
}

async fn an_engine_that_records_nothing_leaves_no_trace(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.record_attempts(false));
    let pay = || labelled(fixture.pay());
    down(pay()).await;
    crashed(&fixture, pay()).await;
    crashed(&fixture, pay()).await;
    timed_out(pay()).await;
    assert_eq!(
        (ends(&fixture).await, label(&fixture).await),
        (vec![], None)
    );
    assert_eq!(
        stored(&fixture).await[0],
        b'2',
        "a record without a journal"
    );
}

async fn steps_that_cannot_be_read_are_dropped_by_a_reset_and_by_an_answer(fixture: Fixture) {
    for reset in [true, false] {
        let _row = Row::new(&fixture, ("reset", reset));
        let charge = Runs::default();
        charged_in_vain(fixture.pay(), &charge).await;
        // Behind the finished step there is an entry of a later version.
        let later = b"\0\0\0\x09Z12345678";
        fixture.plant(&[&stored(&fixture).await[..], later].concat());
        let answer = charged(fixture.pay(), &charge, receipt(1)).await;
        assert_eq!(*refusal(answer).kind(), ErrorKind::UnknownRecord);
        if reset {
            let entry = fixture.pay().entry().await.unwrap().unwrap();
            entry.reset_with_steps().await.unwrap();
            let answer = charged(fixture.pay(), &charge, receipt(1)).await;
            assert_eq!((answer, charge.count()), (receipt(1), 2));
        } else {
            // A body without the steps.
            assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
            let entry = fixture.pay().entry().await.unwrap().unwrap();
            assert_eq!(entry.steps(), [], "empty once the call is answered");
        }
    }
}

/// The explanation of the last attempt names no cause that it did not have.
async fn an_end_is_explained(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.max_value_bytes(8));
    let explained = async |is_lapsed| {
        let all = recorded(&fixture).await;
        let ended = |attempt: &&Attempt| (attempt.end == AttemptEnd::Lapsed) == is_lapsed;
        all.iter().rev().find(ended).unwrap().end.explanation()
    };
    let row = Row::new(&fixture, "a value that was not kept");
    down(fixture.pay()).await;
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    assert_eq!(entry.state(), EntryState::NotStored);
    let told = explained(false).await;
    assert!(!told.contains("every later call gets"), "{told}");
    drop(row);
    let row = Row::new(
        &fixture,
        "a caller that went away, and whose claim was held",
    );
    crashed(&fixture, fixture.pay()).await;
    down(fixture.pay()).await;
    let told = explained(true).await;
    assert!(told.contains("caller"), "{told}");
    drop(row);
    let row = Row::new(&fixture, "a business error that is not kept");
    let call = fixture.pay().on_error(idem_runtime::on_error::Release);
    let declined: Answer = Err(PayError::Declined { run: 0 });
    assert_eq!(call.run(|_| async { declined.clone() }).await, declined);
    let told = explained(false).await;
    assert!(!told.contains("system error"), "{told}");
    drop(row);
    // The waiting caller gets the outcome.
    let _row = Row::new(&fixture, "a body that idem cancelled");
    let fixture = fixture.with(|engine| engine.max_run(Duration::from_secs(15)));
    let call = (fixture.pay().on_lease_lost(OnLeaseLost::Cancel)).on_cancel(OnCancel::Unknown);
    let body = Body::start(call, receipt(7)).await;
    wakes(&fixture, THIRD).await;
    fixture.events.wait_for("renewed", 1).await;
    fixture.pass_in_store(Duration::from_secs(5));
    fixture.clock.advance(Duration::from_secs(5));
    assert_unknown(&refusal(until(&fixture, body.join()).await));
    let told = recorded(&fixture).await[0].end.explanation();
    assert!(!told.contains("its caller dropped it"), "{told}");
}

/// The end of an answer that an operator took back is a time of the engine's clock, as that of any attempt.
#[tokio::test]
async fn an_answer_that_is_reset_ended_when_it_was_stored() {
    let fixture = Fixture::memory();
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    fixture.pass_in_store(Duration::from_secs(5));
    fixture.clock.advance(Duration::from_secs(5));
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    entry.reset().await.unwrap();
    let [answered] = &recorded(&fixture).await[..] else {
        panic!("it is remembered");
    };
    assert_eq!(answered.end, AttemptEnd::Value);
    let lasted = answered.ended.duration_since(answered.started());
    assert!(lasted.unwrap() < Duration::from_secs(1), "{answered:?}");
}

/// An engine on a file, whose records have at most 1 KiB.
pub(crate) async fn on_file(dir: &TestDir, instance: &str) -> Engine {
    let url = format!("sqlite:{}", dir.path().join("idem.db").display());
    let store = SqliteStore::builder(&url).max_record_bytes(1 << 10);
    let store = store.connect().await.unwrap();
    store.migrate().await.unwrap();
    Engine::builder(store).instance(instance).build().unwrap()
}

/// Records with attempts are no longer than their store reads.
#[tokio::test]
async fn a_full_record_is_read_again() {
    let dir = TestDir::new("attempts").unwrap();
    let engine = on_file(&dir, &"i".repeat(64)).await;
    let pay = || engine.operation("pay").key(&7);
    down(pay()).await;
    assert_eq!(paid(pay(), &Runs::default()).await, receipt(1));
    let page = engine.entries().next_page().await.unwrap().unwrap();
    assert_eq!((page.entries().len(), page.unreadable()), (1, 0));
    for bytes in [
        700, 800, 820, 840, 850, 860, 870, 880, 890, 900, 920, 940, 950, 960, 970,
    ] {
        // An answer by hand.
        let call = || engine.operation("memo").key(&bytes);
        let fails = async |error| {
            call()
                .run(|_| async { Err(error) as Result<String, _> })
                .await
        };
        assert_eq!(fails(PayError::TimedOut).await, Err(PayError::TimedOut));
        let entry = call().entry().await.unwrap().unwrap();
        if entry.resolve(&"x".repeat(bytes)).await.is_ok() {
            assert_eq!(
                fails(PayError::Down).await,
                Ok("x".repeat(bytes)),
                "{bytes}"
            );
        }
        // A journal.
        let printed = Runs::default();
        let print = async |ends: Answer| {
            let call = engine.operation("print").key(&bytes);
            let body = async |_| {
                let label = step("label", async |_| {
                    let _ = printed.start();
                    Ok::<_, PayError>("x".repeat(bytes))
                });
                label.await?;
                ends
            };
            call.run(body).await
        };
        assert_eq!(print(Err(PayError::Down)).await, Err(PayError::Down));
        match print(receipt(1)).await {
            Ok(_) => {}
            Err(PayError::Idem(error)) if *error.kind() == ErrorKind::NotStored => {}
            other => panic!("{bytes}: {other:?}"),
        }
        assert_eq!(printed.count(), 1, "{bytes}");
    }
}
