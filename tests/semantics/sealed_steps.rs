//! Recorded steps before a store's reader and writer, encrypted and keyed.

use std::ops::Range;

use idem_runtime::codec::EncryptionKeys;
use idem_runtime::key::Operation;
use idem_runtime::step;
use idem_runtime::store::RecordKey;

use crate::prelude::*;

on_every_store! {
    the_results_of_steps_are_sealed, a_result_that_was_moved_to_another_step_or_call_is_refused,
    a_plain_result_is_refused_unless_it_is_accepted, a_result_by_hand_is_sealed,
}

const MARKER: &str = "marker of a receipt";

fn encrypted(fixture: Fixture) -> Fixture {
    fixture.with(|engine| engine.encrypt(EncryptionKeys::new(7, [7; 32])))
}

/// The call of this key records these steps, then fails (system error).
async fn recorded(fixture: &Fixture, key: u32, steps: &[(&'static str, Result<&str, PayError>)]) {
    let call = fixture.engine.operation("pay").key(&key);
    let answer = call.run(async |_| {
        for (name, result) in steps {
            let result = result.clone().map(str::to_owned);
            drop(step(*name, async |_| result).await);
        }
        Err::<String, _>(PayError::Down)
    });
    assert_eq!(answer.await, Err(PayError::Down));
}

/// The record of this key's call, and the places of results.
async fn results(fixture: &Fixture, key: u32) -> (Vec<u8>, Vec<Range<usize>>) {
    let record = record(fixture, key).await;
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

/// The step's result in the next attempt of key 7's call. Its part does not run.
async fn again(fixture: &Fixture, name: &'static str) -> Result<String, PayError> {
    let part = async |_| -> Result<String, PayError> { unreachable!("this part must not run") };
    fixture.pay().run(|_| step(name, part)).await
}

/// The next attempt of key 7's call gets no such step.
async fn refused(fixture: &Fixture, name: &'static str) {
    let Err(PayError::Idem(error)) = again(fixture, name).await else {
        panic!("the step was not refused");
    };
    assert_eq!(error.kind(), &ErrorKind::Undecodable);
    let told = format!("{error} {error:?}");
    assert!(!told.contains("marker"), "{told}");
}

async fn the_results_of_steps_are_sealed(fixture: Fixture) {
    let fixture = encrypted(fixture);
    let declined = Err(PayError::Declined { run: 1 });
    recorded(&fixture, 7, &[("charge", Ok(MARKER)), ("check", declined)]).await;
    let bytes = stored(&fixture, 7).await;
    let text = String::from_utf8_lossy(&bytes);
    for sealed in [MARKER, "Declined", "run"] {
        assert!(!text.contains(sealed), "{sealed}");
    }
    // The first part of a name is not confidential.
    assert!(text.contains("charge"));
    assert_eq!(again(&fixture, "charge").await.as_deref(), Ok(MARKER));
}

async fn a_result_that_was_moved_to_another_step_or_call_is_refused(fixture: Fixture) {
    let fixture = encrypted(fixture);
    recorded(
        &fixture,
        7,
        &[("charge", Ok("ch-1")), ("refund", Ok("re-1"))],
    )
    .await;
    recorded(&fixture, 8, &[("charge", Ok("ch-2"))]).await;
    let (genuine, places) = results(&fixture, 7).await;
    let (other, of_other) = results(&fixture, 8).await;
    for (step, place, from) in [
        ("refund", 1, &genuine[places[0].clone()]),
        ("charge", 0, &other[of_other[0].clone()]),
    ] {
        let mut bytes = genuine.clone();
        bytes[places[place].clone()].copy_from_slice(from);
        fixture.plant(&bytes);
        refused(&fixture, step).await;
    }
}

async fn a_plain_result_is_refused_unless_it_is_accepted(fixture: Fixture) {
    recorded(&fixture, 7, &[("charge", Ok(MARKER))]).await;
    let fixture = encrypted(fixture);
    refused(&fixture, "charge").await;
    let fixture = fixture.with(|engine| {
        let engine = engine.encrypt(EncryptionKeys::new(7, [7; 32]));
        engine.accept_plaintext()
    });
    assert_eq!(again(&fixture, "charge").await.as_deref(), Ok(MARKER));
}

/// Finds values that the store shows or no attempt reads.
async fn a_result_by_hand_is_sealed(fixture: Fixture) {
    let fixture = encrypted(fixture);
    recorded(&fixture, 7, &[("charge", Err(PayError::TimedOut))]).await;
    let json = format!("{MARKER:?}");
    let happened = [("charge", Reconciled::Landed(&*json))];
    entry(&fixture).await.reset_steps(&happened).await.unwrap();
    let bytes = stored(&fixture, 7).await;
    assert!(!String::from_utf8_lossy(&bytes).contains(MARKER));
    assert_eq!(again(&fixture, "charge").await.as_deref(), Ok(MARKER));
}

#[tokio::test]
async fn steps_continue_under_the_digest_key_of_their_record() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let before = Engine::builder(Arc::clone(&store)).digest_key([1; 32]);
    let after = Engine::builder(store)
        .digest_key([2; 32])
        .former_digest_key([1; 32]);
    let charge = Runs::default();
    for (engine, ends) in [(before, Err(PayError::Down)), (after, receipt(1))] {
        let call = engine.build().unwrap().operation("pay").key(&7);
        let answer = call.run(async |_| {
            let charge = crate::steps::counted("charge", &charge);
            charge.input(&("card-1", 500)).await?;
            ends.clone()
        });
        assert_eq!(answer.await, ends);
    }
    assert_eq!(charge.count(), 1);
}

#[tokio::test]
async fn a_reader_of_the_store_cannot_try_guesses_against_the_steps_of_a_keyed_engine() {
    let journal = async |secret| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let engine = Engine::builder(Arc::clone(&store)).digest_key(secret);
        let engine = engine.build().unwrap();
        let mut name = None;
        let answer = engine.operation("pay").key(&7).run(|cx| {
            name = Some(*cx.key());
            async {
                let part = async |_| receipt(1);
                step(("charge", "card-1"), part).input(&500).await?;
                Err(PayError::Down) as Answer
            }
        });
        assert_eq!(answer.await, Err(PayError::Down));
        let key = RecordKey::new("idem".into(), Operation::new("pay"), name.unwrap());
        let ReadReply::Found { record, .. } = store.read(&key).await.unwrap() else {
            panic!("there is a record");
        };
        record.journal().as_bytes().clone()
    };
    let (one, other) = (journal([1; 32]).await, journal([2; 32]).await);
    // Of the step, and of its input.
    assert_ne!(one[5..21], other[5..21]);
    assert_ne!(one[31..47], other[31..47]);
    assert_eq!(one[47..54], other[47..54], "operators see the label");
}
