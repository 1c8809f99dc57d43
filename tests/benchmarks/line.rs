//! One line of JSON: an object with just the fields that it should have.

use serde_json::{Map, Value};

/// A line, and its fields.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    text: String,
    fields: Map<String, Value>,
}

impl Line {
    pub(crate) fn parse(text: &str) -> Self {
        let fields = serde_json::from_str(text);
        Self {
            text: text.to_owned(),
            fields: fields.unwrap_or_else(|error| panic!("no JSON object: {error}: {text}")),
        }
    }

    /// Fails if there is a field less, or one more.
    pub(crate) fn has_just(&self, names: &[&str]) {
        let mut wanted = names.to_vec();
        wanted.sort_unstable();
        let mut there: Vec<_> = self.fields.keys().map(String::as_str).collect();
        there.sort_unstable();
        assert_eq!(there, wanted, "the fields of {}", self.text);
    }

    pub(crate) fn word(&self, name: &str) -> &str {
        let word = self.fields.get(name).and_then(Value::as_str);
        word.unwrap_or_else(|| panic!("`{name}` is no word: {}", self.text))
    }

    /// A number that counts something.
    pub(crate) fn count(&self, name: &str) -> u64 {
        let count = self.fields.get(name).and_then(Value::as_u64);
        count.unwrap_or_else(|| panic!("`{name}` counts nothing: {}", self.text))
    }

    /// A number, or `null`, which is also what JSON has for one that is not finite.
    pub(crate) fn figure(&self, name: &str) -> Option<f64> {
        match self.fields.get(name) {
            Some(Value::Null) => None,
            Some(Value::Number(figure)) => figure.as_f64(),
            _ => panic!("`{name}` is no figure: {}", self.text),
        }
    }

    /// A number above 0.
    pub(crate) fn positive(&self, name: &str) -> f64 {
        let figure = self.figure(name).filter(|figure| *figure > 0.0);
        figure.unwrap_or_else(|| panic!("`{name}` is not above 0: {}", self.text))
    }
}
