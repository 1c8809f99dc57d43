use ciborium::Value;
use proptest::prelude::*;
use serde::ser::{SerializeMap as _, SerializeStruct as _};
use serde::{Serialize, Serializer};

use super::to_vec;

/// A value that `serde` describes and a CBOR library reads.
#[derive(Clone, Debug, PartialEq)]
enum KeyTree {
    Null,
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    Single(f32),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    Seq(Vec<Self>),
    Map(Vec<(Self, Self)>),
    Struct(Vec<(&'static str, Self)>),
}

impl Serialize for KeyTree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_none(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Signed(value) => serializer.serialize_i64(*value),
            Self::Unsigned(value) => serializer.serialize_u64(*value),
            Self::Single(value) => serializer.serialize_f32(*value),
            Self::Double(value) => serializer.serialize_f64(*value),
            Self::Text(value) => serializer.serialize_str(value),
            Self::Bytes(value) => serializer.serialize_bytes(value),
            Self::Seq(elements) => serializer.collect_seq(elements),
            Self::Map(entries) => {
                let mut map = serializer.serialize_map(None)?;
                for (key, value) in entries {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
            Self::Struct(fields) => {
                let mut map = serializer.serialize_struct("Struct", fields.len())?;
                for (name, value) in fields {
                    map.serialize_field(name, value)?;
                }
                map.end()
            }
        }
    }
}

impl KeyTree {
    /// The expected reading, with maps in the order of encoded keys.
    fn expected(&self) -> Value {
        let sorted = |mut entries: Vec<(Vec<u8>, Value, Value)>| {
            entries.sort_by(|left, right| left.0.cmp(&right.0));
            Value::Map(entries.into_iter().map(|(_, k, v)| (k, v)).collect())
        };
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => (*value).into(),
            Self::Signed(value) => (*value).into(),
            Self::Unsigned(value) => (*value).into(),
            Self::Single(value) => f64::from(*value).into(),
            Self::Double(value) => (*value).into(),
            Self::Text(value) => value.as_str().into(),
            Self::Bytes(value) => value.as_slice().into(),
            Self::Seq(elements) => Value::Array(elements.iter().map(Self::expected).collect()),
            Self::Map(entries) => sorted(
                entries
                    .iter()
                    .map(|(key, value)| (to_vec(key).unwrap(), key.expected(), value.expected()))
                    .collect(),
            ),
            Self::Struct(fields) => sorted(
                fields
                    .iter()
                    .filter(|(_, value)| *value != Self::Null)
                    .map(|(name, value)| (to_vec(name).unwrap(), (*name).into(), value.expected()))
                    .collect(),
            ),
        }
    }

    /// The same value in another form: entries and fields backwards, integers in another width, and one more optional
    /// field.
    fn disguised(&self) -> Self {
        match self {
            Self::Signed(value) => u64::try_from(*value).map_or(self.clone(), Self::Unsigned),
            Self::Unsigned(value) => i64::try_from(*value).map_or(self.clone(), Self::Signed),
            Self::Single(value) => Self::Double((*value).into()),
            Self::Seq(elements) => Self::Seq(elements.iter().map(Self::disguised).collect()),
            Self::Map(entries) => {
                let entries = entries.iter().rev();
                Self::Map(
                    entries
                        .map(|(k, v)| (k.disguised(), v.disguised()))
                        .collect(),
                )
            }
            Self::Struct(fields) => {
                let fields = fields.iter().rev().map(|(name, v)| (*name, v.disguised()));
                Self::Struct(fields.chain([("added", Self::Null)]).collect())
            }
            _ => self.clone(),
        }
    }
}

/// Floats other than −0.0 and NaN, whose bits change by design.
fn plain_double() -> impl Strategy<Value = f64> {
    prop_oneof![proptest::num::f64::ANY, any::<i16>().prop_map(f64::from)]
        .prop_filter("not plain", |value| {
            !value.is_nan() && value.to_bits() != 1 << 63
        })
}

fn plain_single() -> impl Strategy<Value = f32> {
    prop_oneof![proptest::num::f32::ANY, any::<i16>().prop_map(f32::from)]
        .prop_filter("not plain", |value| {
            !value.is_nan() && value.to_bits() != 1 << 31
        })
}

const NAMES: [&str; 7] = [
    "b",
    "a",
    "id",
    "amount",
    "billing_address",
    "a_name_of_more_than_23_characters",
    "a_name_of_more_than_23_characters_too",
];

fn tree() -> impl Strategy<Value = KeyTree> {
    let leaf = prop_oneof![
        Just(KeyTree::Null),
        any::<bool>().prop_map(KeyTree::Bool),
        any::<i64>().prop_map(KeyTree::Signed),
        (-300_i64..300).prop_map(KeyTree::Signed),
        any::<u64>().prop_map(KeyTree::Unsigned),
        plain_single().prop_map(KeyTree::Single),
        plain_double().prop_map(KeyTree::Double),
        "\\PC{0,40}".prop_map(KeyTree::Text),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(KeyTree::Bytes),
    ];
    leaf.prop_recursive(5, 80, 30, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..30).prop_map(KeyTree::Seq),
            prop::collection::vec((inner.clone(), inner.clone()), 0..30).prop_map(|mut entries| {
                entries.sort_by_cached_key(|(key, _)| to_vec(key).unwrap());
                entries.dedup_by_key(|(key, _)| to_vec(key).unwrap());
                let third = entries.len() / 3;
                entries.rotate_left(third);
                KeyTree::Map(entries)
            }),
            (
                prop::sample::subsequence(&NAMES[..], 0..=NAMES.len()).prop_shuffle(),
                prop::collection::vec(inner, NAMES.len())
            )
                .prop_map(|(names, values)| KeyTree::Struct(
                    names.into_iter().zip(values).collect()
                )),
        ]
    })
}

proptest! {
    #[test]
    fn another_library_reads_the_value_back(tree in tree()) {
        let bytes = to_vec(&tree).unwrap();
        let read: Value = ciborium::from_reader(&bytes[..]).unwrap();
        prop_assert_eq!(read, tree.expected());
    }

    #[test]
    fn order_width_and_absent_fields_make_no_difference(tree in tree()) {
        prop_assert_eq!(to_vec(&tree).unwrap(), to_vec(&tree.disguised()).unwrap());
    }

    #[test]
    fn big_integers_come_back(signed in any::<i128>(), unsigned in any::<u128>(), shift in 0_u32..128) {
        let (signed, unsigned) = (signed >> shift, unsigned >> shift);
        let read: (i128, u128) =
            ciborium::from_reader(&to_vec(&(signed, unsigned)).unwrap()[..]).unwrap();
        prop_assert_eq!(read, (signed, unsigned));
    }
}
