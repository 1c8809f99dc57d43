//! Encrypted answers.

use super::*;
use crate::outcome::codec::bound::Bound;
use crate::outcome::codec::encryption::Encryption;

/// Key 7: 32 × 0x42; nonce: 24 × 0x24; rest as [`Receipt::golden`]. Written by libsodium.
const GOLDEN: &str = "0400000007242424242424242424242424242424242424242424242424\
    de7ca510000676918e0d525f63e72ff01090efdb1d7e15fc4000872c0a71baac75f0e9b955fa3afd1dd4d0da98\
    bc49ed362c4e9f4629e0bd735be8b2f07ed5998ff553067b2d370090314eed5a6da73793b9c768f0";

fn keys() -> EncryptionKeys {
    EncryptionKeys::new(7, [0x42; 32])
}

fn with(keys: EncryptionKeys) -> Format {
    Format {
        encryption: Encryption {
            keys: Some(keys.into()),
            accepts_plaintext: true,
        },
        ..Format::default()
    }
}

fn sealed() -> Vec<u8> {
    write(&with(keys()), &Receipt::golden()).unwrap()
}

#[test]
fn its_bytes_are_frozen() {
    let bound = Bound {
        digest: &DIGEST,
        fingerprint: Fingerprint::from_bytes([0xf1; 16]),
        outcome: OutcomeKind::Value,
        schema: 0x0102_0304,
        tag: 4,
    };
    let keys = keys().under("shop");
    let record = keys.seal_with([0x24; 24], &bound, JSON).unwrap();
    assert_eq!(record[..HEADER], [0; HEADER]);
    assert_eq!(record[HEADER..], hex(GOLDEN));
    let stored = told(&hex(GOLDEN), 0x0102_0304, [0xf1; 16]);
    assert_eq!(opened(&with(keys), &stored), Ok(Receipt::golden()));
}

#[test]
fn no_two_are_alike_and_none_is_legible() {
    let (one, other) = (sealed(), sealed());
    assert_eq!(one[..5], [4, 0, 0, 0, 7]);
    assert_ne!(one[5..29], other[5..29], "nonces");
    assert_eq!(one.len(), JSON.len() + 45);
    for body in [one, other] {
        assert!(!body.windows(4).any(|part| part == b"aaaa"));
    }
}

#[test]
fn a_changed_byte_never_opens() {
    for format in formats()
        .into_iter()
        .filter(|format| format.encryption.keys.is_some())
    {
        let body = write(&format, &Receipt::golden()).unwrap();
        for at in 0..body.len() {
            for bit in 0..8 {
                let mut changed = body.clone();
                changed[at] ^= 1 << bit;
                let opened = read::<Receipt>(&format, &changed);
                assert!(opened.is_err(), "{format:?}, byte {at}, bit {bit}");
            }
        }
    }
}

#[test]
fn it_opens_for_its_own_key_and_outcome_alone() {
    let (format, value) = (with(keys()), sealed());
    let business = Encoded::by_class(crate::Class::Business, &mut Receipt::golden(), &format);
    let error = match format.seal(&DIGEST, Fingerprint::NONE, business) {
        Encoded::Store(sealed) => sealed.record[HEADER..].to_vec(),
        Encoded::Release(_) => unreachable!("a business error is stored"),
    };
    let other = KeyDigest::from_bytes([0xd2; 32]);
    for (key, sealed_as, body, told_as) in [
        (&DIGEST, OutcomeKind::Value, &value, OutcomeKind::Value),
        (&other, OutcomeKind::Value, &value, OutcomeKind::Value),
        (&DIGEST, OutcomeKind::Value, &value, OutcomeKind::Error),
        (&DIGEST, OutcomeKind::Error, &error, OutcomeKind::Error),
        (&DIGEST, OutcomeKind::Error, &error, OutcomeKind::Value),
    ] {
        let opened = format.open(key, &record(told_as, body)).err();
        let genuine = key == &DIGEST && sealed_as == told_as;
        let forged = Undecodable::Forged { id: 7 };
        assert_eq!(opened, (!genuine).then_some(forged));
    }
}

/// A record with this schema and fingerprint in its header.
fn told(body: &[u8], schema: u32, fingerprint: [u8; 16]) -> Record {
    let plain = record(OutcomeKind::Value, body);
    let header = Header {
        state: State::Done {
            outcome: OutcomeKind::Value,
            schema,
        },
        fingerprint: Fingerprint::from_bytes(fingerprint),
        ..plain.header
    };
    Record::decode(Bytes::from([&header.encode(), body].concat())).unwrap()
}

