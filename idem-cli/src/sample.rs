//! Stored answers as samples, with which an answer by hand is compared.

use std::fmt::Write as _;

use idem_runtime::Engine;
use idem_runtime::admin::{Entry, EntryFilter, EntryState};
use idem_runtime::store::OutcomeKind;
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::pace::Pace;

/// The most records in a second that are examined.
const RATE: u32 = 10_000;
/// The most answers that are read.
const MOST: usize = 16;
/// The most records that are examined for them.
const EXAMINED: usize = 20_000;
/// The longest text of a form, in characters.
const LONGEST: usize = 400;
/// The member that distinguishes a stored `Reply` from a plain value.
const REPLY: &str = "$reply";

/// The form of a stored answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// The status of a response, or of a handler's `Reply`.
    pub(crate) status: Option<u16>,
    /// `None`: a body that is no JSON.
    pub(crate) value: Option<Value>,
    /// Whether the HTTP layer stored it.
    pub(crate) is_response: bool,
}

/// Stored answers of an operation, values or business errors.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    pub(crate) found: Vec<Sample>,
    /// The number of answers that could not be read.
    unreadable: usize,
    /// Whether the whole store was examined.
    is_whole: bool,
}

impl Samples {
    /// Reads answers of the operation of an entry whose types may match.
    pub(crate) async fn read(
        engine: &Engine,
        entry: &Entry,
        outcome: OutcomeKind,
    ) -> Result<Self, Failure> {
        let mut scan = Pace::new(RATE, "found");
        let entries = engine.entries().operation(entry.operation().to_owned());
        let entries = entries.state(EntryFilter::Answered);
        let mut entries = entries.step_size(scan.step_size());
        let mut samples = Self::default();
        for _ in 0..EXAMINED / scan.step_size() {
            let Some(page) = scan.step(&mut entries).await? else {
                break;
            };
            samples.is_whole = page.cursor().is_none();
            for listed in page.into_entries() {
                // An answer by hand is no example.
                let fits = listed.state() == EntryState::Answered(outcome) && !listed.is_by_hand();
                if !fits || !listed.types().matches(entry.types()) {
                    continue;
                }
                let whole = scan.whole(engine, &listed).await?;
                let Some(stored) = whole.and_then(|whole| whole.stored_answer()) else {
                    continue;
                };
                let sample = match stored.response() {
                    Some(response) => Some(Sample {
                        status: Some(response.status().as_u16()),
                        value: serde_json::from_slice(response.body()).ok(),
                        is_response: true,
                    }),
                    None => stored.decode::<Value>().ok().map(Sample::of),
                };
                samples.unreadable += usize::from(sample.is_none());
                samples.found.extend(sample);
                if samples.found.len() + samples.unreadable == MOST {
                    return Ok(samples);
                }
            }
        }
        Ok(samples)
    }

    /// Why there is none.
    pub(crate) fn missing(&self) -> String {
        let unreadable = match self.unreadable {
            0 => String::new(),
            number => format!(
                "{number} answers of this operation cannot be read (--encryption-key-file?), and "
            ),
        };
        if self.is_whole {
            let none = "the store has no such answer of this operation that a body has given";
            return unreadable + none;
        }
        format!(
            "{unreadable}none of the first {EXAMINED} records is such an answer of this operation"
        )
    }

    /// An error unless the answer has the form of one of them.
    pub(crate) fn check(&self, given: &Sample) -> Result<(), Failure> {
        let Some(first) = self.found.first() else {
            return Err(Failure::refused(format!(
                "nothing was changed: {}, and a mistake would reach every caller as an error; write the JSON that the \
                 function's value serializes to, and --unchecked",
                self.missing()
            )));
        };
        let mut differences = self.found.iter().map(|stored| stored.differs(given));
        if differences.any(|difference| difference.is_none()) {
            return Ok(());
        }
        let difference = first.differs(given).unwrap_or_default();
        Err(Failure::refused(format!(
            "nothing was changed: the answer has another form than the stored ones, and callers may get an error: \
             {difference}. Stored: {}. If it is right all the same: --unchecked",
            first.form()
        )))
    }
}

impl Sample {
    fn of(mut value: Value) -> Self {
        let status = value[REPLY]["status"].as_u64();
        let status = status.and_then(|status| u16::try_from(status).ok());
        let value = match status {
            Some(_) => value.get_mut("value").map(Value::take),
            None => Some(value),
        };
        Self {
            status,
            value,
            is_response: false,
        }
    }

