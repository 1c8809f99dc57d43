//! The events of an engine's observer, in the journal: to understand a history, not to judge it.

use std::sync::Arc;

use idem_runtime::{
    Observer,
    observe::{Event, EventKind},
};

use crate::journal::Journal;

/// Writes what matters of the engine's events.
#[derive(Debug)]
pub(crate) struct Watching(pub(crate) Arc<Journal>);

impl Observer for Watching {
    fn observe(&self, event: &Event<'_>) {
        let words = match &event.kind {
            EventKind::Unsaved { reason } => format!("unsaved: {reason}"),
            EventKind::LeaseLost { reason } => format!("lease lost: {reason}"),
            EventKind::Completed { late: true, .. } => "completed late".to_owned(),
            EventKind::Adopted => "adopted".to_owned(),
            EventKind::Warning { message } => format!("warning: {message}"),
            _ => return,
        };
        let words = words.replace('\n', " ");
        match event.key {
            Some(key) => self.0.write(format_args!("event 0 {key} {words}")),
            None => self.0.write(format_args!("event 0 - {words}")),
        };
    }
}
