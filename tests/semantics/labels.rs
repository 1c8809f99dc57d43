//! The label of a key, by which an operator recognizes the record of a call that did not succeed at once.

use std::fmt;

use idem_harness::TestDir;
use idem_runtime::admin::{AttemptEnd, StepState};
use idem_runtime::codec::EncryptionKeys;
use idem_runtime::key::redacted;
use idem_runtime::step;
use idem_runtime::store::sql::SqliteStore;
use idem_runtime::store::{Journal, JournalKind, OutcomeKind};

use crate::prelude::*;
use crate::steps::counted;

on_every_store![
    a_call_without_a_label_has_none,
    a_call_that_succeeds_at_once_stores_no_label,
    a_released_record_has_its_label,
    an_unknown_outcome_has_its_label,
    a_resolved_and_a_reset_record_keep_the_label,
    an_answer_after_a_crash_has_its_label,
    an_attempt_that_crashed_has_no_label,
    the_first_label_stays,
    the_label_outlives_the_attempts_that_are_forgotten,
    a_label_is_no_attempt_and_no_step,
    an_engine_that_records_nothing_stores_no_label,
    a_label_is_plain_text_where_answers_are_sealed,
    a_label_takes_no_further_operation_of_the_store,
    a_label_of_a_later_version_is_passed_over,
    a_label_behind_steps_of_a_later_version_is_stored_once,
];

const ORDER: &str = "ord-20261124-4711";

fn labelled(call: Pay) -> Pay {
    call.label(&format_args!("order {}", redacted(ORDER, 4)))
}

async fn label(fixture: &Fixture) -> Option<String> {
    let entry = fixture.pay_far().entry().await.unwrap();
    entry.expect("there is a record").label()
}

async fn ends(fixture: &Fixture) -> Vec<AttemptEnd> {
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    let recorded = entry.recorded_attempts().into_iter();
    recorded.map(|attempt| attempt.end).collect()
}

