//! Keys by text: JSON as the value that a Rust function names.
//!
//! The canonical encoding of a key does not know the width of an integer, nor a tuple from a list, so that most of JSON
//! is the key of exactly one Rust value. The rest is refused.

use std::io::Read as _;

use idem_runtime::key::KeyDigest;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::failure::Failure;

/// The key or scope of the option `name`, as JSON.
pub(crate) fn parse(name: &str, json: &str) -> Result<Value, Failure> {
    let value = serde_json::from_str(json).map_err(|_| {
        Failure::usage(format!(
            "{name} is not JSON: a text needs quotation marks, {name} '\"o-7\"'; a tuple is a list, \
             {name} '[\"m-1\", 7]'"
        ))
    })?;
    check(name, &value)?;
    Ok(value)
}

/// The key of a function with a format string.
pub(crate) fn formatted(template: &str, values: Value) -> Result<Value, Failure> {
    let placeholders = placeholders(template);
    let wrong = |what: &str| Err(Failure::usage(what));
    if placeholders == 0 {
        return wrong(
            "--key-format has `{}` for each placeholder, without names: `'{}/{}'` for `key = \"{merchant}/{order}\"`",
        );
    }
    let Value::Array(mut values) = values else {
        return wrong(
            "with --key-format, --key is the list of the placeholders' texts: `'[\"m-1\", \"o-7\"]'`",
        );
    };
    if values.len() != placeholders {
        return wrong("--key has another number of values than --key-format has placeholders");
    }
    for value in &mut values {
        match value {
            // As `{}` formats them.
            Value::Number(_) | Value::Bool(_) => *value = value.to_string().into(),
            Value::String(_) => {}
            _ => {
                return wrong(
                    "with --key-format, --key is a list of texts, as the placeholders format them",
                );
            }
        }
    }
    if template == "{}" {
        return Ok(values.remove(0));
    }
    Ok([(template.to_owned(), Value::Array(values))]
        .into_iter()
        .collect())
}

/// The number of `{}` in a template with doubled braces.
fn placeholders(mut template: &str) -> usize {
    let mut number = 0;
    while let Some(at) = template.find(['{', '}']) {
        template = &template[at..];
        number += usize::from(template.starts_with("{}"));
        template = template.get(2..).unwrap_or_default();
    }
    number
}

/// Text of the option, or of stdin for `-`.
pub(crate) fn given(text: &str) -> Result<String, Failure> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut read = String::new();
    std::io::stdin().read_to_string(&mut read)?;
    Ok(read)
}

/// Refuses JSON that several Rust values with different keys are written as.
fn check(name: &str, value: &Value) -> Result<(), Failure> {
    let refused = |why: &str| {
        Err(Failure::usage(format!(
            "{name}: {why}; use --digest, which logs and `idem ls` show"
        )))
    };
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Ok(()),
        Value::Number(_) => {
            refused("a number that is no integer of 64 bits is ambiguous: 1.0 and 1 are different keys")
        }
        Value::Array(values) => values.iter().try_for_each(|value| check(name, value)),
        Value::Object(members) => members.iter().try_for_each(|(member, value)| {
            if value.is_null() {
                return refused(
                    "an object with null is ambiguous: a struct leaves such a field out, and a map keeps it; leave \
                     it out if the key is a struct, or",
                );
            }
            if member.parse::<i128>().is_ok() || matches!(member.as_str(), "true" | "false") {
                return refused("an object whose names are numbers is ambiguous: a map may have numbers as keys");
            }
            check(name, value)
        }),
    }
}

/// Serializes as the Rust value that is written so.
pub(crate) struct Key<'a>(pub(crate) &'a Value);

impl Serialize for Key<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => serializer.serialize_none(),
            Value::Array(values) => serializer.collect_seq(values.iter().map(Key)),
            Value::Object(members) => {
                serializer.collect_map(members.iter().map(|(name, value)| (name, Key(value))))
            }
            value => value.serialize(serializer),
        }
    }
}

/// A digest as logs show it, or in hexadecimal digits.
pub(crate) fn digest(text: &str) -> Result<KeyDigest, Failure> {
    let text = text.trim();
    if let Some(bytes) = hex_32(text.as_bytes()) {
        return Ok(KeyDigest::from_bytes(bytes));
    }
    text.parse().map_err(|_| {
        Failure::usage(
            "--digest has 43 characters, as logs and `idem ls` show it, or 64 hexadecimal digits",
        )
    })
}

