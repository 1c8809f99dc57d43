//! The guesses that a reader of the store, or of a log, can try.

use idem_runtime::store::{ReadReply, RecordKey};
use idem_runtime::{
    Engine, ErrorKind, context,
    fingerprint::Fingerprint,
    key::{DEFAULT_MAX_KEY_BYTES, KeyBuilder, KeyDigest, Operation},
};

use super::fixture::{ChargeError, Fixture, Kind, OPERATION, refusal};

const ONE: [u8; 32] = [1; 32];
const OTHER: [u8; 32] = [2; 32];
const CARD: &str = "4111111111110077";
const CENTS: u64 = 1_999;

/// The record whose name a reader of the store sees.
async fn listed(fixture: &Fixture) -> KeyDigest {
    // The reader has the store, and no secret.
    let reader = Engine::builder(fixture.store.clone()).prefix(fixture.prefix.clone());
    let reader = reader.build().unwrap();
    let mut entries = reader.entries().operation(OPERATION);
    let page = entries.next_page().await.unwrap().expect("a page");
    assert_eq!(page.entries().len(), 1, "one record");
    *page.entries()[0].key()
}

async fn stored_fingerprint(fixture: &Fixture, name: KeyDigest) -> Fingerprint {
    let operation = Operation::new(OPERATION);
    let key = RecordKey::new(fixture.prefix.as_str().into(), operation, name);
    match fixture.store.read(&key).await.unwrap() {
        ReadReply::Found { record, .. } => record.header.fingerprint,
        other => panic!("no record: {other:?}"),
    }
}

/// All cards of a range that fit the name of the record.
fn guessed_cards(name: &KeyDigest) -> Vec<String> {
    let cards = (0..200).map(|last| format!("411111111111{last:04}"));
    let fits = |card: &String| {
        let guess = KeyBuilder::new(OPERATION, DEFAULT_MAX_KEY_BYTES).key(card.as_str());
        guess.unwrap() == *name
    };
    cards.filter(fits).collect()
}

/// All amounts of a range that fit the fingerprint.
fn guessed_amounts(asked: Fingerprint) -> Vec<u64> {
    (1_900..2_100)
        .filter(|cents| Fingerprint::of(OPERATION, cents).unwrap() == asked)
        .collect()
}

pub(crate) async fn a_reader_confirms_a_guess_only_without_a_secret(kind: Kind) {
    for (secret, is_keyed) in [(None, false), (Some(ONE), true)] {
        let fixture = Fixture::new(kind).await;
        let engine = fixture.engine(secret);
        assert_eq!(fixture.charge(&engine, CARD, CENTS).await, Ok(1));

        let name = listed(&fixture).await;
        let asked = stored_fingerprint(&fixture, name).await;
        let call = format!("{:?}", Fixture::call(&engine, CARD, CENTS));
        let told = fixture.events.all().join("\n") + &call;
        let plain = KeyBuilder::new(OPERATION, DEFAULT_MAX_KEY_BYTES)
            .key(CARD)
            .unwrap();
        let (cards, amounts) = (guessed_cards(&name), guessed_amounts(asked));
        if is_keyed {
            assert_eq!((cards, amounts), (vec![], vec![]));
            assert_ne!(name, plain);
            let (text, first) = (plain.to_string(), format!("{plain:?}"));
            assert!(!told.contains(&text) && !told.contains(&first), "{told}");
        } else {
            assert_eq!((cards, amounts), (vec![CARD.to_owned()], vec![CENTS]));
        }
    }
}

pub(crate) async fn an_entry_is_found_by_its_call_and_by_its_digest(kind: Kind) {
    let fixture = Fixture::new(kind).await;
    let engine = fixture.engine(Some(ONE));
    assert_eq!(fixture.charge(&engine, CARD, CENTS).await, Ok(1));
    let by_call = Fixture::call(&engine, CARD, CENTS)
        .entry()
        .await
        .unwrap()
        .expect("a record");
    let shown = by_call.key().to_string();
    let by_digest = engine
        .entry(OPERATION, &shown)
        .await
        .unwrap()
        .expect("a record");
    assert_eq!(by_digest.key(), by_call.key());
    by_digest.reset().await.unwrap();
    assert_eq!(fixture.charge(&engine, CARD, CENTS).await, Ok(2));
}

pub(crate) async fn derived_keys_are_the_same_under_every_secret(kind: Kind) {
    let (mut derived, mut names) = (Vec::new(), Vec::new());
    for secret in [None, Some(ONE), Some(OTHER)] {
        let fixture = Fixture::new(kind).await;
        let call = Fixture::call(&fixture.engine(secret), CARD, CENTS);
        let keys = call.run(|cx| async move {
            // In the body, and in what it calls.
            assert_eq!(cx.derive_key("charge"), context().derive_key("charge"));
            Ok::<_, ChargeError>((cx.derive_key("charge"), cx.key().to_string()))
        });
        let (key, name) = keys.await.unwrap();
        derived.push(key);
        names.push(name);
    }
    derived.dedup();
    assert_eq!(derived.len(), 1);
    names.dedup();
    assert_eq!(names.len(), 3, "names follow from the secret");
}

pub(crate) async fn requests_are_compared_as_without_a_secret(kind: Kind) {
    let fixture = Fixture::new(kind).await;
    let engine = fixture.engine(Some(ONE));
    assert_eq!(fixture.charge(&engine, CARD, CENTS).await, Ok(1));
    assert_eq!(fixture.charge(&engine, CARD, CENTS).await, Ok(1));
    let other = refusal(fixture.charge(&engine, CARD, CENTS + 1).await);
    assert!(matches!(other, ErrorKind::Mismatch), "{other:?}");
    // One that compares nothing gets the answer to any request.
    let any = engine.operation(OPERATION).key(CARD);
    assert_eq!(fixture.charged(any, Ok(())).await, Ok(1));
}

/// What the documentation warns of.
pub(crate) async fn a_process_of_another_secret_runs_the_body_again(kind: Kind) {
    let fixture = Fixture::new(kind).await;
    for (run, secret) in [(1, Some(ONE)), (2, Some(OTHER)), (3, None)] {
        let engine = fixture.engine(secret);
        assert_eq!(fixture.charge(&engine, CARD, CENTS).await, Ok(run));
        assert_eq!(fixture.charge(&engine, CARD, CENTS).await, Ok(run));
    }
}
