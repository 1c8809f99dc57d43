//! Tables of cases on one fixture: each row has a new record, and a failure names its row.

use crate::prelude::*;

/// Longer than any record lives: the store forgets it, as a server that lost its data.
pub(crate) const FORGOTTEN: Duration = Duration::from_hours(24 * 40);

/// The row of a table that runs. It prints its name if a test fails in it.
#[derive(Debug)]
pub(crate) struct Row(String);

impl Row {
    /// Begins a row with a store that has forgotten the row before.
    pub(crate) fn new(fixture: &Fixture, name: impl std::fmt::Debug) -> Self {
        fixture.pass_in_store(FORGOTTEN);
        Self(format!("{name:?}"))
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the row {}", self.0);
        }
    }
}