/// 32 bytes in hexadecimal digits.
pub(crate) fn hex_32(digits: &[u8]) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use idem_runtime::__private::{DEFAULT_MAX_KEY_BYTES, KeyBuilder, KeyError, KeyPart};
    use idem_runtime::key::{FormatKey, ToKey};
    use proptest::prelude::*;

    use super::*;

    fn key<K: ToKey + ?Sized>(key: &K) -> Result<KeyDigest, KeyError> {
        KeyBuilder::new("payments.pay", DEFAULT_MAX_KEY_BYTES)
            .scope(key)
            .key(key)
    }

    /// The key by text is that of the value.
    #[track_caller]
    fn assert_same<K: Serialize>(value: &K) {
        let json = serde_json::to_string(value).unwrap();
        let by_text = parse("--key", &json).unwrap_or_else(|why| panic!("{json}: {why}"));
        // Rust has no such call where the key is empty but for names; a map's names are no fields.
        if key(value)
            != Err(KeyError::Empty {
                part: KeyPart::Scope,
            })
        {
            assert_eq!(key(&Key(&by_text)), key(value), "{json}");
        }
    }

    #[derive(Clone, Debug, Serialize)]
    struct Order {
        merchant: String,
        number: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        part: Option<i8>,
    }

    #[derive(Clone, Debug, Serialize)]
    struct Number(i64);

    #[derive(Clone, Debug, Serialize)]
    enum Method {
        Card,
        Transfer(String),
        Split(u8, char),
        Cash { cents: u64 },
    }

    fn method() -> impl Strategy<Value = Method> {
        prop_oneof![
            Just(Method::Card),
            ".*".prop_map(Method::Transfer),
            any::<(u8, char)>().prop_map(|(part, of)| Method::Split(part, of)),
            any::<u64>().prop_map(|cents| Method::Cash { cents }),
        ]
    }

    fn order() -> impl Strategy<Value = Order> {
        (".*", any::<u32>(), any::<Option<i8>>()).prop_map(|(merchant, number, part)| Order {
            merchant,
            number,
            part,
        })
    }

    proptest! {
        #[test]
        fn a_key_by_text_is_that_of_the_rust_value(
            text in ".*",
            (unsigned, signed, byte) in any::<(u64, i64, u8)>(),
            (flag, letter, maybe) in any::<(bool, char, Option<u16>)>(),
            list in prop::collection::vec(any::<i32>(), 0..5),
            order in order(),
            method in method(),
        ) {
            assert_same(&text);
            assert_same(&unsigned);
            assert_same(&signed);
            assert_same(&byte);
            assert_same(&flag);
            assert_same(&letter);
            assert_same(&maybe);
            assert_same(&list);
            assert_same(&order);
            assert_same(&method);
            assert_same(&(&text, unsigned));
            assert_same(&(signed, (&text, flag), maybe, Number(signed), [byte, 1, 2]));
            assert_same(&(&order, &list, &method, text.as_str()));
        }

        #[test]
        fn a_formatted_key_by_text_is_that_of_the_format_string(merchant in ".*", order in any::<u64>()) {
            let values = serde_json::to_string(&(&merchant, order)).unwrap();
            let by_text = |template, json: &str| {
                formatted(template, parse("--key", json).unwrap()).unwrap()
            };
            let (merchant, order) = (format_args!("{merchant}").to_string(), order.to_string());
            let both = [format_args!("{merchant}"), format_args!("{order}")];
            prop_assert_eq!(
                key(&Key(&by_text("{}/{}", &values))),
                key(&FormatKey::new("{}/{}", &both))
            );
            let one = serde_json::to_string(&[&order]).unwrap();
            for template in ["{}", "{{}}/{}", "{{{}}}"] {
                let of_format = key(&FormatKey::new(template, &both[1..]));
                prop_assert_eq!(key(&Key(&by_text(template, &one))), of_format);
            }
        }
    }

    #[test]
    fn what_is_ambiguous_is_refused_with_the_way_out() {
        let refused = |json| parse("--key", json).unwrap_err().to_string();
        for json in [
            "1.0",
            "[1, 2.5]",
            "1e3",
            "-0",
            "18446744073709551616",
            r#"{"a": null}"#,
            r#"{"7": 1}"#,
            r#"[{"true": 1}]"#,
        ] {
            assert!(refused(json).contains("--digest"), "{json}");
        }
        for json in ["o-7", "", "['a']", "{", "1 2"] {
            assert!(refused(json).contains("is not JSON"), "{json}");
        }
    }
}
