//! Inspecting a record and settling it by hand: the operator names the record that he saw, and nothing else is
//! changed.

use idem_runtime::admin::Entry;
use idem_runtime::store::{Fence, OutcomeKind};
use serde::{Deserialize, Serialize};

use crate::prelude::*;
use crate::rows::Row;

on_every_store! {
    an_entry_shows_where_a_call_stands, an_entry_is_found_by_the_digest_of_its_key,
    a_resolution_is_replayed, a_resolution_lives_for_the_ttl_of_its_operation,
    a_record_reset_without_the_operations_ttl_keeps_its_fence_as_long_as_before,
    a_reset_key_runs_again_with_a_higher_fence, a_running_call_cannot_be_settled,
    a_record_in_reconciliation_cannot_be_settled, a_stale_entry_changes_nothing,
    a_resolution_that_the_store_does_not_answer_is_reported,
    a_value_that_cannot_be_stored_or_read_back_resolves_nothing,
}

const FOUND: Receipt = Receipt { run: 9 };

fn declined() -> PayError {
    PayError::Declined { run: 3 }
}

async fn entry_of(call: Pay) -> Entry {
    call.entry().await.unwrap().expect("there is a record")
}

/// Resolves with a value or an error, and returns later calls' answer.
async fn resolved(entry: Entry, is_error: bool) -> Answer {
    if is_error {
        entry.resolve_error(&declined()).await.unwrap();
        Err(declined())
    } else {
        entry.resolve(&FOUND).await.unwrap();
        Ok(FOUND)
    }
}

fn assert_kind(result: Result<(), Error>, kind: &ErrorKind) {
    assert_eq!(result.unwrap_err().kind(), kind);
}

async fn an_entry_shows_where_a_call_stands(fixture: Fixture) {
    assert!(fixture.pay().entry().await.unwrap().is_none());
    let body = Body::start(fixture.pay(), Err(PayError::Down)).await;
    let running = entry(&fixture).await;
    let EntryState::Running { lease_left } = running.state() else {
        panic!("{running:?}")
    };
    assert!(lease_left > Duration::from_secs(25) && lease_left <= Duration::from_secs(30));
    assert_eq!(running.attempts(), 1);
    assert_eq!(running.key(), fixture.key().digest());
    assert!(running.fence() > Fence::default());
    assert!(running.left() > Duration::from_hours(23));
    body.end().await.unwrap_err();
    assert_eq!(stands(&fixture).await, (EntryState::Released, 0));
    crashed(&fixture, fixture.pay()).await;
    assert_eq!(stands(&fixture).await, (EntryState::Abandoned, 1));
    assert!(entry(&fixture).await.age() >= LEASE_OVER);
    timed_out(fixture.pay()).await;
    assert_eq!(stands(&fixture).await, (EntryState::Unknown, 2));
    let last = entry(&fixture).await;
    assert!(last.fence() > running.fence());
    last.resolve(&FOUND).await.unwrap();
    let answered = EntryState::Answered(OutcomeKind::Value);
    assert_eq!(stands(&fixture).await.0, answered);
    let fixture = fixture.with(|engine| engine.max_value_bytes(1));
    entry(&fixture).await.reset().await.unwrap();
    assert_eq!(paid(fixture.pay(), &Runs::default()).await, receipt(1));
    assert_eq!(stands(&fixture).await.0, EntryState::NotStored);
}

async fn an_entry_is_found_by_the_digest_of_its_key(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let digest = fixture.key().digest().to_string();
    let found = fixture.far.entry("pay", &digest).await.unwrap().unwrap();
    assert_eq!(found.state(), EntryState::Unknown);
    found.resolve(&FOUND).await.unwrap();
    assert_eq!(answered(fixture.pay()).await, receipt(9));
    let other = fixture.far.entry("refund", &digest).await;
    assert!(other.unwrap().is_none());
    for bad in ["", "7", &digest[1..], "🦀"] {
        let error = fixture.far.entry("pay", bad).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::InvalidKey, "{bad:?}");
    }
}

