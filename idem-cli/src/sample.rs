//! The form of stored answers, with which an answer by hand is compared.

use std::fmt::Write as _;

use idem_runtime::Engine;
use idem_runtime::admin::{Entry, EntryFilter, EntryState};
use idem_runtime::store::OutcomeKind;
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::pace::Pace;
use crate::record;

/// The most answers that are read.
const MOST: usize = 16;
/// The most records that are examined for them.
const EXAMINED: usize = 20_000;
/// The longest text of a form, in characters.
const LONGEST: usize = 400;
/// The member that distinguishes a stored `Reply` of a handler from a plain value.
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

/// The answers that were read.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    pub(crate) found: Vec<Sample>,
    /// The number of answers that could not be read.
    unreadable: usize,
    /// Whether the whole store was examined.
    is_whole: bool,
}

impl Samples {
    /// Why there is none.
    pub(crate) fn missing(&self) -> String {
        let mut text = if self.is_whole {
            "the store has no such answer of this operation that a body has given".to_owned()
        } else {
            format!("none of the first {EXAMINED} records is such an answer of this operation")
        };
        if self.unreadable > 0 {
            text = format!(
                "{} answers of this operation cannot be read (--encryption-key-file?), and {text}",
                self.unreadable
            );
        }
        text
    }
}

impl Sample {
    fn of(value: Value) -> Self {
        if let Value::Object(mut members) = value {
            let status = |head: &Value| u16::try_from(head["status"].as_u64()?).ok();
            return match members.get(REPLY).and_then(status) {
                Some(status) => Self {
                    status: Some(status),
                    value: members.remove("value"),
                    is_response: false,
                },
                None => Self {
                    status: None,
                    value: Some(Value::Object(members)),
                    is_response: false,
                },
            };
        }
        Self {
            status: None,
            value: Some(value),
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
    pub(crate) fn differs(&self, given: &Self) -> Option<String> {
        match (self.status, given.status) {
            (Some(status), None) => {
                return Some(format!(
                    "stored answers have a status, such as {status}: give --status"
                ));
            }
            (None, Some(_)) => return Some("stored answers have no status".to_owned()),
            _ => {}
        }
        match (&self.value, &given.value) {
            (Some(stored), Some(given)) => differs(stored, given, ""),
            (None, None) => None,
            (None, Some(_)) => Some("stored answers have a body that is no JSON".to_owned()),
            (Some(_), None) => Some("the body is no JSON".to_owned()),
        }
    }
}

/// Reads answers of the operation of an entry, values or business errors, of functions whose types may be the same.
pub(crate) async fn samples(
    engine: &Engine,
    entry: &Entry,
    outcome: OutcomeKind,
    scan: &mut Pace,
) -> Result<Samples, Failure> {
    let mut entries = engine
        .entries()
        .operation(entry.operation().to_owned())
        .state(EntryFilter::Answered)
        .step_size(scan.step_size());
    let (mut samples, mut examined) = (Samples::default(), 0);
    while examined < EXAMINED {
        let Some(page) = scan.step(&mut entries).await? else {
            samples.is_whole = true;
            break;
        };
        examined += scan.step_size();
        samples.is_whole = page.cursor().is_none();
        for listed in page.into_entries() {
            // An answer by hand is no example.
            let fits = listed.state() == EntryState::Answered(outcome) && !listed.is_by_hand();
            if !fits || !listed.types().matches(entry.types()) {
                continue;
            }
            let whole = record::whole(engine, &listed, scan).await?;
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
            match sample {
                Some(sample) => samples.found.push(sample),
                None => samples.unreadable += 1,
            }
            if samples.found.len() + samples.unreadable == MOST {
                return Ok(samples);
            }
        }
        if samples.is_whole {
            break;
        }
    }
    Ok(samples)
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
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_difference_is_named_without_values() {
        let stored =
            || json!({ "charge": { "id": "secret" }, "lines": [{ "cents": 1 }], "note": null });
        for (given, expected) in [
            (
                json!({ "charge": { "id": "" }, "lines": [], "note": "late" }),
                None,
            ),
            (
                json!({ "charge": { "id": "c" }, "lines": [{ "cents": 2 }, { "cents": -3 }] }),
                None,
            ),
            (
                json!({ "charge": { "id": 7 }, "lines": [] }),
                Some("`charge.id` is of type integer, and text in stored answers"),
            ),
            (
                json!({ "charge": { "id": "c", "at": "secret" }, "lines": [] }),
                Some("stored answers have no `charge.at`"),
            ),
            (
                json!({ "charge": { "id": "c" }, "lines": [{ "cents": 1 }, {}] }),
                Some("`lines.[].cents` is missing"),
            ),
            (
                json!({ "charge": null, "lines": [] }),
                Some("`charge` is of type null, and object in stored answers"),
            ),
        ] {
            let difference = Sample::of(stored()).differs(&Sample::of(given));
            assert_eq!(difference.as_deref(), expected);
        }
    }
}
