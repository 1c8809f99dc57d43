use std::collections::BTreeMap;
use std::fmt;

use serde::ser::{Error as _, SerializeMap as _, SerializeSeq as _};
use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use super::error::{CanonicalErrorKind, MAX_DEPTH};
use super::{CanonicalError, Encoder, to_vec};

fn digest<T: Serialize + ?Sized>(value: &T) -> [u8; 32] {
    let mut encoder = Encoder::take();
    encoder.put(value).unwrap();
    encoder.finish()
}

fn assert_fails<T: Serialize + ?Sized>(value: &T, kind: CanonicalErrorKind) {
    assert_eq!(to_vec(value).unwrap_err(), CanonicalError::new(kind));
}

/// Nested lists of this depth.
struct Deep(u32);

impl Serialize for Deep {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(Some(1))?;
        if self.0 > 1 {
            seq.serialize_element(&Self(self.0 - 1))?;
        } else {
            seq.serialize_element(&0)?;
        }
        seq.end()
    }
}

/// Endless recursion that never writes anything.
#[derive(Serialize)]
struct EndlessNesting<'a>(&'a Recursion);

struct Recursion;

impl Serialize for Recursion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Some(EndlessNesting(self)).serialize(serializer)
    }
}

#[test]
fn the_depth_limit_is_exact() {
    assert!(to_vec(&Deep(MAX_DEPTH)).is_ok());
    assert_fails(&Deep(MAX_DEPTH + 1), CanonicalErrorKind::TooDeep);
}

#[test]
fn endless_recursion_is_an_error() {
    assert_fails(&Recursion, CanonicalErrorKind::TooDeep);
}

#[test]
fn siblings_do_not_add_to_the_depth() {
    let siblings = vec![(Some(1), BTreeMap::from([("a", [1])])); 500];
    assert!(to_vec(&siblings).is_ok());
}

struct PairMap(Vec<(&'static str, u8)>);

impl Serialize for PairMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

#[test]
fn duplicate_keys_are_an_error_wherever_they_stand() {
    assert_fails(
        &PairMap(vec![("a", 1), ("a", 1)]),
        CanonicalErrorKind::DuplicateKey,
    );
    assert_fails(
        &PairMap(vec![("b", 1), ("c", 1), ("a", 2), ("b", 1)]),
        CanonicalErrorKind::DuplicateKey,
    );
    let same_beginning = ["longer than a prefix 1", "longer than a prefix 2"];
    let entries = same_beginning.map(|name| (name, 1)).to_vec();
    assert!(to_vec(&PairMap(entries)).is_ok());
}

#[test]
fn a_wrong_length_is_an_error() {
    struct Announced(usize);
    impl Serialize for Announced {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut seq = serializer.serialize_seq(Some(self.0))?;
            seq.serialize_element(&1)?;
            seq.end()
        }
    }
    assert!(to_vec(&Announced(1)).is_ok());
    assert_fails(&Announced(0), CanonicalErrorKind::Inconsistent);
    assert_fails(&Announced(usize::MAX), CanonicalErrorKind::Inconsistent);
}

#[test]
fn keys_and_values_that_do_not_alternate_are_an_error() {
    struct Calls(&'static str);
    impl Serialize for Calls {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(None)?;
            for call in self.0.chars() {
                match call {
                    'k' => map.serialize_key(&1)?,
                    _ => map.serialize_value(&1)?,
                }
            }
            map.end()
        }
    }
    assert!(to_vec(&Calls("kv")).is_ok());
    for calls in ["k", "v", "kk", "kvv", "kkv", "kvk"] {
        assert_fails(&Calls(calls), CanonicalErrorKind::Inconsistent);
    }
}

/// Fails with an error that quotes the value.
struct RefusingPart;

impl Serialize for RefusingPart {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("card 4111111111111111 is not valid"))
    }
}

#[test]
fn what_an_implementation_says_is_not_repeated() {
    let error = to_vec(&RefusingPart).unwrap_err();
    assert_eq!(
        error,
        CanonicalError::new(CanonicalErrorKind::SerializeFailed)
    );
    assert!(!format!("{error} {error:?}").contains("4111"));
}

#[test]
fn a_failing_display_is_an_error() {
    struct Silent;
    impl fmt::Display for Silent {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            Err(fmt::Error)
        }
    }
    impl Serialize for Silent {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self)
        }
    }
    assert_fails(&Silent, CanonicalErrorKind::SerializeFailed);
}

#[test]
fn an_error_that_an_implementation_ignores_is_not_forgotten() {
    /// Breaks off in the middle of a map that needs sorting.
    struct HalfMap;
    impl Serialize for HalfMap {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(None)?;
            map.serialize_entry("b", &1)?;
            map.serialize_entry("a", &1)?;
            map.serialize_entry("c", &RefusingPart)?;
            map.end()
        }
    }
    struct CarelessMap;
    impl Serialize for CarelessMap {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(None)?;
            let _ = map.serialize_entry("z", &HalfMap);
            let _ = map.serialize_entry("y", &None::<u8>);
            let _ = map.serialize_entry("a", &1);
            map.end()
        }
    }
    #[derive(Serialize)]
    struct AroundMap {
        z: Option<u8>,
        inner: CarelessMap,
        a: Option<u8>,
    }
    let around = AroundMap {
        z: None,
        inner: CarelessMap,
        a: None,
    };
    assert_fails(&around, CanonicalErrorKind::SerializeFailed);
    assert_fails(&vec![around], CanonicalErrorKind::SerializeFailed);
}