    /// The form in one line: names and types, without values.
    pub(crate) fn form(&self) -> String {
        let mut text = String::new();
        if let Some(status) = self.status {
            let _ = write!(text, "status {status} ");
        }
        match &self.value {
            Some(value) => form(value, &mut text),
            None => text.push_str("a body that is no JSON"),
        }
        match text.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{} …", &text[..end]),
            None => text,
        }
    }

    /// The first difference of an answer from this one.
    fn differs(&self, given: &Self) -> Option<String> {
        let difference = match (self.status, given.status, &self.value, &given.value) {
            (Some(status), None, ..) => {
                return Some(format!(
                    "stored answers have a status, such as {status}: give --status"
                ));
            }
            (None, Some(_), ..) => "stored answers have no status",
            (.., Some(stored), Some(given)) => return differs(stored, given, ""),
            (.., None, None) => return None,
            (.., None, Some(_)) => "stored answers have a body that is no JSON",
            (.., Some(_), None) => "the body is no JSON",
        };
        Some(difference.to_owned())
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        // A fraction has one also where it is 0.
        Value::Number(number) if number.is_f64() => "fraction",
        Value::Number(_) => "integer",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

fn form(value: &Value, out: &mut String) {
    match value {
        Value::Array(values) => {
            out.push('[');
            if let Some(first) = values.first() {
                form(first, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (place, (name, value)) in sorted(members).into_iter().enumerate() {
                let _ = write!(out, "{}\"{name}\": ", if place == 0 { "" } else { ", " });
                form(value, out);
            }
            out.push('}');
        }
        value => out.push_str(kind(value)),
    }
}

/// Members by their names: their order is that of their writer.
fn sorted(members: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut members: Vec<_> = members.iter().collect();
    members.sort_unstable_by_key(|(name, _)| *name);
    members
}

/// The first difference in the form of two values. A stored `null` within an object or a list stands for any.
fn differs(stored: &Value, given: &Value, path: &str) -> Option<String> {
    let at = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    match (stored, given) {
        (Value::Null, _) if !path.is_empty() => None,
        (Value::Object(stored), Value::Object(given)) => {
            let missing = sorted(stored)
                .into_iter()
                .find(|(name, value)| !value.is_null() && !given.contains_key(*name));
            if let Some((name, _)) = missing {
                return Some(format!("`{}` is missing", at(name)));
            }
            sorted(given)
                .into_iter()
                .find_map(|(name, given)| match stored.get(name) {
                    Some(stored) => differs(stored, given, &at(name)),
                    None => Some(format!("stored answers have no `{}`", at(name))),
                })
        }
        (Value::Array(stored), Value::Array(given)) => {
            let stored = stored.first()?;
            given
                .iter()
                .find_map(|given| differs(stored, given, &at("[]")))
        }
        (stored, given) if kind(stored) == kind(given) => None,
        (stored, given) => {
            let place = match path {
                "" => "it".to_owned(),
                path => format!("`{path}`"),
            };
            Some(format!(
                "{place} is of type {}, and {} in stored answers",
                kind(given),
                kind(stored)
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named_without_values() {
        let of = |json: &str| Sample::of(serde_json::from_str(json).unwrap());
        let stored = r#"{ "charge": { "id": "secret" }, "lines": [{ "cents": 1 }], "note": null }"#;
        for (charge, rest, difference) in [
            (r#"{ "id": "" }"#, r#"[], "note": "late""#, None),
            (
                r#"{ "id": "c" }"#,
                r#"[{ "cents": 2 }, { "cents": -3 }]"#,
                None,
            ),
            (
                r#"{ "id": 7 }"#,
                "[]",
                Some("`charge.id` is of type integer, and text in stored answers"),
            ),
            (
                r#"{ "id": "c", "at": "secret" }"#,
                "[]",
                Some("stored answers have no `charge.at`"),
            ),
            (
                r#"{ "id": "c" }"#,
                r#"[{ "cents": 1 }, {}]"#,
                Some("`lines.[].cents` is missing"),
            ),
            (
                "null",
                "[]",
                Some("`charge` is of type null, and object in stored answers"),
            ),
        ] {
            let given = of(&format!(r#"{{ "charge": {charge}, "lines": {rest} }}"#));
            assert_eq!(of(stored).differs(&given).as_deref(), difference);
        }
    }
}