async fn stored(fixture: &Fixture) -> Vec<u8> {
    let ReadReply::Found { record, .. } = fixture.store.read(&fixture.key()).await.unwrap() else {
        panic!("there is a record");
    };
    record.as_bytes().to_vec()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

async fn a_call_without_a_label_has_none(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    assert_eq!(label(&fixture).await, None);
    assert!(!contains(&stored(&fixture).await, "order"));
}

async fn a_call_that_succeeds_at_once_stores_no_label(fixture: Fixture) {
    let mut bytes = Vec::new();
    for (key, label) in [(7, None), (8, Some("order …4711"))] {
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

async fn a_released_record_has_its_label(fixture: Fixture) {
    down(labelled(fixture.pay())).await;
    assert_eq!(label(&fixture).await.as_deref(), Some("order …4711"));
    assert!(!contains(&stored(&fixture).await, ORDER));
    // The next call gives none, and succeeds.
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    assert_eq!(label(&fixture).await.as_deref(), Some("order …4711"));
    assert_eq!(answered(fixture.pay_far()).await, receipt(1));
}

async fn an_unknown_outcome_has_its_label(fixture: Fixture) {
    timed_out(labelled(fixture.pay())).await;
    assert_eq!(label(&fixture).await.as_deref(), Some("order …4711"));
    let refusal = refused_far(&fixture).await;
    assert_unknown(&refusal);
    assert!(!format!("{refusal} {refusal:?}").contains("4711"));
}

async fn a_resolved_and_a_reset_record_keep_the_label(fixture: Fixture) {
    timed_out(labelled(fixture.pay())).await;
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    entry.resolve(&Receipt { run: 9 }).await.unwrap();
    assert_eq!(label(&fixture).await.as_deref(), Some("order …4711"));
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    entry.reset().await.unwrap();
    assert_eq!(label(&fixture).await.as_deref(), Some("order …4711"));
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    assert_eq!(label(&fixture).await.as_deref(), Some("order …4711"));
}

async fn an_answer_after_a_crash_has_its_label(fixture: Fixture) {
    crashed(&fixture, labelled(fixture.pay())).await;
    assert_eq!(
        paid(labelled(fixture.pay()), &Runs::default()).await,
        receipt(1)
    );
    assert_eq!(
        ends(&fixture).await,
        [AttemptEnd::Lapsed, AttemptEnd::Value]
    );
    assert_eq!(label(&fixture).await.as_deref(), Some("order …4711"));
}

async fn an_attempt_that_crashed_has_no_label(fixture: Fixture) {
    crashed(&fixture, labelled(fixture.pay())).await;
    crashed(&fixture, labelled(fixture.pay())).await;
    assert_eq!(ends(&fixture).await, [AttemptEnd::Lapsed]);
    assert_eq!(label(&fixture).await, None);
}

async fn the_first_label_stays(fixture: Fixture) {
    down(labelled(fixture.pay())).await;
    timed_out(fixture.pay().label("another")).await;
    assert_eq!(label(&fixture).await.as_deref(), Some("order …4711"));
    assert!(!contains(&stored(&fixture).await, "another"));
    let both = [AttemptEnd::SystemError, AttemptEnd::Unknown];
    assert_eq!(ends(&fixture).await, both);
}

async fn the_label_outlives_the_attempts_that_are_forgotten(fixture: Fixture) {
    for _ in 0..20 {
        down(labelled(fixture.pay())).await;
    }
    for _ in 0..20 {
        crashed(&fixture, fixture.pay().max_attempts(None)).await;
    }
    assert_eq!(
        paid(fixture.pay().max_attempts(None), &Runs::default()).await,
        receipt(1)
    );
    assert_eq!(ends(&fixture).await.len(), 16);
    assert_eq!(label(&fixture).await.as_deref(), Some("order …4711"));
}

async fn a_label_is_no_attempt_and_no_step(fixture: Fixture) {
    let charge = Runs::default();
    for _ in 0..2 {
        let answer = labelled(fixture.pay()).run(|_| async {
            counted("charge", &charge).await?;
            Err(PayError::Down) as Answer
        });
        assert_eq!(answer.await, Err(PayError::Down));
    }
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    assert_eq!(
        (entry.steps().len(), entry.steps()[0].name.as_str()),
        (1, "charge")
    );
    assert_eq!(ends(&fixture).await, [AttemptEnd::SystemError; 2]);
    assert_eq!(entry.label().as_deref(), Some("order …4711"));
    let answer = labelled(fixture.pay()).run(|_| counted("charge", &charge));
    assert_eq!(answer.await, receipt(1));
    assert_eq!(label(&fixture).await.as_deref(), Some("order …4711"));
}

async fn an_engine_that_records_nothing_stores_no_label(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.record_attempts(false));
    down(labelled(fixture.pay())).await;
    timed_out(labelled(fixture.pay())).await;
    assert_eq!(label(&fixture).await, None);
    assert_eq!(stored(&fixture).await[0], b'2');
}

async fn a_label_is_plain_text_where_answers_are_sealed(fixture: Fixture) {
    let fixture = fixture.with(|engine| {
        engine
            .encrypt(EncryptionKeys::new(7, [7; 32]))
            .digest_key([9; 32])
    });
    down(labelled(fixture.pay())).await;
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    assert_eq!(entry.label().as_deref(), Some("order …4711"));
    let key = idem_runtime::store::RecordKey::new(
        fixture.key().prefix().into(),
        idem_runtime::key::Operation::new("pay"),
        *entry.key(),
    );
    let ReadReply::Found { record, .. } = fixture.store.read(&key).await.unwrap() else {
        panic!("there is a record");
    };
    assert!(contains(record.as_bytes(), "order …4711"));
}

const KINDS: [StoreOperation; 8] = [
    StoreOperation::Claim,
    StoreOperation::Complete,
    StoreOperation::Release,
    StoreOperation::Renew,
    StoreOperation::Append,
    StoreOperation::Resolve,
    StoreOperation::Read,
    StoreOperation::Watch,
];

/// The numbers of operations that the store gets for calls that fail, by kind.
async fn operations(fixture: &Fixture, call: impl Fn(u32) -> Pay) -> Vec<usize> {
    let count = || KINDS.map(|kind| fixture.count(kind));
    let before = count();
    down(call(1)).await;
    down(call(1)).await;
    timed_out(call(1)).await;
    down(call(2)).await;
    assert_eq!(paid(call(2), &Runs::default()).await, receipt(1));
    let after = count();
    after
        .iter()
        .zip(before)
        .map(|(after, before)| after - before)
        .collect()
}

async fn a_label_takes_no_further_operation_of_the_store(fixture: Fixture) {
    let call = |key: u32| fixture.engine.operation("pay").key(&key);
    let without = operations(&fixture, call).await;
    assert!(without.iter().sum::<usize>() >= 10, "{without:?}");
    let with = operations(&fixture, |key| labelled(call(key + 2))).await;
    assert_eq!(with, without);
}

/// A version that does not know the kind of the entry reads what this one reads of a kind of a later version.
async fn a_label_of_a_later_version_is_passed_over(fixture: Fixture) {
    down(labelled(fixture.pay())).await;
    let mut bytes = stored(&fixture).await;
    assert_eq!((bytes[0], bytes[56 + 4]), (b'4', b'k'));
    bytes[56 + 4] = b'z';
    fixture.plant(&bytes);
    assert_eq!(label(&fixture).await, None);
    assert_eq!(ends(&fixture).await, [AttemptEnd::SystemError]);
    crashed(&fixture, fixture.pay()).await;
    timed_out(fixture.pay()).await;
    let ends_then = ends(&fixture).await;
    assert_eq!(
        ends_then,
        [
            AttemptEnd::SystemError,
            AttemptEnd::Lapsed,
            AttemptEnd::Unknown
        ]
    );
    // The entry is passed on as it is.
    assert!(contains(&stored(&fixture).await, "order …4711"));
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
    let labels = bytes.windows("order …4711".len());
    let labels = labels.filter(|part| *part == "order …4711".as_bytes());
    assert_eq!(labels.count(), 1);
}

/// An engine on a file, whose records have at most 1 KiB.
async fn on_file(dir: &TestDir) -> Engine {
    let url = format!("sqlite:{}", dir.path().join("idem.db").display());
    let store = SqliteStore::builder(&url).max_record_bytes(1 << 10);
    let store = store.connect().await.unwrap();
    store.migrate().await.unwrap();
    Engine::builder(store).instance("i").build().unwrap()
}

/// The label is left out where it does not fit, and the attempts where they do not fit either.
#[tokio::test]
async fn a_label_gives_way_to_attempts_and_to_the_answer() {
    let dir = TestDir::new("labels").unwrap();
    let engine = on_file(&dir).await;
    let mut seen = Vec::new();
    for bytes in 600..1_000 {
        let call = || {
            let call = engine.operation("memo").key(&bytes);
            call.label(&"l".repeat(64))
        };
        let failed = call().run(|_| async { Err::<String, _>(PayError::Down) });
        assert_eq!(failed.await, Err(PayError::Down));
        let memo = "x".repeat(bytes);
        let answer = call().run(|_| async { Ok::<_, PayError>(memo.clone()) });
        assert_eq!(answer.await.as_ref(), Ok(&memo));
        let entry = call().entry().await.unwrap().unwrap();
        if entry.state() == EntryState::NotStored {
            break;
        }
        let Some(length) = entry.record_bytes() else {
            panic!("it was read");
        };
        assert!(length <= 1 << 10, "{bytes}: {length}");
        seen.push((entry.label().is_some(), entry.recorded_attempts().len()));
        let again = call().run(|_| async { Err::<String, _>(PayError::Down) });
        assert_eq!(again.await, Ok(memo), "{bytes}");
    }
    seen.dedup();
    assert_eq!(seen, [(true, 2), (false, 2), (false, 0)]);
}

/// The same for records without an answer.
#[tokio::test]
async fn a_label_gives_way_to_the_attempt_of_a_full_journal() {
    let dir = TestDir::new("labels").unwrap();
    let engine = on_file(&dir).await;
    let mut seen = Vec::new();
    for bytes in 600..1_000 {
        let call = engine.operation("print").key(&bytes).label(&"l".repeat(64));
        let answer = call.run(|_| async {
            let print = step("print", async |_| Ok::<_, PayError>("x".repeat(bytes)));
            print.await?;
            Err::<String, _>(PayError::Down)
        });
        if answer.await != Err(PayError::Down) {
            break;
        }
        let entry = engine.operation("print").key(&bytes).entry().await;
        let entry = entry.unwrap().unwrap();
        let finished = StepState::Finished(OutcomeKind::Value);
        if !entry.steps().iter().any(|step| step.state == finished) {
            break;
        }
        seen.push((entry.label().is_some(), entry.recorded_attempts().len()));
    }
    seen.dedup();
    assert_eq!(seen, [(true, 1), (false, 1), (false, 0)]);
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

#[tokio::test]
async fn a_journal_with_a_label_has_attempts_alone() {
    let fixture = Fixture::memory();
    down(labelled(fixture.pay())).await;
    let bytes = stored(&fixture).await;
    let kind = Journal::new(bytes[56..].to_vec().into()).kind();
    assert_eq!(kind, JournalKind::Attempts);
}