#[test]
fn a_value_that_is_streamed_has_the_digest_of_its_bytes() {
    let text = "x".repeat(10_000);
    let rows = vec![(1, "a", Some(()), 0.5); 5_000];
    let maps = vec![BTreeMap::from([("b", 1), ("a", 2)]); 5_000];
    let options = vec![Some(None::<u8>); 20_000];
    let big_map = BTreeMap::from([("rows", &rows)]);
    let bytes = |value: &dyn Fn() -> Result<Vec<u8>, CanonicalError>| -> [u8; 32] {
        Sha256::digest(value().unwrap()).into()
    };
    assert_eq!(digest(&text), bytes(&|| to_vec(&text)));
    assert_eq!(digest(&rows), bytes(&|| to_vec(&rows)));
    assert_eq!(digest(&maps), bytes(&|| to_vec(&maps)));
    assert_eq!(digest(&options), bytes(&|| to_vec(&options)));
    assert_eq!(digest(&big_map), bytes(&|| to_vec(&big_map)));
    let mixed = (&text, &rows, &text, Some(&options), &text);
    assert_eq!(digest(&mixed), bytes(&|| to_vec(&mixed)));
    // The buffer is emptied before, inside and after the wrapped null.
    for length in 4_080..4_100 {
        let text = "x".repeat(length);
        let null_at_end = Some((&text, None::<u8>));
        assert_eq!(digest(&null_at_end), bytes(&|| to_vec(&null_at_end)));
        let wrapped = (&text, Some(((((None::<u8>,),),),)));
        assert_eq!(digest(&wrapped), bytes(&|| to_vec(&wrapped)));
    }
}

#[test]
fn a_long_sequence_is_not_kept_in_the_buffer() {
    let mut encoder = Encoder::take();
    encoder.put(&vec![u64::MAX; 100_000]).unwrap();
    assert!(encoder.held_bytes().capacity() < 64 * 1024);
}

#[test]
fn an_implementation_may_take_a_digest_itself() {
    struct OwnDigest;
    impl Serialize for OwnDigest {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(&digest(&("inner", vec![1; 100])))
        }
    }
    let once = digest(&(OwnDigest, "outer"));
    assert_eq!(once, digest(&(OwnDigest, "outer")));
}

#[test]
fn an_encoder_that_failed_leaves_nothing_behind() {
    let clean = digest("clean");
    for _ in 0..10 {
        let mut encoder = Encoder::take();
        encoder.limit(10);
        let _ = encoder.put(&[("some text", RefusingPart)]);
        let _ = encoder.finish();
        assert_eq!(digest("clean"), clean);
    }
}

/// A number as `serde_json` serializes it under `arbitrary_precision`.
struct Arbitrary<'a>(&'a str);

impl Serialize for Arbitrary<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;

        const NAME: &str = "$serde_json::private::Number";
        let mut number = serializer.serialize_struct(NAME, 1)?;
        number.serialize_field(NAME, self.0)?;
        number.end()
    }
}

/// The expected value is `serde_json`'s in this build, without the feature.
#[test]
fn numbers_do_not_depend_on_a_feature_of_serde_json() {
    let texts = "0 -0 0.0 -0.0 1 1.0 1.50 1e2 1E+2 -7 9007199254740993 18446744073709551615 \
                 -9223372036854775808 12300000000000000000000 0.1 0.10000000000000001 5e-324 1e-400 \
                 1.7976931348623157e308";
    for text in texts.split(' ') {
        let plain: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(to_vec(&Arbitrary(text)), to_vec(&plain), "{text}");
        assert_eq!(digest(&Some(Arbitrary(text))), digest(&Some(&plain)));
        let nested = |number| BTreeMap::from([("a", vec![number]), ("b", vec![])]);
        let plain = BTreeMap::from([("a", vec![plain]), ("b", vec![])]);
        assert_eq!(to_vec(&nested(Arbitrary(text))), to_vec(&plain), "{text}");
    }
}

/// Finds two amounts that round to one double and become one request.
#[test]
fn a_text_that_no_double_stands_for_is_kept() {
    let encoded = |text| to_vec(&Arbitrary(text)).unwrap();
    let texts = "1e999 1e1000 -1e999 inf NaN  18446744073709551616 18446744073709551617 100000000000000000.01 \
                 100000000000000000.02 1.000000000000000001 1";
    let texts: Vec<_> = texts.split(' ').collect();
    for (at, text) in texts.iter().enumerate() {
        let others = &texts[at + 1..];
        assert!(others.iter().all(|other| encoded(other) != encoded(text)));
    }
}
