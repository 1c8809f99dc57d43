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

/// Each format either stores the value and reads it back, or does not store it. Returns which formats store it.
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn floats(double in doubles(), bits in any::<u32>()) {
        let single = Single(f32::from_bits(bits));
        for (finite, stored) in [
            (double.0.is_finite(), brought_back(&double)?),
            (single.0.is_finite(), brought_back(&single)?),
            (double.0.is_finite(), brought_back(&Some(double))?),
            (double.0.is_finite(), brought_back(&vec![Some(Newtype(double))])?),
        ] {
            prop_assert_eq!(stored[0], finite, "JSON holds what is finite");
            prop_assert!(stored[1..].iter().all(|stored| *stored), "MessagePack holds all");
        }
    }

    #[test]
    fn options(value in any::<Option<Option<Option<u8>>>>(), unit in any::<Option<Option<()>>>()) {
        brought_back(&value)?;
        brought_back(&unit)?;
        brought_back(&value.map(|value| value.map(Newtype)))?;
        brought_back(&value.map(Newtype))?;
        brought_back(&value.map(|value| value.ok_or(())))?;
        brought_back(&value.map(External::One))?;
        brought_back(&External::Fields { value })?;
        brought_back(&External::Two(value, Unit))?;
        brought_back(&Internal::Fields { value })?;
        brought_back(&Adjacent::One(value))?;
        brought_back(&Adjacent::Fields { value })?;
        brought_back(&Some(Box::new(value)))?;
        brought_back(&vec![value; 2])?;
        brought_back(&unit.map(|unit| unit.map(|()| Unit)))?;
    }

    #[test]
    fn fields(
        maybe in any::<Option<Option<u8>>>(),
        nested in any::<Option<Option<Option<u8>>>>(),
        rest in prop::collection::btree_map("[a-l]{1,3}", any::<Option<Option<u8>>>(), 0..3),
    ) {
        brought_back(&Fields { maybe, nested, rest })?;
    }

    #[test]
    fn keys(
        bools in few::<bool, u8>(),
        chars in few::<char, u8>(),
        wide in few::<i128, u128>(),
        options in few::<Option<u8>, u8>(),
        pairs in few::<(u8, String), u8>(),
        units in few::<(), ()>(),
        set in prop::collection::btree_set(any::<Option<String>>(), 0..4),
    ) {
        brought_back(&bools)?;
        brought_back(&chars)?;
        brought_back(&wide)?;
        brought_back(&options)?;
        brought_back(&pairs)?;
        brought_back(&units)?;
        brought_back(&set)?;
    }

    #[test]
    fn text(text in ".*", double in prop::option::of(doubles())) {
        brought_back(&Cow::<str>::Owned(text.clone()))?;
        brought_back(&Some(Cow::<str>::Owned(text.clone())))?;
        brought_back(&Untagged::Text(text))?;
        brought_back(&Untagged::Fields { value: double })?;
        brought_back(&Untagged::Yes(true))?;
    }

    #[test]
    fn numbers(signed in any::<i128>(), unsigned in any::<u128>(), small in any::<(i64, u64)>()) {
        brought_back(&signed)?;
        brought_back(&unsigned)?;
        brought_back(&Some((signed, unsigned)))?;
        brought_back(&External::One(unsigned))?;
        brought_back(&small)?;
    }
}

#[test]
fn units() {
    let each = [
        brought_back(&()).unwrap(),
        brought_back(&Unit).unwrap(),
        brought_back(&Newtype(())).unwrap(),
        brought_back(&External::<()>::Bare).unwrap(),
        brought_back(&Some(External::<()>::Bare)).unwrap(),
        brought_back(&External::One(())).unwrap(),
        brought_back(&Internal::<()>::Bare).unwrap(),
        brought_back(&Adjacent::<()>::Bare).unwrap(),
    ];
    assert!(each.iter().flatten().all(|stored| *stored), "{each:?}");
}

/// A value that would be read back as another is refused, and the error names the cause.
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
