//! Answers in `MessagePack`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;

fn format() -> Format {
    Format {
        write: AnswerFormat::MessagePack,
        ..Format::default()
    }
}

#[test]
fn its_bytes_are_frozen() {
    assert_eq!(write(&format(), &Receipt::golden()).as_deref(), Ok(PACKED));
    assert_eq!(read(&Format::default(), PACKED), Ok(Receipt::golden()));
}

#[test]
fn fields_may_be_added() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Newer {
        #[serde(default)]
        note: Option<String>,
        memo: String,
        run: u32,
    }
    let newer: Newer = read(&format(), PACKED).unwrap();
    assert_eq!((newer.run, newer.note.as_ref()), (7, None));
    let body = write(&format(), &newer).unwrap();
    assert_eq!(read(&format(), &body), Ok(Receipt::golden()), "and back");
}

#[test]
fn it_holds_what_json_does_not() {
    let odd = BTreeMap::from([((1_u8, 2_u8), f64::INFINITY)]);
    assert_eq!(
        write(&Format::default(), &odd),
        Err(Unencodable::NotSerializable)
    );
    assert_eq!(read(&format(), &write(&format(), &odd).unwrap()), Ok(odd));
}

#[test]
fn the_place_of_an_error_is_told() {
    let at = PACKED.len() - 1;
    let longer = [PACKED, b"\x07"].concat();
    assert_eq!(
        read::<Receipt>(&format(), &longer),
        Err(Undecodable::Mistyped { at })
    );
}

/// Bytes that are no array.
#[derive(Clone, Debug, PartialEq)]
struct Bin(Vec<u8>);

impl Serialize for Bin {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bin {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;

        impl serde::de::Visitor<'_> for Read {
            type Value = Bin;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bin, E> {
                Ok(Bin(bytes.to_vec()))
            }
        }

        deserializer.deserialize_bytes(Read)
    }
}

/// Numbers of `serde_json` as a build with `arbitrary_precision` writes them, beside items of every head.
#[test]
fn numbers_of_a_build_with_arbitrary_precision_are_read_without_it() {
    const NAME: &str = "$serde_json::private::Number";
    let number = |text: &str| json!({ NAME: text });
    let long = |length| vec![b'x'; length];
    let text = |length| "x".repeat(length);
    let others = (
        (u64::MAX, i64::MIN, 200_u8, -100_i8, 60_000_u16, -30_000_i16),
        (4_000_000_000_u32, -2_000_000_000_i32, 0.1_f32, 0.1_f64, ()),
        (text(3), text(40), text(300), text(70_000)),
        (vec![true; 3], vec![(); 20], vec![1; 70_000]),
        (Bin(long(9)), Bin(long(300)), Bin(long(70_000))),
        (0..20).map(|key| (key, 0)).collect::<BTreeMap<_, _>>(),
        (0..70_000).map(|key| (key, 0)).collect::<BTreeMap<_, _>>(),
    );
    let format = Format {
        max_value_bytes: 1 << 20,
        ..format()
    };
    for text in "0 -0 1 1.10 1e2 -7 18446744073709551615 12300000000000000000000 -0.1 5e-324 1e-400"
        .split(' ')
    {
        let written = |number: Value| (others.clone(), [number.clone(), json!({"a": [number]})]);
        let plain: Value = serde_json::from_str(text).unwrap();
        let body = rmp_serde::to_vec_named(&written(number(text))).unwrap();
        let body = [&[1], &*body].concat();
        assert!(read(&format, &body) == Ok(written(plain)), "{text}");
    }
    for text in ["1e400", "much", ""] {
        let body = [&[1], &*rmp_serde::to_vec_named(&number(text)).unwrap()].concat();
        let refused = read::<Value>(&format, &body);
        assert!(
            matches!(refused, Err(Undecodable::Mistyped { .. })),
            "{text}"
        );
    }
    // The same bytes within a string of bytes, and a map with the name and more.
    let inside = Bin(rmp_serde::to_vec_named(&number("1")).unwrap());
    let value = (inside, json!({ NAME: "1", "a": 1 }));
    assert_eq!(read(&format, &write(&format, &value).unwrap()), Ok(value));
}
