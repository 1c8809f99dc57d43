//! The stored part of a result, and the outcome of a later call.

use crate::prelude::*;

on_every_store![
    a_success_is_replayed,
    a_business_error_is_replayed,
    a_system_error_gives_the_key_back,
    system_errors_never_use_attempts_up,
    an_unknown_outcome_is_kept,
    every_error_policy_is_applied,
    an_answer_lives_for_its_ttl,
    a_kept_error_lives_for_its_own_ttl,
    an_answer_that_is_too_large_leaves_a_tombstone,
    an_answer_that_cannot_be_serialized_leaves_a_tombstone,
    a_large_answer_is_replayed,
    another_type_under_the_same_operation_is_refused_and_not_run,
    a_newer_record_is_refused_and_not_run,
    a_foreign_value_is_refused_and_not_run,
];

async fn a_success_is_replayed(fixture: Fixture) {
    let runs = Runs::default();
    for _ in 0..3 {
        let answer: Result<_, PayError> =
            fixture.pay().run(|_| async { receipt(runs.start()) }).await;
        assert_eq!(answer, receipt(1));
    }
    assert_eq!(runs.count(), 1);
    assert_eq!(
        fixture.events.all(),
        [
            "claimed 1",
            "completed value",
            "replayed value",
            "replayed value"
        ]
    );
}

async fn a_business_error_is_replayed(fixture: Fixture) {
    let runs = Runs::default();
    for _ in 0..3 {
        let answer: Result<Receipt, _> = fixture
            .pay()
            .run(|_| async { Err(PayError::Declined { run: runs.start() }) })
            .await;
        assert_eq!(answer, Err(PayError::Declined { run: 1 }));
    }
    assert_eq!(runs.count(), 1);
    assert_eq!(fixture.events.count("replayed error"), 2);
}

async fn a_system_error_gives_the_key_back(fixture: Fixture) {
    let runs = Runs::default();
    let fail = || {
        fixture
            .pay()
            .run(|_| async { Err::<Receipt, _>(PayError::Down) })
    };
    assert_eq!(fail().await, Err(PayError::Down));
    let answer: Result<_, PayError> = fixture
        .pay()
        .run(|cx| {
            assert_eq!(cx.attempt(), 1, "an attempt given back does not count");
            async { receipt(runs.start()) }
        })
        .await;
    assert_eq!(answer, receipt(1));
    assert_eq!(
        fixture.events.all(),
        ["claimed 1", "released", "claimed 1", "completed value"]
    );
}

async fn system_errors_never_use_attempts_up(fixture: Fixture) {
    let mut fences = Vec::new();
    for _ in 0..20 {
        let answer: Result<Receipt, _> = fixture
            .pay()
            .run(async |cx: Context| {
                fences.push(cx.fence().await.unwrap());
                Err(PayError::Down)
            })
            .await;
        assert_eq!(answer, Err(PayError::Down));
    }
    assert_eq!(fences.len(), 20);
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}

async fn an_unknown_outcome_is_kept(fixture: Fixture) {
    timed_out(fixture.pay()).await;
    let error = refusal(answered(fixture.pay()).await);
    assert_unknown(&error);
    assert!(!error.is_retryable());
}

async fn every_error_policy_is_applied(fixture: Fixture) {
    use idem_runtime::Class;
    let call = |op: &'static str| fixture.engine.operation(op).key(&1);
    let down = |_| async { Err::<Receipt, _>(PayError::Down) };
    for _ in 0..2 {
        assert_eq!(
            call("keep")
                .on_error(idem_runtime::on_error::Keep)
                .run(down)
                .await,
            Err(PayError::Down)
        );
    }
    assert_eq!(fixture.events.count("claimed"), 1);
    for _ in 0..2 {
        let declined = |_| async { Err::<Receipt, _>(PayError::Declined { run: 0 }) };
        let answer = call("release")
            .on_error(idem_runtime::on_error::Release)
            .run(declined)
            .await;
        assert_eq!(answer, Err(PayError::Declined { run: 0 }));
    }
    assert_eq!(fixture.events.count("claimed"), 3);
    let first = call("unknown")
        .on_error(idem_runtime::on_error::Unknown)
        .run(down)
        .await;
    assert_eq!(first, Err(PayError::Down));
    let again = call("unknown")
        .on_error(idem_runtime::on_error::Unknown)
        .run(down)
        .await
        .unwrap_err();
    assert!(matches!(again.kind(), ErrorKind::Unknown { .. }));
    for _ in 0..2 {
        let by = |error: &PayError| match error {
            PayError::Down => Class::Business,
            _ => Class::System,
        };
        assert_eq!(
            call("by")
                .on_error(idem_runtime::on_error::By(by))
                .run(down)
                .await,
            Err(PayError::Down)
        );
    }
    assert_eq!(fixture.events.count("claimed"), 5);
}

