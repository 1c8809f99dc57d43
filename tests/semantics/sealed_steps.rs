//! What a reader and a writer of the store make of recorded steps, with encryption.

use std::ops::Range;

use idem_runtime::codec::EncryptionKeys;
use idem_runtime::key::{KeyBuilder, Operation};
use idem_runtime::step;
use idem_runtime::store::RecordKey;

use crate::prelude::*;

on_every_store![
    the_results_of_steps_are_sealed,
    a_result_that_was_moved_to_another_step_is_refused,
    a_result_that_was_moved_to_another_call_is_refused,
    an_error_of_a_step_that_was_made_a_value_is_refused,
    a_plain_result_is_refused_unless_it_is_accepted,
    a_result_by_hand_is_sealed,
];

const MARKER: &str = "marker of a receipt";

fn encrypted(fixture: Fixture) -> Fixture {
    fixture.with(|engine| engine.encrypt(EncryptionKeys::new(7, [7; 32])))
}

/// The call of this key records these steps, and ends with a system error.
async fn recorded<const N: usize>(
    fixture: &Fixture,
    key: u32,
    steps: [(&'static str, Result<&'static str, PayError>); N],
) {
    let call = fixture.engine.operation("pay").key(&key);
    let answer = call.run(|_| async {
        for (name, result) in steps {
            let result = result.map(str::to_owned);
            drop(step(name, async |_| result.clone()).await);
        }
        Err::<String, _>(PayError::Down)
    });
    assert_eq!(answer.await, Err(PayError::Down));
}

/// The record of the call of this key, and the place of each step's result in it.
async fn record(fixture: &Fixture, key: u32) -> (Vec<u8>, Vec<Range<usize>>) {
    let digest = KeyBuilder::new("pay", 1024).key(&key).unwrap();
    let place = RecordKey::new(fixture.key().prefix().into(), Operation::new("pay"), digest);
    let Ok(ReadReply::Found { record, .. }) = fixture.store.read(&place).await else {
        panic!("there is a record");
    };
    let bytes = record.as_bytes().to_vec();
    let mut at = bytes.len() - record.journal().as_bytes().len();
    let mut results = Vec::new();
    while at < bytes.len() {
        // As the layout in `record/journal.rs` says.
        let len: [u8; 4] = bytes[at..at + 4].try_into().unwrap();
        let end = at + 4 + usize::try_from(u32::from_be_bytes(len)).unwrap();
        // A small letter is no step.
        if bytes[at + 4].is_ascii_uppercase() {
            results.push(at + 48 + usize::from(bytes[at + 47])..end);
        }
        at = end;
    }
    (bytes, results)
}

/// The refusal of this step in the next attempt of the call of key 7. Its part does not run.
async fn refused(fixture: &Fixture, name: &'static str) -> String {
    let call = fixture.pay().run(|_| async {
        let part = async |_| -> Result<String, PayError> { unreachable!("this part must not run") };
        step(name, part).await
    });
    let Err(PayError::Idem(error)) = call.await else {
        panic!("the step was not refused");
    };
    assert_eq!(error.kind(), &ErrorKind::Undecodable);
    for text in [error.to_string(), format!("{error:?}")] {
        assert!(!text.contains("marker"), "{text}");
    }
    error.to_string()
}

async fn the_results_of_steps_are_sealed(fixture: Fixture) {
    let fixture = encrypted(fixture);
    let declined = Err(PayError::Declined { run: 1 });
    recorded(&fixture, 7, [("charge", Ok(MARKER)), ("check", declined)]).await;
    let (bytes, results) = record(&fixture, 7).await;
    assert_eq!(results.len(), 2);
    let text = String::from_utf8_lossy(&bytes);
    for sealed in [MARKER, "Declined", "run"] {
        assert!(!text.contains(sealed), "{sealed}");
    }
    assert!(
        text.contains("charge"),
        "the first part of a name is not confidential"
    );
    let again = fixture.pay().run(|_| async {
        let part = async |_| -> Result<String, PayError> { unreachable!("it is recorded") };
        step("charge", part).await
    });
    assert_eq!(again.await.as_deref(), Ok(MARKER));
}

