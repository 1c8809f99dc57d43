//! The label of a key, by which an operator recognizes a record: chosen and redacted by the caller.
//!
//! A record has at most one: an entry of the [journal](super::journal) with a small letter, whose name is the text. An
//! attempt that records its end adds it, unless an earlier one has. Nothing decides by it.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use bytes::Bytes;

use super::journal::{EntryKind, Journal, JournalEntry, MAX_LABEL};
use crate::identity::fingerprint::Fingerprint;

/// A text of at most 64 bytes, printed as one line. No `Debug` of the text, which is for operators alone.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct KeyLabel(Arc<str>);

impl Journal {
    /// The label of the key.
    #[doc(hidden)] // for the model of idem-conformance
    #[must_use]
    pub fn label(&self) -> Option<String> {
        KeyLabel::of(self).map(|label| label.as_str().to_owned())
    }

    /// The journal with the part of `text` that a label shows.
    #[doc(hidden)] // for the model of idem-conformance
    #[must_use]
    pub fn with_label(&self, text: &str) -> Self {
        KeyLabel::new(text).map_or_else(|| self.clone(), |label| self.with(&label.entry()))
    }
}

impl KeyLabel {
    /// The part of `text` that fits. `None`: it has nothing to show.
    pub(crate) fn new<L: fmt::Display + ?Sized>(text: &L) -> Option<Self> {
        let mut bounded = Bounded {
            bytes: [0; MAX_LABEL],
            len: 0,
        };
        // An error ends the text where it is full.
        let _ = write!(bounded, "{text}");
        let text = bounded.as_str().trim();
        (!text.is_empty()).then(|| Self(text.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The label in a journal. A label from another writer is bounded as well.
    pub(crate) fn of(journal: &Journal) -> Option<Self> {
        let mut entries = journal.entries().map_while(Result::ok);
        let entry = entries.find(|entry| entry.kind == EntryKind::Label)?;
        Self::new(&entry.label)
    }

    pub(crate) fn entry(&self) -> JournalEntry {
        JournalEntry {
            kind: EntryKind::Label,
            step: [0; 16],
            at: UNIX_EPOCH,
            schema: 0,
            input: Fingerprint::NONE,
            label: self.0.to_string(),
            body: Bytes::new(),
        }
    }
}

impl fmt::Debug for KeyLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyLabel({} bytes)", self.0.len())
    }
}

/// The first bytes of a text, without an allocation.
struct Bounded {
    bytes: [u8; MAX_LABEL],
    len: usize,
}

impl Bounded {
    fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..self.len]).expect("it consists of whole characters")
    }
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            let shown = if is_printed(character) {
                character
            } else {
                char::REPLACEMENT_CHARACTER
            };
            let end = self.len + shown.len_utf8();
            let place = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
            shown.encode_utf8(place);
            self.len = end;
        }
        Ok(())
    }
}

/// Whether the character is printed where it stands. Control characters could move the cursor of an operator's
/// terminal, and marks of direction reorder the text around them.
fn is_printed(character: char) -> bool {
    let is_mark = matches!(
        character,
        '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
    );
    !character.is_control() && !is_mark
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<L: fmt::Display>(label: L) -> Option<String> {
        KeyLabel::new(&label).map(|label| label.as_str().to_owned())
    }

    #[test]
    fn a_label_is_cut_between_characters() {
        assert_eq!(text("order …4711").as_deref(), Some("order …4711"));
        assert_eq!(text("x".repeat(64)), Some("x".repeat(64)));
        assert_eq!(text("x".repeat(65)), Some("x".repeat(64)));
        assert_eq!(text("ä".repeat(40)), Some("ä".repeat(32)));
        // The last character would take the bytes 64 to 66.
        let cut = format!("{}…4711", "x".repeat(63));
        assert_eq!(text(cut), Some("x".repeat(63)));
    }

    #[test]
    fn a_label_without_end_is_cut() {
        struct Endless;
        impl fmt::Display for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                loop {
                    f.write_str("order ")?;
                }
            }
        }
        assert_eq!(text(Endless).map(|text| text.len()), Some(64));
    }

    #[test]
    fn what_a_terminal_would_obey_is_replaced() {
        let label = text("a\x1b[2Jb\nc\u{9b}d\u{202e}e\u{200b}f\u{2028}g\0h");
        assert_eq!(label.as_deref(), Some("a�[2Jb�c�d�e�f�g�h"));
    }

    #[test]
    fn a_label_of_blanks_is_none() {
        assert_eq!(text(""), None);
        assert_eq!(text(" \u{3000} "), None);
        assert_eq!(text(" order 7 ").as_deref(), Some("order 7"));
    }

    #[test]
    fn its_text_is_not_part_of_a_debug_output() {
        let label = KeyLabel::new("order 4711");
        assert!(!format!("{label:?}").contains("4711"), "{label:?}");
    }

    #[test]
    fn a_planted_label_is_shown_without_control_characters() {
        let mut entry = KeyLabel::new("order 7").unwrap().entry();
        entry.label = "\x1b]0;owned\x07".to_owned();
        let label = KeyLabel::of(&Journal::default().with(&entry)).unwrap();
        assert_eq!(label.as_str(), "�]0;owned�");
    }
}
