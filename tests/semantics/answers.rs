//! How answers are written and read when settings are deployed: the formats that meet in one store.

use idem_runtime::store::RecordKey;
use idem_runtime::{
    EngineBuilder,
    codec::{AnswerFormat, EncryptionKeys},
    fingerprint::Fingerprint,
    key::{KeyBuilder, Operation},
};

use crate::prelude::*;

on_every_store![
    every_setting_reads_the_answers_of_every_setting,
    without_its_key_an_answer_is_kept_and_not_run_again,
    an_answer_that_was_moved_to_another_key_is_refused,
    an_answer_that_was_copied_to_another_prefix_is_refused,
    an_answer_that_was_given_another_fingerprint_is_refused,
    an_answer_by_hand_is_for_the_request_of_its_entry,
    an_error_that_was_made_a_value_is_refused,
    plaintext_is_refused_unless_it_is_accepted,
    the_limit_holds_before_compression_and_after_encryption,
    a_claim_without_a_body_seals_its_answer,
    an_answer_by_hand_is_sealed,
    secrets_are_in_no_message,
];

/// What an encryption key looks like in a `Debug` of its bytes.
const SECRET: [u8; 32] = *b"secret-marker secret-marker 1234";
const MEMO: &str = "answer-marker";

fn keys() -> EncryptionKeys {
    EncryptionKeys::new(7, SECRET)
}

type Setting = fn(EngineBuilder) -> EngineBuilder;

/// The settings of four deploys; all can read encrypted answers.
const SETTINGS: [Setting; 5] = [
    |engine| {
        engine
            .encrypt(EncryptionKeys::new(8, [8; 32]).also(7, SECRET))
            .accept_plaintext()
    },
    |engine| engine.encrypt(keys().also(8, [8; 32])).accept_plaintext(),
    |engine| {
        engine
            .encrypt(keys().also(8, [8; 32]))
            .accept_plaintext()
            .answer_format(AnswerFormat::MessagePack)
    },
    |engine| engine.encrypt(keys().also(8, [8; 32])).compress_above(10),
    |engine| {
        engine
            .encrypt(keys().also(8, [8; 32]))
            .accept_plaintext()
            .answer_format(AnswerFormat::MessagePack)
            .compress_above(10)
    },
];

/// The settings of processes without keys.
const PLAIN: [Setting; 4] = [
    |engine| engine,
    |engine| engine.answer_format(AnswerFormat::MessagePack),
    |engine| engine.compress_above(10),
    |engine| {
        engine
            .answer_format(AnswerFormat::MessagePack)
            .compress_above(10)
    },
];

/// Every third call fails for good; the others have an answer that gets smaller when compressed.
fn outcome(number: usize) -> Result<Vec<Receipt>, PayError> {
    match number % 3 {
        0 => Err(PayError::Declined { run: 42 }),
        _ => Ok(vec![Receipt { run: 42 }; 10]),
    }
}

async fn every_setting_reads_the_answers_of_every_setting(mut fixture: Fixture) {
    let mut number = 0;
    // Plaintext is read by every engine that accepts it; encrypted answers by every engine with the key.
    let lenient = SETTINGS.into_iter().enumerate().filter(|(n, _)| *n != 3);
    let lenient: Vec<_> = lenient.map(|(_, setting)| setting).collect();
    let pairs = [
        (&PLAIN[..], [&PLAIN[..], &lenient].concat()),
        (&SETTINGS[..], SETTINGS.to_vec()),
    ];
    for (writers, readers) in &pairs {
        for writer in *writers {
            for reader in readers {
                for _ in 0..3 {
                    number += 1;
                    fixture = fixture.with(writer);
                    let call = fixture.engine.operation("pay").key(&number);
                    let written = call.run(|_| async { outcome(number) }).await;
                    assert_eq!(written, outcome(number));
                    fixture = fixture.with(reader);
                    let call = fixture.engine.operation("pay").key(&number);
                    let read = call.run(|_| async { never() }).await;
                    assert_eq!(read, outcome(number));
                }
            }
        }
    }
    assert_eq!(fixture.events.count("replayed"), number);
}

fn never<T>() -> Result<T, PayError> {
    unreachable!("this body must not run")
}

/// Calls, and is refused as undecodable, twice; what the message says.
async fn refused(fixture: &Fixture) -> String {
    let mut message = String::new();
    for _ in 0..2 {
        let answer = fixture.pay().run(|_| async { never::<String>() }).await;
        let PayError::Idem(error) = answer.unwrap_err() else {
            unreachable!("the body does not run")
        };
        assert_eq!(error.kind(), &ErrorKind::Undecodable);
        assert!(!error.is_retryable());
        message = error.to_string();
        for text in [&message, &format!("{error:?}")] {
            assert!(!text.contains("marker"), "{text}");
        }
    }
    message
}

