//! The result of a test.

use std::borrow::Cow;
use std::fmt;

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowResult {
    /// The server obeys the sentence.
    Passed,
    /// The server does something else.
    Failed {
        /// The behaviour that the sentence demands.
        expected: String,
        /// The server's response: its status, and the beginning of its body.
        got: String,
    },
    /// Not testable: the target lacks an ability, or no client sees the effect.
    NotChecked(Cow<'static, str>),
    /// No server behind an [`IdempotencyLayer`](https://docs.rs/idem-runtime) obeys the sentence, for this reason.
    CannotBeMet(&'static str),
}

impl fmt::Display for RowResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed { expected, got } => write!(f, "failed: expected {expected}, got {got}"),
            Self::NotChecked(why) => write!(f, "not checked: {why}"),
            Self::CannotBeMet(why) => write!(f, "cannot be met: {why}"),
        }
    }
}

/// `Err` is a [`RowResult`] other than [`RowResult::Passed`].
pub(super) type Checked<T = ()> = Result<T, RowResult>;

pub(super) fn failed<T>(expected: impl Into<String>, got: impl Into<String>) -> Checked<T> {
    Err(RowResult::Failed {
        expected: expected.into(),
        got: got.into(),
    })
}

/// Needed for requests at two paths.
pub(super) const ELSEWHERE: &str = "an operation at another path (`elsewhere`)";

/// Ends a test for which the target lacks an ability.
pub(super) fn need<T>(ability: Option<T>, what: &'static str) -> Checked<T> {
    ability.ok_or(RowResult::NotChecked(Cow::Borrowed(what)))
}
