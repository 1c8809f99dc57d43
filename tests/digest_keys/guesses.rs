//! What a reader of the store, or of a log, can try.

use idem_runtime::store::{ReadReply, RecordKey};
use idem_runtime::{
    DEFAULT_MAX_KEY_BYTES, DigestKeys, Engine, Fingerprint, KeyBuilder, KeyDigest, Operation,
    context,
};

use crate::stage::{ChargeError, Kind, NEW, OLD, OPERATION, Stage, changes};

const CARD: &str = "4111111111110077";
const CENTS: u64 = 1_999;

/// The record whose name a reader of the store sees.
async fn listed(stage: &Stage) -> KeyDigest {
    // The reader has the store, and no secret.
    let reader = Engine::builder(stage.store.clone()).prefix(stage.prefix.clone());
    let reader = reader.build().unwrap();
    let mut entries = reader.entries().operation(OPERATION);
    let page = entries.next_page().await.unwrap().expect("a page");
    assert_eq!(page.entries().len(), 1, "one record");
    *page.entries()[0].key()
}

async fn stored_fingerprint(stage: &Stage, name: KeyDigest) -> Fingerprint {
    let operation = Operation::new(OPERATION);
    let key = RecordKey::new(stage.prefix.as_str().into(), operation, name);
    match stage.store.read(&key).await.unwrap() {
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
    for (keys, is_keyed) in [(DigestKeys::plain(), false), (DigestKeys::new(OLD), true)] {
        let stage = Stage::new(kind).await;
        let engine = stage.engine(keys);
        assert_eq!(stage.charge(&engine, CARD, CENTS).await, Ok(1));

        let name = listed(&stage).await;
        let asked = stored_fingerprint(&stage, name).await;
        let call = format!("{:?}", Stage::call(&engine, CARD, CENTS));
        let told = stage.events.all().join("\n") + &call;
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
    let stage = Stage::new(kind).await;
    let engine = stage.engine(OLD);
    assert_eq!(stage.charge(&engine, CARD, CENTS).await, Ok(1));
    let by_call = Stage::call(&engine, CARD, CENTS)
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
    assert_eq!(stage.charge(&engine, CARD, CENTS).await, Ok(2));
}

pub(crate) async fn derived_keys_outlive_the_secret(kind: Kind) {
    let mut derived = Vec::new();
    for keys in changes()
        .into_iter()
        .flat_map(|(before, after)| [before, after])
    {
        let stage = Stage::new(kind).await;
        let call = Stage::call(&stage.engine(keys), CARD, CENTS);
        let key = call.run(|cx| async move {
            // In the body, and in what it calls.
            assert_eq!(cx.derive_key("charge"), context().derive_key("charge"));
            Ok::<_, ChargeError>(cx.derive_key("charge"))
        });
        derived.push(key.await.unwrap());
    }
    derived.dedup();
    assert_eq!(derived.len(), 1);
    let stage = Stage::new(kind).await;
    let (old, new) = (stage.engine(OLD), stage.engine(NEW));
    let names = [old, new].map(|engine| Stage::call(&engine, CARD, CENTS));
    let mut keys = Vec::new();
    for call in names {
        let key = call.run(|cx| async move { Ok::<_, ChargeError>(cx.key().to_string()) });
        keys.push(key.await.unwrap());
    }
    assert_ne!(keys[0], keys[1], "names follow from the secret");
}
