//! Encrypted answers: which call, request and engine an answer is read for.

use idem_runtime::{
    __private::FingerprintBuilder, codec::EncryptionKeys, fingerprint::Fingerprint,
};

use crate::prelude::*;
use crate::rows::Row;

on_every_store! {
    without_its_key_an_answer_is_kept_and_not_run_again,
    an_answer_that_was_moved_to_another_key_or_prefix_is_refused,
    an_answer_that_was_given_another_fingerprint_is_refused,
    an_answer_by_hand_is_for_the_request_of_its_entry,
    an_answer_without_a_body_and_one_by_hand_are_sealed, secrets_are_in_no_message,
}

/// An encryption key in a `Debug` of its bytes.
const SECRET: [u8; 32] = *b"secret-marker secret-marker 1234";
const MEMO: &str = "answer-marker";

fn keys() -> EncryptionKeys {
    EncryptionKeys::new(7, SECRET)
}

fn never<T>() -> Result<T, PayError> {
    unreachable!("this body must not run")
}

/// Calls, and is refused as undecodable.
async fn refused(fixture: &Fixture) {
    let answer = fixture.pay().run(|_| async { never::<String>() }).await;
    let PayError::Idem(error) = answer.unwrap_err() else {
        unreachable!("the body does not run")
    };
    assert_eq!(error.kind(), &ErrorKind::Undecodable);
    assert!(!error.is_retryable());
    let told = format!("{error} {error:?}");
    assert!(!told.contains("marker"), "{told}");
}

async fn write(call: Pay) {
    let written = call.run(|_| async { Ok::<_, PayError>(MEMO.to_owned()) });
    assert_eq!(written.await.as_deref(), Ok(MEMO));
}

async fn without_its_key_an_answer_is_kept_and_not_run_again(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.encrypt(keys()));
    write(fixture.pay()).await;
    let before = stored(&fixture, 7).await;
    let fixture = fixture.with(|engine| engine);
    refused(&fixture).await;
    let fixture = fixture.with(|engine| engine.encrypt(EncryptionKeys::new(7, [0; 32])));
    refused(&fixture).await;
    assert_eq!(stored(&fixture, 7).await, before, "it is as it was");
    let fixture =
        fixture.with(|engine| engine.encrypt(EncryptionKeys::new(8, [8; 32]).also(7, SECRET)));
    write(fixture.pay()).await;
    assert_eq!(fixture.events.count("claimed"), 1);
}

async fn an_answer_that_was_moved_to_another_key_or_prefix_is_refused(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.encrypt(keys()));
    write(fixture.engine.operation("pay").key(&8)).await;
    let prefixed = Fixture::memory().with(|engine| engine.encrypt(keys()));
    write(prefixed.pay()).await;
    for moved in [stored(&fixture, 8).await, stored(&prefixed, 7).await] {
        fixture.plant(&moved);
        refused(&fixture).await;
    }
}

/// The fingerprint of a payment of 99.99.
fn of_another_amount() -> Fingerprint {
    let asked = FingerprintBuilder::value("pay", &9_999_u64).finish();
    asked.unwrap().fingerprint()
}

/// The answer to a payment of 12.50 never answers one of 99.99. This holds in spite of its header.
async fn an_answer_that_was_given_another_fingerprint_is_refused(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.encrypt(keys()));
    let pay = |cents: u64| fixture.pay().fingerprint(&cents);
    write(pay(1_250)).await;
    let genuine = stored(&fixture, 7).await;
    let other = of_another_amount();
    for planted in [Fingerprint::NONE, other] {
        let mut changed = genuine.clone();
        changed[36..52].copy_from_slice(planted.as_bytes());
        fixture.plant(&changed);
        let answer = pay(9_999).run(|_| async { never::<String>() }).await;
        let PayError::Idem(error) = answer.unwrap_err() else {
            unreachable!("the body does not run")
        };
        assert_eq!(error.kind(), &ErrorKind::Undecodable, "{planted:?}");
    }
    fixture.plant(&genuine);
    let again = pay(1_250).run(|_| async { never::<String>() }).await;
    assert_eq!(again.as_deref(), Ok(MEMO));
}

/// An operator's answer to a payment of 12.50 answers no other one.
async fn an_answer_by_hand_is_for_the_request_of_its_entry(fixture: Fixture) {
    let pay = |cents: u64| fixture.pay().fingerprint(&cents);
    let unknown = pay(1_250).run(|_| async { Err::<String, _>(PayError::TimedOut) });
    assert_eq!(unknown.await, Err(PayError::TimedOut));
    let genuine = stored(&fixture, 7).await;
    let mut changed = genuine.clone();
    changed[36..52].copy_from_slice(of_another_amount().as_bytes());
    fixture.plant(&changed);
    let of_call = pay(1_250).entry().await.unwrap().unwrap();
    let error = of_call.resolve(&MEMO.to_owned()).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Mismatch);
    assert_eq!(stored(&fixture, 7).await, changed, "nothing was changed");
    // An entry obtained without a request settles the stored record.
    fixture.plant(&genuine);
    let seen = entry(&fixture).await;
    seen.resolve(&MEMO.to_owned()).await.unwrap();
    let again = pay(1_250).run(|_| async { never::<String>() }).await;
    assert_eq!(again.as_deref(), Ok(MEMO));
}

async fn an_answer_without_a_body_and_one_by_hand_are_sealed(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.encrypt(keys()));
    for by_hand in [false, true] {
        let _row = Row::new(&fixture, ("by hand", by_hand));
        let claim = claimed(fixture.pay()).await;
        if by_hand {
            claim.release().await;
            let seen = entry(&fixture).await;
            seen.resolve(&MEMO.to_owned()).await.unwrap();
        } else {
            claim.complete(MEMO.to_owned()).await.unwrap();
        }
        let record = stored(&fixture, 7).await;
        assert!(!record.windows(6).any(|part| part == b"marker"));
        let Acquired::Replay(stored) = fixture.pay().begin().await.unwrap() else {
            unreachable!("it is done")
        };
        assert_eq!(stored.decode::<String>().unwrap(), MEMO);
    }
}

async fn secrets_are_in_no_message(fixture: Fixture) {
    let builder = Engine::builder(fixture.store.clone()).encrypt(keys());
    let mut told = vec![format!("{:?}", keys()), format!("{builder:?}")];
    let fixture = fixture.with(|engine| engine.encrypt(keys().also(8, SECRET)));
    let claim = claimed(fixture.pay()).await;
    told.push(format!("{:?} {claim:?}", fixture.engine));
    let completion = claim.complete(MEMO.to_owned()).await.unwrap();
    told.push(format!("{completion:?}"));
    let done = fixture.pay().begin().await.unwrap();
    told.push(format!("{done:?}"));
    let twice = Engine::builder(fixture.store.clone()).encrypt(keys().also(7, SECRET));
    let error = twice.build().unwrap_err();
    told.push(format!("{error} {error:?}"));
    told.extend(fixture.events.all());
    let bytes = format!("{SECRET:?}");
    let bytes = bytes.trim_matches(['[', ']']);
    for text in told {
        assert!(!text.contains("marker") && !text.contains(bytes), "{text}");
    }
}