async fn a_resolution_is_replayed(fixture: Fixture) {
    for (key, (lapses, is_error)) in [(false, false), (false, true), (true, false)]
        .into_iter()
        .enumerate()
    {
        let [near, far] =
            [&fixture.engine, &fixture.far].map(|it| || it.operation("pay").key(&key));
        if lapses {
            crashed(&fixture, near()).await;
        } else {
            timed_out(near()).await;
        }
        let answer = resolved(entry_of(near()).await, is_error).await;
        for call in [near(), far()] {
            assert_eq!(answered(call).await, answer, "lapses: {lapses}");
        }
        let stored = entry_of(near()).await.stored_answer();
        assert!(!stored.expect("it is answered").is_encrypted());
    }
    let told = ["resolved value", "resolved error"];
    assert_eq!(told.map(|event| fixture.events.count(event)), [2, 1]);
}

/// How an operator finds a record.
#[derive(Clone, Copy, Debug)]
enum By {
    /// With the policy of the operation.
    Call,
    /// Without it.
    Key,
    /// With the digest in a log.
    Digest,
}

async fn a_resolution_lives_for_the_ttl_of_its_operation(fixture: Fixture) {
    let (minutes, day) = (Duration::from_mins(10), Duration::from_hours(24));
    for (name, by, [ttl, error_ttl], is_error, life) in [
        ("a value", By::Call, [minutes, day], false, minutes),
        ("a longer error", By::Call, [day, 2 * day], true, 2 * day),
        ("a shorter error", By::Call, [day, minutes], true, day),
        (
            "an error by its key",
            By::Key,
            [30 * day; 2],
            true,
            30 * day,
        ),
        (
            "a value by its digest",
            By::Digest,
            [7 * day; 2],
            false,
            7 * day,
        ),
    ] {
        let key = || fixture.engine.operation("pay").key(name);
        let call = || key().ttl(ttl).error_ttl(error_ttl);
        timed_out(call()).await;
        let entry = match by {
            By::Call => {
                fixture.pass_in_store(ttl.saturating_sub(Duration::from_mins(1)));
                entry_of(call()).await
            }
            By::Key => entry_of(key()).await,
            By::Digest => {
                let digest = entry_of(key()).await.key().to_string();
                let found = fixture.engine.entry("pay", &digest).await.unwrap();
                found.expect("there is a record")
            }
        };
        let answer = resolved(entry, is_error).await;
        let end = Duration::from_secs(2);
        fixture.pass_in_store(life.saturating_sub(end));
        assert_eq!(answered(call()).await, answer, "{name}");
        fixture.pass_in_store(end);
        let again = paid(call(), &Runs::default()).await;
        assert_eq!(again, receipt(1), "{name}");
    }
}

async fn a_record_reset_without_the_operations_ttl_keeps_its_fence_as_long_as_before(
    fixture: Fixture,
) {
    let days = Duration::from_hours(30 * 24);
    timed_out(fixture.pay().ttl(days)).await;
    let seen = entry(&fixture).await;
    let fence = seen.fence();
    seen.reset().await.unwrap();
    fixture.pass_in_store(days.saturating_sub(Duration::from_secs(2)));
    let (state, attempts) = stands(&fixture).await;
    assert_eq!((state, attempts), (EntryState::Released, 0));
    let body = Body::start(fixture.pay(), receipt(7)).await;
    assert!(entry(&fixture).await.fence() > fence);
    body.end().await.unwrap();
}

async fn a_reset_key_runs_again_with_a_higher_fence(fixture: Fixture) {
    panicked(fixture.pay()).await;
    timed_out(fixture.pay()).await;
    let before = entry(&fixture).await;
    let fence = before.fence();
    before.reset().await.unwrap();
    assert_eq!(fixture.events.count("reset"), 1);
    assert_eq!(stands(&fixture).await, (EntryState::Released, 0));
    let answer = fixture.pay().run(|cx| async move {
        assert!(cx.fence().await? > fence);
        receipt(cx.attempt().into())
    });
    assert_eq!(answer.await, receipt(1));
}

