//! The attempts that a record remembers: their bounds, damaged journals, full records, and what is said of each end.

use idem_harness::TestDir;
use idem_runtime::admin::AttemptEnd;
use idem_runtime::step;
use idem_runtime::store::sql::SqliteStore;

use crate::lease_lost::third;
use crate::prelude::*;
use crate::steps::{counted, without_reply};

on_every_store![
    a_step_whose_beginning_was_not_confirmed_did_not_begin_without_a_recorder,
    no_more_than_sixteen_unknown_attempts_are_kept,
    no_more_than_sixteen_attempts_of_both_kinds_are_kept,
    a_reset_drops_steps_that_cannot_be_read,
    an_answer_does_not_take_steps_along_that_cannot_be_read,
    a_value_that_was_not_kept_is_explained,
    a_caller_that_went_away_is_explained,
    a_body_that_idem_cancelled_is_not_explained_by_its_caller,
    a_business_error_that_is_not_kept_is_no_system_error,
    the_last_of_many_crashes_is_recorded,
];

async fn recorded(fixture: &Fixture) -> usize {
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    entry.recorded_attempts().len()
}

/// As of `steps_at_the_edge`.
async fn a_step_whose_beginning_was_not_confirmed_did_not_begin_without_a_recorder(
    fixture: Fixture,
) {
    let fixture = fixture.with(|engine| engine.record_attempts(false));
    let mail = Runs::default();
    // It arrives, and its reply does not.
    fixture.fail(StoreOperation::Append, [Fault::ReplyHangs]);
    let answer = fixture.pay().run(|_| async {
        let refused = refusal(counted("mail", &mail).once().await);
        assert_eq!(*refused.kind(), ErrorKind::StoreUnavailable, "{refused}");
        Err(PayError::Down) as Answer
    });
    assert_eq!(without_reply(&fixture, answer).await, Err(PayError::Down));
    assert_eq!(mail.count(), 0);
    let answer = fixture.pay_far().run(|_| counted("mail", &mail).once());
    assert_eq!(answer.await, receipt(1));
}

async fn no_more_than_sixteen_unknown_attempts_are_kept(fixture: Fixture) {
    for _ in 0..30 {
        let answer = fixture.pay().max_attempts(None).run_reconciled(
            |_| async { Reconciled::<Receipt>::NotLanded },
            |_| async { Err(PayError::TimedOut) as Answer },
        );
        assert_eq!(answer.await, Err(PayError::TimedOut));
    }
    let kept = recorded(&fixture).await;
    assert!(kept <= 16, "{kept}");
}

async fn no_more_than_sixteen_attempts_of_both_kinds_are_kept(fixture: Fixture) {
    for _ in 0..16 {
        down(fixture.pay()).await;
    }
    for _ in 0..4 {
        crashed(&fixture, fixture.pay()).await;
    }
    let kept = recorded(&fixture).await;
    assert!(kept <= 16, "{kept}");
}

/// A released record, with a finished step behind which there is an entry of a later version.
async fn with_unreadable_steps(fixture: &Fixture, charge: &Runs) {
    let answer = fixture.pay().run(|_| async {
        counted("charge", charge).await?;
        Err(PayError::Down) as Answer
    });
    assert_eq!(answer.await, Err(PayError::Down));
    let ReadReply::Found { record, .. } = fixture.store.read(&fixture.key()).await.unwrap() else {
        panic!("there is a record");
    };
    fixture.plant(&[record.as_bytes(), b"\0\0\0\x09Z12345678"].concat());
    let answer = fixture.pay().run(|_| counted("charge", charge));
    assert_eq!(*refusal(answer.await).kind(), ErrorKind::UnknownRecord);
}

async fn a_reset_drops_steps_that_cannot_be_read(fixture: Fixture) {
    let charge = Runs::default();
    with_unreadable_steps(&fixture, &charge).await;
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    entry.reset_with_steps().await.unwrap();
    let answer = fixture.pay().run(|_| counted("charge", &charge));
    assert_eq!(answer.await, receipt(2));
}

async fn an_answer_does_not_take_steps_along_that_cannot_be_read(fixture: Fixture) {
    let charge = Runs::default();
    with_unreadable_steps(&fixture, &charge).await;
    // A body without the steps.
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    assert_eq!(entry.steps(), [], "empty once the call is answered");
}

async fn a_value_that_was_not_kept_is_explained(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.max_value_bytes(8));
    let call = || fixture.engine.operation("memo").key(&1);
    let memo = |value: Result<String, PayError>| call().run(|_| async { value });
    assert_eq!(memo(Err(PayError::Down)).await, Err(PayError::Down));
    assert!(memo(Ok("x".repeat(100))).await.is_ok());
    let entry = call().entry().await.unwrap().unwrap();
    assert_eq!(entry.state(), EntryState::NotStored);
    let last = entry.recorded_attempts().pop().unwrap();
    let explained = last.end.explanation();
    assert!(!explained.contains("every later call gets"), "{explained}");
}

