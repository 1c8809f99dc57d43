//! A statement that does for several calls of a group commit what another does for one.

use std::sync::Arc;

use crate::store::sql::template::{Repeated, positional};

/// Such a statement for a table: the text before, the text for each call, and the text after.
///
/// Its arguments are those of the statement for one call; the one behind the last is the time.
#[derive(Debug)]
pub(crate) struct MultiRowStatement {
    before: String,
    each: String,
    separator: String,
    after: String,
    pub(super) order: Vec<usize>,
    /// Whether all of them must have their effect. If not, the effect of each can be read afterwards.
    pub(super) is_strict: bool,
}

impl MultiRowStatement {
    pub(crate) fn new(template: &str, is_strict: bool) -> Arc<Self> {
        let template = Repeated::of(template);
        let (part, order) = positional(template.part);
        Arc::new(Self {
            before: template.before.to_owned(),
            each: part,
            separator: template.separator.to_owned(),
            after: template.after.to_owned(),
            order,
            is_strict,
        })
    }

    /// The text for `width` calls.
    pub(super) fn text(&self, width: usize) -> String {
        let each = vec![&self.each[..]; width].join(&self.separator);
        format!("{}{each}{}", self.before, self.after)
    }
}
