//! The frozen vectors: the encoder's output must equal the file, line for line.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::{Serialize, Serializer};

use super::to_vec;
use crate::{
    identity::fingerprint::{Digest, FingerprintBuilder},
    identity::key::{DEFAULT_MAX_KEY_BYTES, FormatKey, KeyBuilder, KeyDigest, ToKey},
};

const FILE: &str = include_str!("../../../vectors/canonical-1.txt");

struct Bytes(&'static [u8]);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

struct DisplayOnly(&'static str);

impl Serialize for DisplayOnly {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self.0)
    }
}

/// An iterator of unknown length.
struct Unsized(u32);

impl Serialize for Unsized {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((0..self.0).filter(|_| true))
    }
}

#[derive(Serialize)]
struct Nothing;

#[derive(Serialize)]
struct FrozenNewtype<T>(T);

#[derive(Serialize)]
struct FrozenPair(u8, &'static str);

#[derive(Serialize)]
struct FrozenFields {
    zeta: u8,
    b: Option<u8>,
    absent: Option<u8>,
    some_none: Option<FrozenNewtype<Option<u8>>>,
    a: FrozenNewtype<Option<u8>>,
    unit: (),
}

#[derive(Serialize)]
enum E {
    Unit,
    New(u8),
    Tuple(u8, bool),
    St { a: i8, left_out: Option<u8> },
}

#[derive(Serialize)]
struct SampleAddress {
    id: u32,
    note: Option<String>,
    items: Vec<(String, u8)>,
    meta: HashMap<String, i64>,
}

fn place() -> SampleAddress {
    SampleAddress {
        id: 7,
        note: None,
        items: vec![("a".into(), 1)],
        meta: HashMap::from([("y".into(), -2), ("x".into(), 1)]),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn value<T: Serialize + ?Sized>(name: &str, value: &T) -> String {
    format!("value {name} {}", hex(&to_vec(value).unwrap()))
}

fn numbers() -> Vec<String> {
    let unsigned = [0_u64, 23, 24, 255, 256, 65_535, 65_536];
    let negative = [-1_i64, -24, -25, -256, -257];
    let floats = [0.0, -0.0, 1.0, 1.5, -4.1, 0.1, 65_504.0, 65_505.0];
    let below_64_bits = -(1_i128 << 64);
    let mut lines: Vec<_> = (unsigned.iter())
        .map(|number| value(&number.to_string(), number))
        .collect();
    lines.extend([
        value("u32-max", &u32::MAX),
        value("2^32", &(1_u64 << 32)),
        value("u64-max", &u64::MAX),
    ]);
    lines.extend(negative.map(|number| value(&number.to_string(), &number)));
    lines.extend([
        value("i64-min", &i64::MIN),
        value("2^64", &(1_u128 << 64)),
        value("u128-max", &u128::MAX),
        value("-2^64", &below_64_bits),
        value("-2^64-1", &(below_64_bits - 1)),
        value("i128-min", &i128::MIN),
    ]);
    lines.extend(floats.map(|number: f64| value(&format!("{number:?}"), &number)));
    lines.extend([
        value("smallest-half", &2f64.powi(-24)),
        value("below-smallest-half", &2f64.powi(-25)),
        value("smallest-single", &2f64.powi(-149)),
        value("smallest-double", &f64::from_bits(1)),
        value("f64-max", &f64::MAX),
        value("nan", &f64::NAN),
        value("nan-with-payload", &f64::from_bits(0xfff8_0000_0000_0001)),
        value("infinity", &f64::INFINITY),
        value("-infinity", &f64::NEG_INFINITY),
        value("0.1-single", &0.1_f32),
        value("1.5-single", &1.5_f32),
    ]);
    lines
}

fn others() -> Vec<String> {
    let unordered: BTreeMap<i64, u8> = BTreeMap::from([(-1, 1), (10, 2), (100, 3)]);
    let nested: HashMap<(u8, &str), bool> = HashMap::from([((2, "b"), false), ((1, "c"), true)]);
    let many: HashMap<u32, u32> = (0..30).map(|i| (i * 1_000, i)).collect();
    vec![
        value("false", &false),
        value("true", &true),
        value("empty-text", ""),
        value("text", "ü€𝄞"),
        value("text-24", "abcdefghijklmnopqrstuvwx"),
        value("display", &DisplayOnly("shown")),
        value("display-24", &DisplayOnly("abcdefghijklmnopqrstuvwx")),
        value("char", &'ü'),
        value("bytes", &Bytes(&[0, 255])),
        value("byte-vec", &[0_u8, 255][..]),
        value("unit", &()),
        value("unit-struct", &Nothing),
        value("none", &None::<u8>),
        value("some", &Some(7)),
        value("some-none", &Some(None::<u8>)),
        value("some-unit", &Some(())),
        value("some-some", &Some(Some(7))),
        value("some-some-none", &Some(Some(None::<u8>))),
        value("some-seq-of-none", &Some([None::<u8>])),
        value("newtype", &FrozenNewtype("x")),
        value("newtype-none", &FrozenNewtype(None::<u8>)),
        value("seq", &[1, 2, 3][..]),
        value("seq-of-options", &[Some(1), None]),
        value("seq-of-unknown-length", &Unsized(3)),
        value("long-seq-of-unknown-length", &Unsized(24)),
        value("tuple", &(1, "a", true)),
        value("tuple-struct", &FrozenPair(1, "a")),
        value(
            "struct",
            &FrozenFields {
                zeta: 1,
                b: Some(2),
                absent: None,
                some_none: Some(FrozenNewtype(None)),
                a: FrozenNewtype(None),
                unit: (),
            },
        ),
        value("map-by-first-byte", &unordered),
        value("map-of-tuples", &nested),
        value("map-of-30", &many),
        value("map-with-null", &BTreeMap::from([("a", None::<u8>)])),
        value("variant-unit", &E::Unit),
        value("variant-newtype", &E::New(1)),
        value("variant-tuple", &E::Tuple(1, true)),
        value(
            "variant-struct",
            &E::St {
                a: -1,
                left_out: None,
            },
        ),
        value("ipv4", &std::net::Ipv4Addr::LOCALHOST),
        value("place", &place()),
    ]
}

fn asked(arguments: &[(&'static str, Option<u8>)]) -> Digest {
    let mut builder = FingerprintBuilder::new("shop::place", arguments.len());
    for (name, argument) in arguments {
        builder.arg(name, argument);
    }
    builder.finish().unwrap()
}

fn fingerprints() -> Vec<String> {
    let line = |name: &str, value: &[u8], digest: Digest| {
        let digest = hex(digest.as_bytes());
        format!("fingerprint {name} shop::place {} {digest}", hex(value))
    };
    let whole = FingerprintBuilder::value("shop::place", &place());
    let arguments = [("b", Some(7)), ("aa", None)];
    vec![
        line("value", &to_vec(&place()).unwrap(), whole.finish().unwrap()),
        line("no-arguments", &[0xa0], asked(&[])),
        line(
            "arguments",
            &to_vec(&BTreeMap::from(arguments)).unwrap(),
            asked(&arguments),
        ),
    ]
}

fn shown(digest: KeyDigest) -> String {
    let mut line = hex(digest.as_bytes());
    line.push(' ');
    digest.text(&mut line);
    line
}

fn key<K: ToKey + Serialize>(name: &str, scope: Option<&str>, key: K) -> String {
    key_of(name, scope, key)
}

fn key_of<S, K>(name: &str, scope: Option<S>, key: K) -> String
where
    S: ToKey + Serialize,
    K: ToKey + Serialize,
{
    let builder = KeyBuilder::new("shop::place", DEFAULT_MAX_KEY_BYTES);
    let (builder, scope) = match scope {
        Some(scope) => (builder.scope(&scope), hex(&to_vec(&scope).unwrap())),
        None => (builder, "-".to_owned()),
    };
    let digest = shown(builder.key(&key).unwrap());
    let key = hex(&to_vec(&key).unwrap());
    format!("key {name} shop::place {scope} {key} {digest}")
}

fn format(name: &str, template: &'static str, values: &[fmt::Arguments<'_>]) -> String {
    key(name, None, FormatKey::new(template, values))
}

fn keys() -> Vec<String> {
    let asked = asked(&[("b", Some(7))]);
    let builder = || KeyBuilder::new("shop::place", DEFAULT_MAX_KEY_BYTES);
    let unscoped = shown(builder().digest(&asked).unwrap());
    let scoped = shown(builder().scope("b").digest(&asked).unwrap());
    let asked = hex(asked.as_bytes());
    vec![
        key("text", None, "order-1"),
        key("number", None, 7),
        key("tuple", None, ("a", "bc")),
        key("tuple-split-elsewhere", None, ("ab", "c")),
        key("scope-a-key-b", Some("a"), "b"),
        key("scope-b-key-a", Some("b"), "a"),
        key("no-scope", None, ("b", "a")),
        format("format", "{}/{}", &[format_args!("a/b"), format_args!("c")]),
        format(
            "format-split-elsewhere",
            "{}/{}",
            &[format_args!("a"), format_args!("b/c")],
        ),
        format("format-text-before", "order-{}", &[format_args!("7")]),
        format("format-braces", "{{}}{}", &[format_args!("7")]),
        format("format-alone", "{}", &[format_args!("7")]),
        key_of(
            "format-scope",
            Some(FormatKey::new("tenant-{}", &[format_args!("a")])),
            "7",
        ),
        format!("key-by-fingerprint no-scope shop::place - {asked} {unscoped}"),
        format!("key-by-fingerprint scope-b shop::place 6162 {asked} {scoped}"),
    ]
}

#[test]
fn the_vectors_are_frozen() {
    let written = [numbers(), others(), fingerprints(), keys()].concat();
    let frozen: Vec<&str> = FILE
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    for (written, frozen) in written.iter().zip(&frozen) {
        assert_eq!(written, frozen);
    }
    assert_eq!(written.len(), frozen.len(), "{written:#?}");
}
