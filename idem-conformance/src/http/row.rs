//! A specification as a table: a sentence and its test a row.

use std::fmt;

use super::check::Check;
use super::key::KeyPlace;

/// A specification and its sentences.
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// The addresses of its pages.
    pub(super) sources: &'static [&'static str],
    pub(super) place: KeyPlace,
    pub(super) rows: &'static [Row],
}

/// The force of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Level {
    /// The words MUST, MUST NOT, REQUIRED.
    Must,
    /// The words SHOULD, SHOULD NOT, RECOMMENDED.
    Should,
    /// The word MAY.
    May,
    /// A statement without such a word.
    States,
    /// A case of a public test suite.
    Suite,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Must => "must",
            Self::Should => "should",
            Self::May => "may",
            Self::States => "states",
            Self::Suite => "suite",
        })
    }
}

/// A sentence of a specification that concerns idempotency, and its test.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Row {
    /// The name of the row, unique in its table.
    pub name: &'static str,
    /// The section of the sentence, or the page.
    pub section: &'static str,
    /// The force of the sentence.
    pub level: Level,
    /// The sentence in other words.
    pub sentence: &'static str,
    pub(super) check: Check,
}

impl Row {
    pub(super) fn has_test(&self) -> bool {
        !matches!(self.check, Check::Unseen(_) | Check::CannotBeMet(_))
    }

    /// The test in words; `–` without one.
    #[must_use]
    pub fn test(&self) -> String {
        self.check.phrase()
    }
}
