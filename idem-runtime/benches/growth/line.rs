//! What is printed: one line a measurement, with the figures of its part.

use std::fmt::Write as _;
use std::io::{Write as _, stdout};

use super::options::Growth;

/// A line that is being written.
pub(crate) struct Line {
    json: bool,
    text: String,
}

impl Line {
    pub(crate) fn new(growth: &Growth, part: &str) -> Self {
        let mut line = Self {
            json: growth.json,
            text: String::new(),
        };
        if line.json {
            let _ = write!(line.text, "{{\"part\":\"{part}\"");
        } else {
            let _ = write!(line.text, "{part:<10}");
        }
        line
    }

    /// A word of our own, which needs no quoting.
    pub(crate) fn word(mut self, name: &str, word: &str) -> Self {
        let _ = if self.json {
            write!(self.text, ",\"{name}\":\"{word}\"")
        } else {
            write!(self.text, " {word:<13}")
        };
        self
    }

    pub(crate) fn count(self, name: &str, count: u64) -> Self {
        self.value(name, &count.to_string())
    }

    /// Rounded to so many places; what is not known is `null`.
    pub(crate) fn figure(self, name: &str, figure: Option<f64>, places: usize) -> Self {
        let figure = figure.filter(|figure| figure.is_finite());
        let text = figure.map_or_else(|| "null".to_owned(), |it| format!("{it:.places$}"));
        self.value(name, &text)
    }

    fn value(mut self, name: &str, value: &str) -> Self {
        let _ = if self.json {
            write!(self.text, ",\"{name}\":{value}")
        } else {
            write!(self.text, "  {name} {value:>9}")
        };
        self
    }

    pub(crate) fn print(mut self) {
        if self.json {
            self.text.push('}');
        }
        let mut out = stdout().lock();
        writeln!(out, "{}", self.text).unwrap();
        // A run takes minutes: who waits for it sees what there is.
        out.flush().unwrap();
    }
}
