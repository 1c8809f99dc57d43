//! One string of a JSON document, and nothing else of it.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::http::key::KeyRefusal;
use crate::http::pointer::Pointer;

/// Reads the string at a pointer; `None`: there is no value.
///
/// # Errors
///
/// [`KeyRefusal::NotAString`] for another value, `null` too; [`KeyRefusal::Repeated`] for a name on the way that occurs
/// twice in its object, because parsers differ about it; [`KeyRefusal::Unreadable`] for bytes that are not one document,
/// and for a value on the way that has no members.
pub(super) fn string_at(document: &[u8], pointer: &Pointer) -> Result<Option<String>, KeyRefusal> {
    let unreadable = |_| KeyRefusal::Unreadable;
    let text = std::str::from_utf8(document).map_err(|_| KeyRefusal::Unreadable)?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let found = Seek(pointer.names()).deserialize(&mut reader);
    let found = found.map_err(unreadable)?;
    reader.end().map_err(unreadable)?;
    match found {
        Lookup::Nothing => Ok(None),
        Lookup::Text(text) => Ok(Some(text)),
        Lookup::Refused(refusal) => Err(refusal),
    }
}

/// The name under which `serde_json` reads a number with all its digits.
const NUMBER: &str = "$serde_json::private::Number";

enum Lookup {
    Nothing,
    Text(String),
    Refused(KeyRefusal),
}

/// The names that lead from a value to the string.
struct Seek<'p>(&'p [String]);

impl Seek<'_> {
    /// At a value that has no members and is no string.
    fn ends(&self) -> Lookup {
        Lookup::Refused(match self.0 {
            [] => KeyRefusal::NotAString,
            _ => KeyRefusal::Unreadable,
        })
    }
}

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = Lookup;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<Lookup, D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = Lookup;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Lookup, E> {
        Ok(match self.0 {
            [] => Lookup::Text(text.to_owned()),
            _ => self.ends(),
        })
    }

    /// A `null` on the way has no members, as if absent.
    fn visit_unit<E>(self) -> Result<Lookup, E> {
        Ok(match self.0 {
            [] => self.ends(),
            _ => Lookup::Nothing,
        })
    }

    fn visit_bool<E>(self, _: bool) -> Result<Lookup, E> {
        Ok(self.ends())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Lookup, E> {
        Ok(self.ends())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Lookup, E> {
        Ok(self.ends())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Lookup, E> {
        Ok(self.ends())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Lookup, A::Error> {
        let step = self.0.split_first();
        let mut found = step
            .is_none()
            .then_some(Lookup::Refused(KeyRefusal::NotAString));
        while let Some(name) = members.next_key::<String>()? {
            match step {
                // A number, where another crate enables `arbitrary_precision`.
                _ if name == NUMBER => {
                    members.next_value::<IgnoredAny>()?;
                    found = Some(self.ends());
                }
                Some((wanted, _)) if *wanted == name && found.is_some() => {
                    members.next_value::<IgnoredAny>()?;
                    found = Some(Lookup::Refused(KeyRefusal::Repeated));
                }
                Some((wanted, rest)) if *wanted == name => {
                    found = Some(members.next_value_seed(Seek(rest))?);
                }
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found.unwrap_or(Lookup::Nothing))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Lookup, A::Error> {
        let step = self.0.split_first();
        let mut found = match step {
            Some(_) => Lookup::Nothing,
            None => Lookup::Refused(KeyRefusal::NotAString),
        };
        for index in 0_usize.. {
            match step {
                Some((wanted, rest)) if *wanted == index.to_string() => {
                    match elements.next_element_seed(Seek(rest))? {
                        Some(element) => found = element,
                        None => break,
                    }
                }
                _ => {
                    if elements.next_element::<IgnoredAny>()?.is_none() {
                        break;
                    }
                }
            }
        }
        Ok(found)
    }
}
