//! The journal of the model: entries of one byte. The store does not read it, so that its length and order count alone.

use bytes::Bytes;
use idem_runtime::store::author::Journal;

/// The longest journal of the model.
const ENTRIES: usize = 8;
/// The bits of the number of a step, which begins at 1.
const STEP: u8 = 0b11;
const BEGUN: u8 = 0;
const VOID: u8 = 1 << 2;
const UNKNOWN: u8 = 2 << 2;
const VALUE: u8 = 3 << 2;

/// An entry for a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Begun,
    /// It has begun, and had no effect after all.
    Void,
    /// It is unknown whether it had its effect.
    Unknown,
    /// It ended, with the value of this attempt.
    Value(u8),
}

/// A journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Log([u8; ENTRIES]);

impl Log {
    pub(crate) fn read(journal: &Journal) -> Self {
        let mut log = Self::default();
        let bytes = journal.as_bytes();
        log.0[..bytes.len()].copy_from_slice(bytes);
        log
    }

    pub(crate) fn journal(self) -> Journal {
        Journal::new(Bytes::copy_from_slice(self.bytes()))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0[..self.len()]
    }

    pub(crate) fn len(self) -> usize {
        self.0.iter().take_while(|entry| **entry != 0).count()
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0[0] == 0
    }

    /// The first entries of it.
    pub(crate) fn first(self, entries: u8) -> Self {
        let mut first = Self::default();
        let entries = usize::from(entries);
        first.0[..entries].copy_from_slice(&self.0[..entries]);
        first
    }

    pub(crate) fn add(&mut self, step: u8, entry: Entry) {
        let kind = match entry {
            Entry::Begun => BEGUN,
            Entry::Void => VOID,
            Entry::Unknown => UNKNOWN,
            Entry::Value(value) => VALUE | value << 4,
        };
        let end = self.len();
        self.0[end] = (step + 1) | kind;
    }

    /// Its entries with their steps.
    pub(crate) fn entries(self) -> impl Iterator<Item = (u8, Entry)> {
        self.0.into_iter().take(self.len()).map(|byte| {
            let entry = match byte & VALUE {
                BEGUN => Entry::Begun,
                VOID => Entry::Void,
                UNKNOWN => Entry::Unknown,
                _ => Entry::Value(byte >> 4),
            };
            ((byte & STEP) - 1, entry)
        })
    }

    /// The last entry of a step.
    pub(crate) fn last(self, step: u8) -> Option<Entry> {
        let of_step = self.entries().filter(|(other, _)| *other == step);
        of_step.map(|(_, entry)| entry).last()
    }

    /// Whether it is the other, or has grown from it.
    pub(crate) fn continues(self, other: Self) -> bool {
        self.bytes().starts_with(other.bytes())
    }
}
