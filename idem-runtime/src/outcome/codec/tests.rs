//! Each format: written, read, damaged, and read by an engine that lacks its feature or key.

#[cfg(feature = "zstd")]
mod compression;
#[cfg(feature = "encryption")]
mod encryption;
#[cfg(feature = "msgpack")]
mod msgpack;
mod properties;
mod unfriendly;

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::*;
use crate::identity::fingerprint::Fingerprint;
use crate::identity::key::KeyDigest;
use crate::outcome::Answer;
use crate::record::{Fence, HEADER, Header, OutcomeKind, Owner, Record, State};

/// Frozen bodies of [`Receipt::GOLDEN`]: a record of an older release must be read for ever.
const JSON: &[u8] = br#"{"run":7,"memo":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}"#;
const PACKED: &[u8] =
    b"\x01\x82\xa3run\x07\xa4memo\xd9\x32aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

const DIGEST: KeyDigest = KeyDigest::from_bytes([0xd1; 32]);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    run: u32,
    memo: String,
}

impl Receipt {
    fn golden() -> Self {
        Self {
            run: 7,
            memo: "a".repeat(50),
        }
    }
}

fn record(outcome: OutcomeKind, body: &[u8]) -> Record {
    record_of::<Receipt>(outcome, body)
}

fn record_of<T: Replay>(outcome: OutcomeKind, body: &[u8]) -> Record {
    let schema = T::schema();
    let (state, owner) = (State::Done { outcome, schema }, Owner::from_bytes([1; 16]));
    let header = Header::new(state, owner, Fence::new(1), Duration::from_hours(1));
    let bytes = [&header.encode(), body].concat();
    Record::decode(Bytes::from(bytes)).unwrap()
}

/// The body of a value under [`DIGEST`], or why it has none.
fn write<T: Replay>(format: &Format, value: &T) -> Result<Vec<u8>, Unencodable> {
    match format.seal(
        &DIGEST,
        Fingerprint::NONE,
        Encoded::by_hand(OutcomeKind::Value, value, format),
    ) {
        Encoded::Store(answer) => {
            if let Some(lost) = answer.lost {
                return Err(lost);
            }
            assert_eq!(answer.outcome, OutcomeKind::Value);
            Ok(answer.record[HEADER..].to_vec())
        }
        Encoded::Release(_) => unreachable!("a value is stored"),
    }
}

fn read<T: Replay>(format: &Format, body: &[u8]) -> Result<T, Undecodable> {
    let record = record_of::<T>(OutcomeKind::Value, body);
    T::read(&format.open(&DIGEST, &record)?)
}

/// Every combination that this build can write.
fn formats() -> Vec<Format> {
    #[allow(unused_mut, reason = "without features there is one format")]
    let mut formats = vec![Format::default()];
    #[cfg(feature = "msgpack")]
    also(&mut formats, |format| {
        format.write = AnswerFormat::MessagePack;
    });
    #[cfg(feature = "zstd")]
    also(&mut formats, |format| format.compression.above = Some(0));
    #[cfg(feature = "encryption")]
    also(&mut formats, |format| {
        format.encryption.keys = Some(EncryptionKeys::new(9, [9; 32]).into());
        format.encryption.accepts_plaintext = true;
    });
    formats
}

#[cfg(any(feature = "msgpack", feature = "zstd", feature = "encryption"))]
fn also(formats: &mut Vec<Format>, set: impl Fn(&mut Format)) {
    for mut format in formats.clone() {
        set(&mut format);
        formats.push(format);
    }
}

#[test]
fn json_is_stored_as_it_is() {
    let format = Format::default();
    assert_eq!(write(&format, &Receipt::golden()).as_deref(), Ok(JSON));
    assert_eq!(read(&format, JSON), Ok(Receipt::golden()));
    let record = record(OutcomeKind::Value, JSON);
    let body = format.open(&DIGEST, &record).unwrap();
    assert!(
        matches!(body.bytes, std::borrow::Cow::Borrowed(_)),
        "it is read where it is"
    );
}

