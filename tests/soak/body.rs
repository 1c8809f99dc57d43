//! The journal of one body.

use std::thread;

use crate::journal::Journal;
use crate::outcome::{Failure, Receipt, told};

/// Reports how a body ended that did not get to its end.
pub(crate) struct Body<'a> {
    pub(crate) journal: &'a Journal,
    pub(crate) id: u32,
    pub(crate) key: &'a str,
    pub(crate) ended: bool,
}

impl Body<'_> {
    fn write(&self, how: &str) {
        let (id, key) = (self.id, self.key);
        self.journal.write(format_args!("end {id} {key} {how}"));
    }

    /// Reports how it ended.
    pub(crate) fn ends(mut self, answer: Result<Receipt, Failure>) -> Result<Receipt, Failure> {
        self.ended = true;
        self.write(&told(&answer));
        answer
    }
}

impl Drop for Body<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let panics = thread::panicking();
            self.write(if panics { "panic" } else { "dropped" });
        }
    }
}