async fn a_caller_that_went_away_is_explained(fixture: Fixture) {
    // By default the claim is held: `on_cancel = hold`.
    crashed(&fixture, fixture.pay()).await;
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    let first = &entry.recorded_attempts()[0];
    assert_eq!(first.end, AttemptEnd::Lapsed);
    let explained = first.end.explanation();
    assert!(explained.contains("caller"), "{explained}");
}

async fn a_body_that_idem_cancelled_is_not_explained_by_its_caller(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.max_run(Duration::from_secs(15)));
    let call = (fixture.pay().on_lease_lost(OnLeaseLost::Cancel)).on_cancel(OnCancel::Unknown);
    let body = Body::start(call, receipt(7)).await;
    third(&fixture).await;
    fixture.events.wait_for("renewed", 1).await;
    fixture.pass_in_store(Duration::from_secs(5));
    fixture.clock.advance(Duration::from_secs(5));
    // The caller waits, and is told.
    assert_unknown(&refusal(until(&fixture, body.join()).await));
    let entry = fixture.pay_far().entry().await.unwrap().unwrap();
    let explained = entry.recorded_attempts()[0].end.explanation();
    assert!(!explained.contains("its caller dropped it"), "{explained}");
}

async fn a_business_error_that_is_not_kept_is_no_system_error(fixture: Fixture) {
    let call = fixture.pay().on_error(idem_runtime::on_error::Release);
    let declined = Err(PayError::Declined { run: 0 });
    let answer = call.run(|_| async { Err::<Receipt, _>(PayError::Declined { run: 0 }) });
    assert_eq!(answer.await, declined);
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    let explained = entry.recorded_attempts()[0].end.explanation();
    assert!(!explained.contains("system error"), "{explained}");
}

async fn the_last_of_many_crashes_is_recorded(fixture: Fixture) {
    for _ in 0..20 {
        crashed(&fixture, fixture.pay().max_attempts(None)).await;
    }
    assert_eq!(
        paid(fixture.pay().max_attempts(None), &Runs::default()).await,
        receipt(1)
    );
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    let recorded = entry.recorded_attempts();
    let lapsed = recorded
        .iter()
        .rev()
        .find(|attempt| attempt.end == AttemptEnd::Lapsed);
    // "At most 16 are kept: the first, and the last ones."
    assert_eq!(lapsed.unwrap().number, 20);
}

/// An engine on a file, whose records have at most 1 KiB.
async fn on_file(dir: &TestDir) -> Engine {
    let url = format!("sqlite:{}", dir.path().join("idem.db").display());
    let store = SqliteStore::builder(&url).max_record_bytes(1 << 10);
    let store = store.connect().await.unwrap();
    store.migrate().await.unwrap();
    let engine = Engine::builder(store).instance("i".repeat(64));
    engine.build().unwrap()
}

#[tokio::test]
async fn an_answer_after_a_failure_is_listed() {
    let dir = TestDir::new("attempts").unwrap();
    let engine = on_file(&dir).await;
    let pay = || engine.operation("pay").key(&7);
    down(pay()).await;
    assert_eq!(paid(pay(), &Runs::default()).await, receipt(1));
    let page = engine.entries().next_page().await.unwrap().unwrap();
    assert_eq!((page.entries().len(), page.unreadable()), (1, 0));
}

#[tokio::test]
async fn an_answer_by_hand_is_no_longer_than_the_store_reads() {
    let dir = TestDir::new("attempts").unwrap();
    let engine = on_file(&dir).await;
    for bytes in [700, 800, 900, 920, 940, 950, 960, 970] {
        let call = || engine.operation("memo").key(&bytes);
        let unknown = call().run(|_| async { Err(PayError::TimedOut) as Result<String, PayError> });
        assert_eq!(unknown.await, Err(PayError::TimedOut));
        let entry = call().entry().await.unwrap().unwrap();
        if entry.resolve(&"x".repeat(bytes)).await.is_err() {
            continue;
        }
        let answer = call().run(|_| async { Err(PayError::Down) as Result<String, PayError> });
        assert_eq!(answer.await, Ok("x".repeat(bytes)), "{bytes}");
    }
}

#[tokio::test]
async fn a_full_journal_is_read_again() {
    let dir = TestDir::new("attempts").unwrap();
    let engine = on_file(&dir).await;
    for bytes in [700, 800, 820, 840, 850, 860, 870, 880, 890, 900] {
        let printed = Runs::default();
        let call = |ends: Answer| {
            let (printed, call) = (&printed, engine.operation("print").key(&bytes));
            call.run(move |_| async move {
                let label = step("label", async |_| {
                    let _ = printed.start();
                    Ok::<_, PayError>("x".repeat(bytes))
                });
                label.await?;
                ends
            })
        };
        assert_eq!(call(Err(PayError::Down)).await, Err(PayError::Down));
        match call(receipt(1)).await {
            Ok(_) => {}
            Err(PayError::Idem(error)) if *error.kind() == ErrorKind::NotStored => {}
            other => panic!("{bytes}: {other:?}"),
        }
        assert_eq!(printed.count(), 1, "{bytes}");
    }
}