async fn a_result_that_was_moved_to_another_step_is_refused(fixture: Fixture) {
    let fixture = encrypted(fixture);
    recorded(
        &fixture,
        7,
        [("charge", Ok("ch-1")), ("refund", Ok("re-1"))],
    )
    .await;
    let (mut bytes, results) = record(&fixture, 7).await;
    let charge = bytes[results[0].clone()].to_vec();
    assert_eq!(charge.len(), results[1].len());
    bytes[results[1].clone()].copy_from_slice(&charge);
    fixture.plant(&bytes);
    refused(&fixture, "refund").await;
}

async fn a_result_that_was_moved_to_another_call_is_refused(fixture: Fixture) {
    let fixture = encrypted(fixture);
    recorded(&fixture, 7, [("charge", Ok("ch-1"))]).await;
    recorded(&fixture, 8, [("charge", Ok("ch-2"))]).await;
    let (mut bytes, results) = record(&fixture, 7).await;
    let (other, of_other) = record(&fixture, 8).await;
    bytes[results[0].clone()].copy_from_slice(&other[of_other[0].clone()]);
    fixture.plant(&bytes);
    refused(&fixture, "charge").await;
}

async fn an_error_of_a_step_that_was_made_a_value_is_refused(fixture: Fixture) {
    let fixture = encrypted(fixture);
    let declined = Err(PayError::Declined { run: 1 });
    recorded(&fixture, 7, [("charge", declined), ("refund", Ok("re-1"))]).await;
    let (mut bytes, results) = record(&fixture, 7).await;
    let [charge, refund] = [0, 1].map(|step| results[step].start - 48 - "charge".len());
    assert_eq!(bytes[charge + 4], b'E');
    // The kind and the type of a value.
    for (from, len) in [(4, 1), (27, 4)] {
        let of_value = bytes[refund + from..refund + from + len].to_vec();
        bytes[charge + from..charge + from + len].copy_from_slice(&of_value);
    }
    fixture.plant(&bytes);
    refused(&fixture, "charge").await;
}

async fn a_plain_result_is_refused_unless_it_is_accepted(fixture: Fixture) {
    recorded(&fixture, 7, [("charge", Ok(MARKER))]).await;
    let fixture = encrypted(fixture);
    assert!(
        refused(&fixture, "charge")
            .await
            .contains("`accept_plaintext`")
    );
    let fixture = fixture.with(|engine| {
        engine
            .encrypt(EncryptionKeys::new(7, [7; 32]))
            .accept_plaintext()
    });
    let again = fixture.pay().run(|_| async {
        let part = async |_| -> Result<String, PayError> { unreachable!("it is recorded") };
        step("charge", part).await
    });
    assert_eq!(again.await.as_deref(), Ok(MARKER));
}

/// Finds a value by hand that lies open in the store, or that no attempt can read.
async fn a_result_by_hand_is_sealed(fixture: Fixture) {
    let fixture = encrypted(fixture);
    let order = async |charged: Result<String, PayError>| {
        let call = fixture.engine.operation("pay").key(&1);
        let body = call.run(|_| async {
            let one = step("charge", async |_| charged.clone()).once().await?;
            step(("charge", 2), async |_| charged).once().await?;
            Ok(one)
        });
        body.await
    };
    let unknown = || Err(PayError::TimedOut);
    assert_eq!(order(unknown()).await, unknown());
    let entry = async || {
        let call = fixture.engine.operation("pay").key(&1);
        call.entry().await.unwrap().unwrap()
    };
    let json = format!("{MARKER:?}");
    let happened = [("charge", Reconciled::Landed(&*json))];
    entry().await.reset_steps(&happened).await.unwrap();
    let (bytes, _) = record(&fixture, 1).await;
    let lies_open = bytes
        .windows(MARKER.len())
        .any(|part| part == MARKER.as_bytes());
    assert!(!lies_open, "the marker is in the store");
    // The first one is read, and the second one is unknown.
    assert_eq!(order(unknown()).await, unknown());
    let parts = entry().await.reset_steps(&happened).await.unwrap_err();
    assert!(parts.to_string().contains("several parts"), "{parts}");
    let not = [("charge", Reconciled::NotLanded)];
    entry().await.reset_steps(&not).await.unwrap();
    assert_eq!(order(Ok("second".to_owned())).await, Ok(MARKER.to_owned()));
}