#[test]
fn an_unknown_tag_is_refused() {
    // Among them tab, line feed and carriage return: JSON may start with them, but idem's never does. No tag is both
    // the type's own layout and MessagePack.
    for tag in [0, 9, 11, 13, 15].into_iter().chain(16..0x20) {
        for rest in [JSON, &PACKED[1..], b""] {
            let body = [&[tag], rest].concat();
            let refused = read::<Receipt>(&Format::default(), &body);
            assert_eq!(refused, Err(Undecodable::Format { tag }));
        }
    }
    let mistyped = read::<Receipt>(&Format::default(), b"");
    assert_eq!(mistyped, Err(Undecodable::Mistyped { at: 0 }));
}

#[test]
fn what_a_type_lays_out_itself_is_no_value_of_another() {
    for rest in [JSON, &PACKED[1..], b""] {
        let body = [&[8], rest].concat();
        let refused = read::<Receipt>(&Format::default(), &body);
        assert_eq!(refused, Err(Undecodable::Mistyped { at: 0 }));
    }
}

#[test]
fn what_is_cut_short_is_refused() {
    for format in formats() {
        let body = write(&format, &Receipt::golden()).unwrap();
        for end in 0..body.len() {
            let cut = read::<Receipt>(&format, &body[..end]);
            assert!(cut.is_err(), "{format:?} cut to {end}: {cut:?}");
        }
        let longer = [&body[..], b"0"].concat();
        assert!(read::<Receipt>(&format, &longer).is_err(), "{format:?}");
    }
}

#[test]
fn a_limit_holds_for_every_format() {
    for format in formats() {
        let fits = write(&format, &Receipt::golden()).unwrap();
        let limited = |max_value_bytes| Format {
            max_value_bytes,
            ..format.clone()
        };
        let at = fits.len().max(JSON.len());
        assert!(
            write(&limited(at), &Receipt::golden()).is_ok(),
            "{format:?}"
        );
        let max_bytes = fits.len() - 1;
        assert_eq!(
            write(&limited(max_bytes), &Receipt::golden()),
            Err(Unencodable::TooLarge { max_bytes }),
            "{format:?}"
        );
    }
}

#[test]
fn an_answer_is_stored_as_its_value_is() {
    for format in formats() {
        let answer = Answer::from(Receipt::golden());
        assert_eq!(Answer::<Receipt>::schema(), Receipt::schema());
        let body = write(&format, &answer).unwrap();
        assert_eq!(read(&format, &body), Ok(Receipt::golden()));
        let body = write(&format, &Receipt::golden()).unwrap();
        assert_eq!(read(&format, &body), Ok(answer));
    }
    assert_eq!(write(&Format::default(), &Answer::from(1)), Ok(b"1".into()));
}

#[test]
fn nothing_of_an_answer_is_in_debug() {
    for format in formats() {
        let encoded = format.seal(
            &DIGEST,
            Fingerprint::NONE,
            Encoded::value(&mut Receipt::golden(), &format),
        );
        let record = record(
            OutcomeKind::Value,
            &write(&format, &Receipt::golden()).unwrap(),
        );
        let body = format.open(&DIGEST, &record).unwrap();
        let text = format!("{format:?} {encoded:?} {record:?} {body:?}");
        assert!(!text.contains("aaaa") && !text.contains("9, 9"), "{text}");
    }
}

/// A build without a feature names the missing feature in the error.
#[test]
fn a_feature_that_is_left_out_is_named() {
    let bodies: [(&str, bool, &[u8]); 3] = [
        ("msgpack", cfg!(feature = "msgpack"), PACKED),
        ("zstd", cfg!(feature = "zstd"), b"\x02frame"),
        (
            "encryption",
            cfg!(feature = "encryption"),
            b"\x04\0\0\0\x07sealed",
        ),
    ];
    for (name, built, body) in bodies {
        let missing = Err(Undecodable::Feature { name });
        let answer = read::<Receipt>(&Format::default(), body);
        assert_eq!(answer == missing, !built, "{name}: {answer:?}");
    }
}

#[cfg(any(feature = "zstd", feature = "encryption"))]
fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}