async fn write(fixture: &Fixture, answer: Result<String, PayError>) {
    let written = fixture.pay().run(|_| async { answer.clone() }).await;
    assert_eq!(written, answer);
}

/// The record of a key of `pay`.
async fn record(fixture: &Fixture, key: u32) -> Vec<u8> {
    let digest = KeyBuilder::new("pay", 1024).key(&key).unwrap();
    let place = RecordKey::new(fixture.key().prefix().into(), Operation::new("pay"), digest);
    match fixture.store.read(&place).await {
        Ok(ReadReply::Found { record, .. }) => record.as_bytes().to_vec(),
        other => panic!("{other:?}"),
    }
}

async fn without_its_key_an_answer_is_kept_and_not_run_again(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.encrypt(keys()));
    write(&fixture, Ok(MEMO.to_owned())).await;
    let before = record(&fixture, 7).await;
    let lacking = "it is encrypted with key 7, which this engine does not have";
    let fixture = fixture.with(|engine| engine);
    assert!(refused(&fixture).await.contains(lacking));
    let fixture = fixture.with(|engine| engine.encrypt(EncryptionKeys::new(8, SECRET)));
    assert!(refused(&fixture).await.contains(lacking));
    let fixture = fixture.with(|engine| engine.encrypt(EncryptionKeys::new(7, [0; 32])));
    assert!(refused(&fixture).await.contains("does not open with key 7"));
    assert_eq!(record(&fixture, 7).await, before, "it is as it was");
    let fixture =
        fixture.with(|engine| engine.encrypt(EncryptionKeys::new(8, [8; 32]).also(7, SECRET)));
    write(&fixture, Ok(MEMO.to_owned())).await;
    assert_eq!(fixture.events.count("claimed"), 1);
}

async fn an_answer_that_was_moved_to_another_key_is_refused(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.encrypt(keys()));
    let other = fixture.engine.operation("pay").key(&8);
    let paid = other.run(|_| async { Ok::<_, PayError>(MEMO.to_owned()) });
    paid.await.unwrap();
    fixture.plant(&record(&fixture, 8).await);
    assert!(refused(&fixture).await.contains("belongs to another call"));
}

async fn an_answer_that_was_copied_to_another_prefix_is_refused(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.encrypt(keys()));
    let prefix = format!("{}-other", fixture.key().prefix());
    let other = Engine::builder(fixture.store.clone()).prefix(prefix.clone());
    let other = other.encrypt(keys()).build().unwrap();
    let paid = other
        .operation("pay")
        .key(&7)
        .run(|_| async { Ok::<_, PayError>(MEMO.to_owned()) });
    paid.await.unwrap();
    let place = RecordKey::new(
        prefix.into(),
        Operation::new("pay"),
        *fixture.key().digest(),
    );
    let Ok(ReadReply::Found { record, .. }) = fixture.store.read(&place).await else {
        unreachable!("it was stored")
    };
    fixture.plant(record.as_bytes());
    assert!(refused(&fixture).await.contains("belongs to another call"));
}

/// The answer to a payment of 12.50 is not that to one of 99.99, whatever the header says.
async fn an_answer_that_was_given_another_fingerprint_is_refused(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.encrypt(keys()));
    let pay = |cents: u64| fixture.pay().fingerprint(&cents);
    let paid = pay(1_250).run(|_| async { Ok::<_, PayError>(MEMO.to_owned()) });
    paid.await.unwrap();
    let genuine = record(&fixture, 7).await;
    let other = Fingerprint::of("pay", &9_999_u64).unwrap();
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

/// An operator's answer to a payment of 12.50 does not become that to one of 99.99.
async fn an_answer_by_hand_is_for_the_request_of_its_entry(fixture: Fixture) {
    let pay = |cents: u64| fixture.pay().fingerprint(&cents);
    let unknown = pay(1_250).run(|_| async { Err::<String, _>(PayError::TimedOut) });
    assert_eq!(unknown.await, Err(PayError::TimedOut));
    let genuine = record(&fixture, 7).await;
    let mut changed = genuine.clone();
    changed[36..52].copy_from_slice(Fingerprint::of("pay", &9_999_u64).unwrap().as_bytes());
    fixture.plant(&changed);
    let entry = pay(1_250).entry().await.unwrap().unwrap();
    let error = entry.resolve(&MEMO.to_owned()).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Mismatch);
    assert_eq!(record(&fixture, 7).await, changed, "nothing was changed");
    // An entry obtained without a request settles the stored record.
    fixture.plant(&genuine);
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    entry.resolve(&MEMO.to_owned()).await.unwrap();
    let again = pay(1_250).run(|_| async { never::<String>() }).await;
    assert_eq!(again.as_deref(), Ok(MEMO));
}

