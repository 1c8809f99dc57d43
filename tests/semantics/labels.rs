//! The label by which an operator recognizes a pending call's record.

use std::fmt;

use idem_harness::TestDir;
use idem_runtime::admin::StepState;
use idem_runtime::key::redacted;
use idem_runtime::step;
use idem_runtime::store::OutcomeKind;
use idem_runtime::store::sql::SqliteStore;

use crate::prelude::*;
use crate::rows::Row;

on_every_store! {
    a_call_that_succeeds_at_once_stores_no_label, a_record_has_the_first_label_of_its_calls,
    a_label_behind_steps_of_a_later_version_is_stored_once,
}

const ORDER: &str = "ord-20261124-4711";

/// The label of these calls, which omits a part of the number.
const LABEL: &str = "order …4711";

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
    let call = labelled(fixture.pay());
    assert_eq!(paid(call, &Runs::default()).await, receipt(1));
    let entry = entry(&fixture).await;
    assert_eq!((entry.label(), entry.has_journal()), (None, false));
    assert_eq!(answered(labelled(fixture.pay())).await, receipt(1));
}

/// It survives resolution, reset, and calls with no label or another one.
async fn a_record_has_the_first_label_of_its_calls(fixture: Fixture) {
    for (row, expected) in [
        ("an unknown outcome", Some(LABEL)),
        // The claim that takes over does not know that of a process that is gone.
        ("crashes", None),
        ("a system error, then another label", Some(LABEL)),
    ] {
        let _row = Row::new(&fixture, row);
        match row {
            "an unknown outcome" => timed_out(labelled(fixture.pay())).await,
            "crashes" => {
                crashed(&fixture, labelled(fixture.pay())).await;
                crashed(&fixture, labelled(fixture.pay())).await;
            }
            _ => {
                down(labelled(fixture.pay())).await;
                timed_out(fixture.pay().label("another")).await;
            }
        }
        assert_eq!(label(&fixture).await.as_deref(), expected);
        let bytes = stored(&fixture, 7).await;
        let has = |text| contains(&bytes, text);
        assert_eq!(has("order"), expected.is_some());
        assert!(!has(ORDER) && !has("another"));
        if stands(&fixture).await.0 == EntryState::Unknown {
            let refusal = refused_far(&fixture).await;
            assert!(!format!("{refusal} {refusal:?}").contains("4711"));
            let seen = entry(&fixture).await;
            seen.resolve(&Receipt { run: 9 }).await.unwrap();
            assert_eq!(label(&fixture).await.as_deref(), expected);
            entry(&fixture).await.reset().await.unwrap();
            assert_eq!(label(&fixture).await.as_deref(), expected);
        }
        assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
        assert_eq!(label(&fixture).await.as_deref(), expected);
        assert_eq!(answered(fixture.pay_far()).await, receipt(1));
    }
}

/// Retries of a call with unreadable steps do not accumulate labels.
async fn a_label_behind_steps_of_a_later_version_is_stored_once(fixture: Fixture) {
    down(fixture.pay()).await;
    let later = b"\0\0\0\x09Z12345678";
    fixture.plant(&[&stored(&fixture, 7).await[..], later].concat());
    for _ in 0..3 {
        down(labelled(fixture.pay())).await;
    }
    let bytes = stored(&fixture, 7).await;
    let labels = bytes.windows(LABEL.len());
    let labels = labels.filter(|part| *part == LABEL.as_bytes());
    assert_eq!(labels.count(), 1);
}

/// The label is omitted where it does not fit, like the attempts.
#[tokio::test]
async fn a_label_gives_way_to_attempts_and_to_the_answer() {
    let dir = TestDir::new("labels").unwrap();
    let url = format!("sqlite:{}", dir.path().join("idem.db").display());
    let store = SqliteStore::builder(&url).max_record_bytes(1 << 10);
    let store = store.connect().await.unwrap();
    store.migrate().await.unwrap();
    let engine = Engine::builder(store).instance("i").build().unwrap();
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