/// None of the three ways of settling changes anything now.
async fn cannot_be_settled(fixture: &Fixture) {
    let results = [
        entry(fixture).await.resolve(&FOUND).await,
        entry(fixture).await.resolve_error(&declined()).await,
        entry(fixture).await.reset().await,
    ];
    for result in results {
        let error = result.unwrap_err();
        let left = assert_running(&error);
        assert!(left > Duration::from_secs(25), "{left:?}");
    }
}

async fn a_running_call_cannot_be_settled(fixture: Fixture) {
    let body = Body::start(fixture.pay(), receipt(7)).await;
    cannot_be_settled(&fixture).await;
    assert_eq!(body.end().await, receipt(7));
}

async fn a_record_in_reconciliation_cannot_be_settled(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let asking = Asking::start(&fixture, fixture.pay()).await;
    cannot_be_settled(&fixture).await;
    assert_eq!(asking.end().await, receipt(7));
}

async fn a_resolution_that_the_store_does_not_answer_is_reported(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let seen = entry(&fixture).await;
    fixture.fail(StoreOperation::Resolve, [Fault::Hangs]);
    let resolving = tokio::spawn(async move { seen.resolve(&FOUND).await });
    sent(&fixture, StoreOperation::Resolve, 1).await;
    fixture.clock.advance(Duration::from_secs(2));
    assert_kind(resolving.await.unwrap(), &ErrorKind::StoreUnavailable);
    let call = fixture.pay().on_running(OnRunning::Reject);
    assert_unknown(&refusal(answered(call).await));
}

#[derive(Serialize, Deserialize)]
struct OneWay {
    #[serde(rename(serialize = "number"))]
    run: u32,
}

/// Every call would be refused: as not stored, or as undecodable.
async fn a_value_that_cannot_be_stored_or_read_back_resolves_nothing(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let result = entry(&fixture).await.resolve(&OneWay { run: 9 }).await;
    assert_kind(result, &ErrorKind::NotStored);
    let fixture = fixture.with(|engine| engine.max_value_bytes(1));
    // The connection of its reads ended with the engine before it, so the read may be sent twice.
    let seen = until(&fixture, entry(&fixture)).await;
    assert_kind(seen.resolve(&FOUND).await, &ErrorKind::NotStored);
    assert_eq!(stands(&fixture).await, (EntryState::Unknown, 1));
}

async fn a_stale_entry_changes_nothing(fixture: Fixture) {
    let minute = Duration::from_mins(1);
    for row in ["a resolution", "a failure", "its time"] {
        let _row = Row::new(&fixture, ("after", row));
        timed_out(fixture.pay_far().ttl(minute)).await;
        if row == "a failure" {
            entry(&fixture).await.reset().await.unwrap();
            crashed(&fixture, fixture.pay_far()).await;
        }
        let [first, second, third] = [
            entry(&fixture).await,
            entry(&fixture).await,
            entry(&fixture).await,
        ];
        match row {
            "a resolution" => entry(&fixture).await.resolve(&FOUND).await.unwrap(),
            // As it was, but for the fence.
            "a failure" => down(fixture.pay_far()).await,
            _ => fixture.pass_in_store(minute),
        }
        let before = fixture.pay().entry().await.unwrap();
        let before = before.map(|it| (it.attempts(), it.fence()));
        for result in [
            first.resolve(&FOUND).await,
            second.resolve_error(&declined()).await,
            third.reset().await,
        ] {
            assert_kind(result, &ErrorKind::Changed);
        }
        let now = fixture.pay().entry().await.unwrap();
        assert_eq!(now.map(|it| (it.attempts(), it.fence())), before);
        if row == "a resolution" {
            assert_eq!(answered(fixture.pay()).await, Ok(FOUND));
        }
    }
}