fn opened(format: &Format, record: &Record) -> Result<Receipt, Undecodable> {
    Receipt::read(&format.open(&DIGEST, record)?)
}

/// A writer of the store moves a record or changes its header.
#[test]
fn what_the_record_says_of_an_answer_is_sealed_with_it() {
    let format = with(keys().under("shop"));
    let seal = |asked: [u8; 16]| {
        let encoded = Encoded::value(&mut Receipt::golden(), &format);
        match format.seal(&DIGEST, Fingerprint::from_bytes(asked), encoded) {
            Encoded::Store(answer) => (answer.schema, answer.record[HEADER..].to_vec()),
            Encoded::Release(_) => unreachable!("a value is stored"),
        }
    };
    let forged = Err(Undecodable::Forged { id: 7 });
    let (schema, body) = seal([1; 16]);
    let genuine = told(&body, schema, [1; 16]);
    assert_eq!(opened(&format, &genuine), Ok(Receipt::golden()));
    for prefix in ["shop2", "sho", ""] {
        assert_eq!(opened(&with(keys().under(prefix)), &genuine), forged);
    }
    for (schema, fingerprint) in [(schema, [0; 16]), (schema, [2; 16]), (schema ^ 1, [1; 16])] {
        let changed = told(&body, schema, fingerprint);
        assert_eq!(opened(&format, &changed), forged, "{fingerprint:?}");
    }
    // A record for every request opens beside the fingerprint of an earlier call.
    let (schema, body) = seal([0; 16]);
    for fingerprint in [[0; 16], [1; 16]] {
        let stored = told(&body, schema, fingerprint);
        assert_eq!(opened(&format, &stored), Ok(Receipt::golden()));
    }
}

#[test]
fn keys_change_in_three_deploys() {
    let old = || EncryptionKeys::new(1, [1; 32]);
    let deploys = [
        old(),
        old().also(2, [2; 32]),
        EncryptionKeys::new(2, [2; 32]).also(1, [1; 32]),
        EncryptionKeys::new(2, [2; 32]),
    ];
    for pair in deploys.windows(2) {
        for (writer, reader) in [(0, 1), (1, 0)] {
            let body = write(&with(pair[writer].clone()), &Receipt::golden()).unwrap();
            assert!(read::<Receipt>(&with(pair[reader].clone()), &body).is_ok());
        }
    }
    let body = write(&with(old()), &Receipt::golden()).unwrap();
    assert_eq!(
        read::<Receipt>(&with(deploys[3].clone()), &body),
        Err(Undecodable::KeyMissing { id: 1 })
    );
}

#[test]
fn another_key_or_none_does_not_open_it() {
    let body = sealed();
    let missing = Undecodable::KeyMissing { id: 7 };
    let none = Format::default();
    for (format, body, error) in [
        (
            with(EncryptionKeys::new(7, [0x43; 32])),
            &body[..],
            Undecodable::Forged { id: 7 },
        ),
        (with(EncryptionKeys::new(8, [0x42; 32])), &body, missing),
        (none.clone(), &body, missing),
        (none, &body[..4], Undecodable::Short),
        (with(keys()), &body[..4], Undecodable::Short),
        (with(keys()), &body[..44], Undecodable::Short),
    ] {
        assert_eq!(read::<Receipt>(&format, body), Err(error));
    }
}

#[test]
fn plaintext_is_refused_unless_it_is_accepted() {
    let strict = Format {
        encryption: Encryption {
            keys: Some(keys().into()),
            accepts_plaintext: false,
        },
        ..Format::default()
    };
    assert!(read::<Receipt>(&strict, &sealed()).is_ok());
    let plain = formats()
        .into_iter()
        .filter(|format| format.encryption.keys.is_none());
    for format in plain {
        let body = write(&format, &Receipt::golden()).unwrap();
        assert!(read::<Receipt>(&with(keys()), &body).is_ok(), "{format:?}");
        assert_eq!(read::<Receipt>(&strict, &body), Err(Undecodable::Plain));
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let strict = Format {
        encryption: Encryption {
            keys: None,
            accepts_plaintext: true,
        },
        ..Format::default()
    };
    assert!(strict.check().unwrap_err().contains("`accept_plaintext`"));
    assert_eq!(with(keys().also(8, [1; 32])).check(), Ok(()));
    for twice in [
        keys().also(7, [1; 32]),
        keys().also(8, [1; 32]).also(8, [1; 32]),
    ] {
        assert!(with(twice).check().unwrap_err().contains("two keys"));
    }
}
