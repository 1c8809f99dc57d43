//! Types that formats represent badly: the stored value is read back equal, bit for bit, or it is not stored.

#![allow(
    clippy::option_option,
    clippy::zero_sized_map_values,
    reason = "types as users have them"
)]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;

use proptest::prelude::*;

use super::*;

/// The formats without compression and encryption.
fn plain() -> Vec<Format> {
    let formats = [
        AnswerFormat::default(),
        #[cfg(feature = "msgpack")]
        AnswerFormat::MessagePack,
    ];
    let plain = |write| Format {
        write,
        ..Format::default()
    };
    Vec::from(formats.map(plain))
}

/// Floats are equal if their bits are.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(transparent)]
struct Double(f64);

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(transparent)]
struct Single(f32);

macro_rules! equal_by_bits {
    ($($float:ident),+) => {
        $(
            impl PartialEq for $float {
                fn eq(&self, other: &Self) -> bool {
                    self.0.to_bits() == other.0.to_bits()
                }
            }

            impl Debug for $float {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    write!(f, "{:?} ({:x})", self.0, self.0.to_bits())
                }
            }
        )+
    };
}

equal_by_bits!(Double, Single);

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Unit;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Newtype<T>(T);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum External<T> {
    Bare,
    One(T),
    Two(T, Unit),
    Fields { value: T },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
enum Internal<T> {
    Bare,
    Fields { value: T },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "of")]
enum Adjacent<T> {
    Bare,
    One(T),
    Fields { value: T },
}

/// Its variants are distinguishable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Yes(bool),
    Text(String),
    Fields { value: Option<Double> },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Fields<T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    maybe: Option<T>,
    #[serde(default)]
    nested: Option<Option<T>>,
    #[serde(flatten)]
    rest: BTreeMap<String, Option<T>>,
}

/// Each format stores the value and reads it back, or refuses. Returns which formats store it.
fn brought_back<T: Replay + PartialEq + Debug>(value: &T) -> Result<Vec<bool>, TestCaseError> {
    let mut stored = Vec::new();
    for format in plain() {
        let body = write(&format, value);
        stored.push(body.is_ok());
        if let Ok(body) = body {
            let back = read::<T>(&format, &body);
            let read_by = format.write;
            prop_assert_eq!(back.as_ref(), Ok(value), "{:?}: {:?}", read_by, body);
        }
    }
    Ok(stored)
}

/// Maps of few entries: the shapes of keys differ, their number does not matter.
fn few<K: Arbitrary + Ord, V: Arbitrary>() -> impl Strategy<Value = BTreeMap<K, V>> {
    prop::collection::btree_map(any::<K>(), any::<V>(), 0..4)
}

fn doubles() -> impl Strategy<Value = Double> {
    prop_oneof![
        any::<u64>().prop_map(|bits| Double(f64::from_bits(bits))),
        // Amounts as a division produces them.
        (any::<i32>(), 1..1_000).prop_map(|(cents, by)| Double(f64::from(cents) / f64::from(by))),
        any::<f64>().prop_map(Double),
    ]
}

type Nested = Option<Option<Option<u8>>>;

/// Each of these values is brought back, or is not stored.
macro_rules! each {
    ($($value:expr),+ $(,)?) => {
        $(brought_back(&$value)?;)+
    };
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn floats(double in doubles(), bits in any::<u32>()) {
        let single = Single(f32::from_bits(bits));
        for (finite, stored) in [
            (double.0.is_finite(), brought_back(&double)?),
            (single.0.is_finite(), brought_back(&single)?),
            (double.0.is_finite(), brought_back(&vec![Some(Newtype(double))])?),
        ] {
            prop_assert_eq!(stored[0], finite, "JSON holds what is finite");
            prop_assert!(stored[1..].iter().all(|stored| *stored), "MessagePack holds all");
        }
    }

    #[test]
    fn options(
        value in any::<Nested>(),
        unit in any::<Option<Option<()>>>(),
        (maybe, nested) in any::<(Option<Option<u8>>, Nested)>(),
        rest in prop::collection::btree_map("[a-l]{1,3}", any::<Option<Option<u8>>>(), 0..3),
    ) {
        each![
            value,
            unit,
            value.map(|value| value.map(Newtype)),
            value.map(Newtype),
            value.map(|value| value.ok_or(())),
            value.map(External::One),
            External::Fields { value },
            External::Two(value, Unit),
            Internal::Fields { value },
            Adjacent::One(value),
            Adjacent::Fields { value },
            Some(Box::new(value)),
            vec![value; 2],
            unit.map(|unit| unit.map(|()| Unit)),
            Fields { maybe, nested, rest },
        ];
    }

    #[test]
    fn keys_texts_and_numbers(
        (bools, chars, wide) in (few::<bool, u8>(), few::<char, u8>(), few::<i128, u128>()),
        (options, pairs) in (few::<Option<u8>, u8>(), few::<(u8, String), u8>()),
        (units, set) in (few::<(), ()>(), prop::collection::btree_set(any::<Option<String>>(), 0..4)),
        (text, value) in (".*", prop::option::of(doubles())),
        (signed, unsigned, small) in any::<(i128, u128, (i64, u64))>(),
    ) {
        each![
            bools, chars, wide, options, pairs, units, set,
            Cow::<str>::Owned(text.clone()),
            Some(Cow::<str>::Owned(text.clone())),
            Untagged::Text(text),
            Untagged::Fields { value },
            Untagged::Yes(true),
            Some((signed, unsigned)),
            External::One(unsigned),
            small,
        ];
    }
}

#[test]
fn units() {
    let each = [
        brought_back(&()),
        brought_back(&Unit),
        brought_back(&Newtype(())),
        brought_back(&External::<()>::Bare),
        brought_back(&Some(External::<()>::Bare)),
        brought_back(&External::One(())),
        brought_back(&Internal::<()>::Bare),
        brought_back(&Adjacent::<()>::Bare),
    ];
    let mut each = each.into_iter().map(Result::unwrap);
    assert!(each.all(|stored| stored.iter().all(|stored| *stored)));
}

/// A value that would change is refused, and the error says why.
#[test]
fn some_of_nothing_is_not_stored() {
    for format in plain() {
        assert_eq!(write(&format, &Some(None::<u8>)), Err(Unencodable::Lossy));
        assert_eq!(write(&format, &Some(())), Err(Unencodable::Lossy));
        assert_eq!(write(&format, &[Some(None::<u8>)]), Err(Unencodable::Lossy));
    }
    let json = Format::default();
    assert_eq!(write(&json, &Some(Unit)), Err(Unencodable::Lossy));
    assert_eq!(write(&json, &f64::NAN), Err(Unencodable::Lossy));
    assert_eq!(write(&json, &Some(f32::INFINITY)), Err(Unencodable::Lossy));
}
