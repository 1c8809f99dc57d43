//! The label of a key, by which an operator recognizes the record of a call that did not succeed at once.

use std::fmt;

use idem_harness::TestDir;
use idem_runtime::admin::StepState;
use idem_runtime::codec::EncryptionKeys;
use idem_runtime::key::{Operation, redacted};
use idem_runtime::step;
use idem_runtime::store::{OutcomeKind, RecordKey};

use crate::prelude::*;
use crate::recorded_attempts::{ends, on_file, stored};
use crate::rows::Row;

on_every_store![
    a_call_that_succeeds_at_once_stores_no_label,
    a_record_has_the_first_label_of_its_calls,
    the_label_outlives_the_attempts_that_are_forgotten,
    a_label_is_plain_text_where_answers_are_sealed,
    a_label_takes_no_further_operation_of_the_store,
    a_label_behind_steps_of_a_later_version_is_stored_once,
];

const ORDER: &str = "ord-20261124-4711";

/// The label of these calls, which does not have all of the number.
pub(crate) const LABEL: &str = "order …4711";

pub(crate) fn labelled(call: Pay) -> Pay {
    call.label(&format_args!("order {}", redacted(ORDER, 4)))
}

pub(crate) async fn label(fixture: &Fixture) -> Option<String> {
    let entry = fixture.pay_far().entry().await.unwrap();
    entry.expect("there is a record").label()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

async fn a_call_that_succeeds_at_once_stores_no_label(fixture: Fixture) {
    let mut bytes = Vec::new();
    for (key, label) in [(7, None), (8, Some(LABEL))] {
        let call = || {
            let call = fixture.engine.operation("pay").key(&key);
            match label {
                Some(label) => call.label(label),
                None => call,
            }
        };
        assert_eq!(paid(call(), &Runs::default()).await, receipt(1));
        assert_eq!(answered(call()).await, receipt(1));
        let entry = call().entry().await.unwrap().unwrap();
        assert_eq!((entry.label(), entry.has_journal()), (None, false));
        bytes.push(entry.record_bytes());
    }
    assert_eq!(bytes[0], bytes[1]);
}

/// It stays when the call is resolved, reset, and answered by calls that give none or another one.
async fn a_record_has_the_first_label_of_its_calls(fixture: Fixture) {
    for (row, expected) in [
        ("no label", None),
        ("a system error", Some(LABEL)),
        ("an unknown outcome", Some(LABEL)),
        // The claim that takes over does not know that of a process that is gone.
        ("crashes", None),
        ("a crash, then a system error", Some(LABEL)),
        ("a system error, then another label", Some(LABEL)),
    ] {
        let _row = Row::new(&fixture, row);
        match row {
            "no label" => timed_out(fixture.pay()).await,
            "an unknown outcome" => timed_out(labelled(fixture.pay())).await,
            "crashes" => {
                crashed(&fixture, labelled(fixture.pay())).await;
                crashed(&fixture, labelled(fixture.pay())).await;
            }
            "a crash, then a system error" => {
                crashed(&fixture, labelled(fixture.pay())).await;
                down(labelled(fixture.pay())).await;
            }
            "a system error, then another label" => {
                down(labelled(fixture.pay())).await;
                timed_out(fixture.pay().label("another")).await;
            }
            _ => down(labelled(fixture.pay())).await,
        }
        assert_eq!(label(&fixture).await.as_deref(), expected);
        let bytes = stored(&fixture).await;
        let has = |text| contains(&bytes, text);
        assert_eq!(has("order"), expected.is_some());
        assert!(!has(ORDER) && !has("another"));
        if stands(&fixture).await.0 == EntryState::Unknown {
            let refusal = refused_far(&fixture).await;
            assert!(!format!("{refusal} {refusal:?}").contains("4711"));
            let entry = fixture.pay().entry().await.unwrap().unwrap();
            entry.resolve(&Receipt { run: 9 }).await.unwrap();
            assert_eq!(label(&fixture).await.as_deref(), expected);
            let entry = fixture.pay().entry().await.unwrap().unwrap();
            entry.reset().await.unwrap();
            assert_eq!(label(&fixture).await.as_deref(), expected);
        }
        assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
        assert_eq!(label(&fixture).await.as_deref(), expected);
        assert_eq!(answered(fixture.pay_far()).await, receipt(1));
    }
}

async fn the_label_outlives_the_attempts_that_are_forgotten(fixture: Fixture) {
    for _ in 0..20 {
        down(labelled(fixture.pay())).await;
    }
    for _ in 0..20 {
        crashed(&fixture, fixture.pay().max_attempts(None)).await;
    }
    let last = fixture.pay().max_attempts(None);
    assert_eq!(paid(last, &Runs::default()).await, receipt(1));
    assert_eq!(ends(&fixture).await.len(), 16);
    assert_eq!(label(&fixture).await.as_deref(), Some(LABEL));
}

async fn a_label_is_plain_text_where_answers_are_sealed(fixture: Fixture) {
    let keys = || EncryptionKeys::new(7, [7; 32]);
    let fixture = fixture.with(|engine| engine.encrypt(keys()).digest_key([9; 32]));
    down(labelled(fixture.pay())).await;
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    assert_eq!(entry.label().as_deref(), Some(LABEL));
    let (prefix, operation) = (fixture.key().prefix().into(), Operation::new("pay"));
    let key = RecordKey::new(prefix, operation, *entry.key());
    let ReadReply::Found { record, .. } = fixture.store.read(&key).await.unwrap() else {
        panic!("there is a record");
    };
    assert!(contains(record.as_bytes(), LABEL));
    assert!(!contains(record.as_bytes(), "run"));
}

async fn a_label_takes_no_further_operation_of_the_store(fixture: Fixture) {
    let mut sent = Vec::new();
    for has_label in [false, true] {
        let _row = Row::new(&fixture, ("label", has_label));
        let before = fixture.store.log().len();
        let call = |key: u32| {
            let call = fixture.engine.operation("pay").key(&key);
            if has_label { labelled(call) } else { call }
        };
        down(call(1)).await;
        down(call(1)).await;
        timed_out(call(1)).await;
        down(call(2)).await;
        assert_eq!(paid(call(2), &Runs::default()).await, receipt(1));
        let log = fixture.store.log();
        let operations = log[before..].iter().map(|sent| sent.operation);
        sent.push(operations.collect::<Vec<_>>());
    }
    assert_eq!(sent[0], sent[1]);
    assert_eq!(sent[0].len(), 10, "a claim and an end of each");
}

/// Retries of a call whose steps this version cannot read do not fill the record with labels.
async fn a_label_behind_steps_of_a_later_version_is_stored_once(fixture: Fixture) {
    down(fixture.pay()).await;
    let later = b"\0\0\0\x09Z12345678";
    fixture.plant(&[&stored(&fixture).await[..], later].concat());
    for _ in 0..3 {
        down(labelled(fixture.pay())).await;
    }
    let bytes = stored(&fixture).await;
    let labels = bytes.windows(LABEL.len());
    let labels = labels.filter(|part| *part == LABEL.as_bytes());
    assert_eq!(labels.count(), 1);
}

/// The label is left out where it does not fit, and the attempts where they do not fit either.
#[tokio::test]
async fn a_label_gives_way_to_attempts_and_to_the_answer() {
    let dir = TestDir::new("labels").unwrap();
    let engine = on_file(&dir, "i").await;
    let (mut answers, mut journals) = (Vec::new(), Vec::new());
    for bytes in 600..1_000 {
        let memo = "x".repeat(bytes);
        let call = |name| engine.operation(name).key(&bytes).label(&"l".repeat(64));
        let fails = async |name| {
            let call = call(name).run(|_| async { Err::<String, _>(PayError::Down) });
            call.await
        };
        assert_eq!(fails("memo").await, Err(PayError::Down));
        let answer = call("memo").run(|_| async { Ok::<_, PayError>(memo.clone()) });
        assert_eq!(answer.await.as_ref(), Ok(&memo));
        let entry = call("memo").entry().await.unwrap().unwrap();
        if entry.state() != EntryState::NotStored {
            let length = entry.record_bytes().expect("it was read");
            assert!(length <= 1 << 10, "{bytes}: {length}");
            answers.push((entry.label().is_some(), entry.recorded_attempts().len()));
            assert_eq!(fails("memo").await, Ok(memo.clone()), "{bytes}");
        }
        // The same for records without an answer.
        let print = call("print").run(async |_| {
            step("print", async |_| Ok::<_, PayError>(memo.clone())).await?;
            Err::<String, _>(PayError::Down)
        });
        let answer = print.await;
        let entry = call("print").entry().await.unwrap().unwrap();
        let finished = StepState::Finished(OutcomeKind::Value);
        let is_finished = entry.steps().iter().any(|step| step.state == finished);
        if answer == Err(PayError::Down) && is_finished {
            journals.push((entry.label().is_some(), entry.recorded_attempts().len()));
        }
    }
    answers.dedup();
    assert_eq!(answers, [(true, 2), (false, 2), (false, 0)]);
    journals.dedup();
    assert_eq!(journals, [(true, 1), (false, 1), (false, 0)]);
}

/// The value is formatted once, and before the body begins.
#[tokio::test]
async fn a_label_is_evaluated_once() {
    struct Counted<'a>(&'a Runs);
    impl fmt::Display for Counted<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "label {}", self.0.start())
        }
    }
    let (fixture, labels) = (Fixture::memory(), Runs::default());
    down(fixture.pay().label(&Counted(&labels))).await;
    assert_eq!(labels.count(), 1);
    assert_eq!(label(&fixture).await.as_deref(), Some("label 1"));
}