async fn an_answer_lives_for_its_ttl(fixture: Fixture) {
    let runs = Runs::default();
    let pay = || {
        let call = fixture.pay().ttl(Duration::from_hours(1));
        call.run(|_| async { receipt(runs.start()) })
    };
    assert_eq!(pay().await, receipt(1));
    fixture.pass_in_store(Duration::from_mins(59));
    assert_eq!(pay().await, receipt(1));
    fixture.pass_in_store(Duration::from_mins(1));
    assert_eq!(pay().await, receipt(2), "after its ttl the key is new");
}

async fn a_kept_error_lives_for_its_own_ttl(fixture: Fixture) {
    let runs = Runs::default();
    let pay = || {
        let call = fixture.pay().ttl(Duration::from_hours(24));
        let call = call.error_ttl(Duration::from_mins(10));
        call.run(|_| async { Err::<Receipt, _>(PayError::Declined { run: runs.start() }) })
    };
    assert_eq!(pay().await, Err(PayError::Declined { run: 1 }));
    fixture.pass_in_store(Duration::from_mins(9));
    assert_eq!(pay().await, Err(PayError::Declined { run: 1 }));
    fixture.pass_in_store(Duration::from_mins(1));
    assert_eq!(pay().await, Err(PayError::Declined { run: 2 }));
}

async fn an_answer_that_is_too_large_leaves_a_tombstone(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.max_value_bytes(100));
    let large = "x".repeat(99);
    let first = fixture
        .pay()
        .run(|_| async { Ok::<_, PayError>(large.clone()) })
        .await;
    assert_eq!(first.as_ref(), Ok(&large), "its own caller gets it");
    assert_eq!(
        fixture.events.count("unsaved: it is larger than 100 bytes"),
        1
    );
    let again = fixture
        .pay()
        .run(|_| async { unreachable!("it happened") as Result<String, PayError> })
        .await;
    assert_eq!(again.unwrap_err().kind(), &ErrorKind::NotStored);
}

async fn an_answer_that_cannot_be_serialized_leaves_a_tombstone(fixture: Fixture) {
    type Odd = std::collections::BTreeMap<(u8, u8), u8>;
    let odd = Odd::from([((1, 2), 3)]);
    let first = fixture
        .pay()
        .run(|_| async { Ok::<_, PayError>(odd.clone()) })
        .await;
    assert_eq!(first, Ok(odd));
    let again = fixture
        .pay()
        .run(|_| async { unreachable!("it happened") as Result<Odd, PayError> })
        .await;
    assert_eq!(again.unwrap_err().kind(), &ErrorKind::NotStored);
}

async fn a_large_answer_is_replayed(fixture: Fixture) {
    for bytes in [8_000, 8_190, 8_191, 8_192, 8_193, 200_000] {
        let text = "é".repeat(bytes / 2);
        let call = || fixture.engine.operation("large").key(&bytes);
        let first = call()
            .run(|_| async { Ok::<_, PayError>(text.clone()) })
            .await;
        assert_eq!(first.as_ref(), Ok(&text));
        let again = call()
            .run(|_| async { unreachable!("replayed") as Result<String, PayError> })
            .await;
        assert!(
            again.as_ref() == Ok(&text),
            "{bytes} bytes came back otherwise"
        );
    }
}

async fn another_type_under_the_same_operation_is_refused_and_not_run(fixture: Fixture) {
    let first = fixture
        .pay()
        .run(|_| async { Ok::<_, PayError>("text".to_owned()) })
        .await;
    assert!(first.is_ok());
    let told = [
        (OnOtherType::Reject, ErrorKind::WrongType, "have this `op`"),
        (
            OnOtherType::Accept,
            ErrorKind::Undecodable,
            "it was written for a type of another name",
        ),
    ];
    for (on_other_type, kind, words) in told {
        let again = fixture
            .pay()
            .on_other_type(on_other_type)
            .run(|_| async { unreachable!("a finished call") as Result<Receipt, PayError> })
            .await;
        let PayError::Idem(error) = again.unwrap_err() else {
            unreachable!()
        };
        assert_eq!(*error.kind(), kind);
        let message = error.to_string();
        assert!(message.contains(words), "{message}");
        assert!(
            !message.contains("text"),
            "the message repeats the stored value: {message}"
        );
    }
    let kept = fixture
        .pay()
        .run(|_| async { Ok::<_, PayError>(String::new()) })
        .await;
    assert_eq!(kept, Ok("text".to_owned()), "the record is as it was");
}

async fn a_newer_record_is_refused_and_not_run(fixture: Fixture) {
    let mut newer = [0_u8; 200];
    newer[0] = b'3';
    refused(&fixture, &newer).await;
}

async fn a_foreign_value_is_refused_and_not_run(fixture: Fixture) {
    refused(&fixture, b"{\"order\":7}").await;
    refused(&fixture, b"2").await;
}

async fn refused(fixture: &Fixture, bytes: &[u8]) {
    fixture.plant(bytes);
    for _ in 0..2 {
        let answer = answered(fixture.pay()).await;
        assert_eq!(answer.unwrap_err().kind(), &ErrorKind::UnknownRecord);
    }
    assert_eq!(fixture.events.count("claimed"), 0);
}
