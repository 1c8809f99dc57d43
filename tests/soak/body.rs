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
    fn ended(mut self, how: &str) {
        self.ended = true;
        let (id, key) = (self.id, self.key);
        self.journal.write(format_args!("end {id} {key} {how}"));
    }
}

impl Drop for Body<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let how = if thread::panicking() {
                "panic"
            } else {
                "dropped"
            };
            let (id, key) = (self.id, self.key);
            self.journal.write(format_args!("end {id} {key} {how}"));
        }
    }
}

impl Body<'_> {
    /// Reports how it ended.
    pub(crate) fn ends(self, answer: Result<Receipt, Failure>) -> Result<Receipt, Failure> {
        self.ended(&told(&answer));
        answer
    }
}