async fn an_error_that_was_made_a_value_is_refused(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.encrypt(keys()));
    write(&fixture, Err(PayError::Declined { run: 1 })).await;
    let mut record = record(&fixture, 7).await;
    assert_eq!(record[1], b'E');
    record[1] = b'D';
    fixture.plant(&record);
    assert!(refused(&fixture).await.contains("it was changed"));
}

async fn plaintext_is_refused_unless_it_is_accepted(fixture: Fixture) {
    write(&fixture, Ok(MEMO.to_owned())).await;
    let fixture = fixture.with(|engine| engine.encrypt(keys()).accept_plaintext());
    write(&fixture, Ok(MEMO.to_owned())).await;
    let fixture = fixture.with(|engine| engine.encrypt(keys()));
    assert!(refused(&fixture).await.contains("`accept_plaintext`"));
    assert_eq!(fixture.events.count("claimed"), 1);
}

async fn the_limit_holds_before_compression_and_after_encryption(mut fixture: Fixture) {
    let cases: [(Setting, usize, bool); 6] = [
        (|engine| engine, 100, true),
        (|engine| engine, 101, false),
        (|engine| engine.compress_above(0), 101, false),
        (|engine| engine.compress_above(0).encrypt(keys()), 100, true),
        (|engine| engine.encrypt(keys()), 55, true),
        (|engine| engine.encrypt(keys()), 56, false),
    ];
    for (number, (setting, bytes, fits)) in cases.into_iter().enumerate() {
        fixture = fixture.with(|engine| setting(engine.max_value_bytes(100)));
        let text = "x".repeat(bytes - 2);
        let call = || fixture.engine.operation("pay").key(&number);
        let first = call().run(|_| async { Ok::<_, PayError>(text.clone()) });
        assert_eq!(first.await.as_ref(), Ok(&text), "its own caller gets it");
        let again = call().run(|_| async { never::<String>() }).await;
        if fits {
            assert_eq!(again.as_ref(), Ok(&text), "case {number}");
        } else {
            assert_eq!(again.unwrap_err().kind(), &ErrorKind::NotStored);
        }
    }
    let unsaved = "unsaved: it is larger than 100 bytes";
    assert_eq!(fixture.events.count(unsaved), 3);
}

async fn a_claim_without_a_body_seals_its_answer(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.encrypt(keys()));
    let claim = claimed(fixture.pay()).await;
    claim.complete(MEMO.to_owned()).await.unwrap();
    let record = record(&fixture, 7).await;
    assert!(!record.windows(6).any(|part| part == b"marker"));
    let Acquired::Replay(stored) = fixture.pay().begin().await.unwrap() else {
        unreachable!("it is done")
    };
    assert_eq!(stored.decode::<String>().unwrap(), MEMO);
    let mistyped = stored.decode::<u32>().unwrap_err();
    assert_eq!(mistyped.kind(), &ErrorKind::Undecodable);
    assert!(!mistyped.to_string().contains("marker"), "{mistyped}");
}

async fn an_answer_by_hand_is_sealed(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.encrypt(keys()));
    let first = fixture
        .pay()
        .run(|_| async { Err::<String, _>(PayError::TimedOut) });
    assert_eq!(first.await, Err(PayError::TimedOut));
    let entry = fixture.pay().entry().await.unwrap().unwrap();
    entry.resolve(&MEMO.to_owned()).await.unwrap();
    let record = record(&fixture, 7).await;
    assert!(!record.windows(6).any(|part| part == b"marker"));
    let paid = fixture.pay().run(|_| async { never::<String>() }).await;
    assert_eq!(paid.as_deref(), Ok(MEMO));
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
    assert!(error.to_string().contains("two keys have the id 7"));
    told.push(format!("{error} {error:?}"));
    let needless = Engine::builder(fixture.store.clone()).accept_plaintext();
    let error = needless.build().unwrap_err();
    assert!(error.to_string().contains("`accept_plaintext` needs"));
    told.extend(fixture.events.all());
    let bytes = format!("{SECRET:?}");
    let bytes = bytes.trim_matches(['[', ']']);
    for text in told {
        assert!(!text.contains("marker") && !text.contains(bytes), "{text}");
    }
}
