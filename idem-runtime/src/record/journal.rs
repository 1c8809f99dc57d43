//! The journal of a record: the steps that its attempts have begun and finished, the attempts that have ended, what
//! operators did, and the label of its key.
//!
//! It follows the header of a record without an answer, whose layout byte is then [`LAYOUT_STEPS`](super::LAYOUT_STEPS), or
//! without steps [`LAYOUT_ATTEMPTS`](super::LAYOUT_ATTEMPTS). Behind an answer, only attempts and label are kept.
//! Entries are only appended. Stores pass them on unread, but for their kind.
//!
//! ```text
//!  0–3   bytes of the entry after this field             all numbers big-endian
//!  4     kind: B begun, V begun without an effect, D value, E error, T finished without a kept value,
//!        U unknown, X origin; a small letter: an entry that a version may ignore if it does not know it, and that
//!        has nothing of the request: a attempt, l lapsed attempt, see `attempt`; o act of an operator, see
//!        `operator_act`; k label of the key, see `label`
//!  5–20  digest of the step's name; of X random bytes
//! 21–26  time of the local calendar, milliseconds since 1970
//! 27–30  schema of the value or error
//! 31–46  fingerprint of the step's input; zeros: none
//! 47     bytes of the label
//! 48–    label, in UTF-8; then the value or error, as an answer is stored
//! ```

use std::fmt;
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::outcome_kind::OutcomeKind;
use super::unreadable::{LAYOUT, LAYOUT_ATTEMPTS, LAYOUT_STEPS};
use crate::identity::fingerprint::Fingerprint;

/// The journal of a record, as its bytes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Journal(Bytes);

/// Bytes of an entry without its label and its value.
const FIXED: usize = 48;
/// Bytes of the field that holds the length.
const LENGTH: usize = 4;

impl Journal {
    /// The number of attempts and acts of operators that are remembered: the first, and the last ones.
    #[doc(hidden)] // for the model of idem-conformance
    pub const MAX_ATTEMPTS: usize = 16;

    /// A journal of these bytes, which are not examined.
    #[must_use]
    pub const fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The bytes behind the header.
    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The place of each entry, and the byte of its kind. `None`, at the end: the entry is cut.
    fn places(&self) -> impl Iterator<Item = Option<(Range<usize>, u8)>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let rest = self.0.get(at..).filter(|rest| !rest.is_empty())?;
            let place = rest
                .split_first_chunk::<LENGTH>()
                .and_then(|(length, entry)| {
                    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
                    let kind = *entry.get(..length)?.first()?;
                    Some((at..at + LENGTH + length, kind))
                });
            at = place.as_ref().map_or(self.0.len(), |(place, _)| place.end);
            Some(place)
        })
    }

    /// Whether it has steps, attempts alone, or nothing. An unreadable journal has steps.
    #[must_use]
    pub fn kind(&self) -> JournalKind {
        let is_ignorable =
            |place: Option<(_, u8)>| place.is_some_and(|(_, kind)| kind.is_ascii_lowercase());
        match self.places().all(is_ignorable) {
            _ if self.is_empty() => JournalKind::None,
            true => JournalKind::Attempts,
            false => JournalKind::Steps,
        }
    }

    /// The journal with one more entry. Of more attempts than are kept, the first and the last ones remain.
    pub(crate) fn with(&self, entry: &JournalEntry) -> Self {
        self.and(entry).bounded()
    }

    /// The same, and all that was there remains.
    pub(crate) fn and(&self, entry: &JournalEntry) -> Self {
        let mut bytes = self.0.to_vec();
        entry.write(&mut bytes);
        Self(bytes.into())
    }

    /// The entries that `keeps` wants, and whether all are readable.
    ///
    /// It gets `None` for an entry that this version may ignore.
    fn filtered(&self, keeps: impl Fn(Option<&JournalEntry>) -> bool) -> (Self, bool) {
        let mut kept = Vec::new();
        for (bytes, entry) in self.parsed() {
            let Ok(entry) = entry else {
                return (Self(kept.into()), false);
            };
            if keeps(entry.as_ref()) {
                kept.extend(bytes);
            }
        }
        (Self(kept.into()), true)
    }

    /// The entries about attempts and the label, up to an unreadable one.
    pub(crate) fn attempts(&self) -> Self {
        let attempts = self.filtered(|entry| entry.is_none_or(|entry| !entry.kind.is_step()));
        attempts.0.bounded()
    }

    /// The journal without entries that count no more: of each step the last one is kept, and none of a step that had
    /// no effect; of attempts the first, and the last ones. An unreadable journal stays as it is.
    pub(crate) fn compacted(&self) -> Self {
        let mut kept: Vec<(Option<StepDigest>, Bytes)> = Vec::new();
        for (bytes, entry) in self.parsed() {
            let Ok(entry) = entry else {
                return self.clone();
            };
            let is_step =
                |entry: &JournalEntry| entry.kind.is_step() && entry.kind != EntryKind::Origin;
            let Some(entry) = entry.filter(is_step) else {
                kept.push((None, bytes));
                continue;
            };
            kept.retain(|(step, _)| *step != Some(entry.step));
            if entry.kind != EntryKind::Void {
                kept.push((Some(entry.step), bytes));
            }
        }
        let mut whole = Vec::with_capacity(self.0.len());
        for (_, bytes) in kept {
            whole.extend(bytes);
        }
        Self(whole.into()).bounded()
    }

    /// Whether it has a label, also behind unreadable entries.
    pub(crate) fn has_label(&self) -> bool {
        let mut kinds = self
            .places()
            .map_while(|place| Some(EntryKind::of(place?.1)));
        kinds.any(|kind| kind == Some(EntryKind::Label))
    }

    pub(crate) fn without_label(&self) -> Self {
        let is_other = |entry: &JournalEntry| entry.kind != EntryKind::Label;
        match self.filtered(|entry| entry.is_none_or(is_other)) {
            (without, true) => without,
            _ => self.clone(),
        }
    }

    /// The journal with at most [`MAX_ATTEMPTS`](Self::MAX_ATTEMPTS): the first, and the last ones.
    fn bounded(self) -> Self {
        let is_history = |kind| EntryKind::of(kind).is_some_and(EntryKind::is_history);
        let places = self.places();
        let attempts =
            places.filter(|place| (place.as_ref()).is_none_or(|(_, kind)| is_history(*kind)));
        let Some(mut attempts) = attempts.collect::<Option<Vec<_>>>() else {
            return self;
        };
        if attempts.len() <= Self::MAX_ATTEMPTS {
            return self;
        }
        let mut bytes = self.0.to_vec();
        let last = attempts.len() - Self::MAX_ATTEMPTS;
        for (range, _) in attempts.drain(1..=last).rev() {
            bytes.drain(range);
        }
        Self(bytes.into())
    }

    /// Its entries, from first to last. Entries that this version may ignore are left out.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Result<JournalEntry, BrokenJournal>> {
        self.parsed().filter_map(|(_, entry)| entry.transpose())
    }

    /// Bytes and entry, up to the first unreadable one; `None` for an entry that this version may ignore.
    fn parsed(
        &self,
    ) -> impl Iterator<Item = (Bytes, Result<Option<JournalEntry>, BrokenJournal>)> + use<> {
        let mut rest = self.0.clone();
        std::iter::from_fn(move || {
            let before = rest.clone();
            if before.is_empty() {
                return None;
            }
            let entry = JournalEntry::split_off(&mut rest);
            if entry.is_err() {
                rest.clear();
            }
            Some((before.slice(..before.len() - rest.len()), entry))
        })
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The values may be confidential.
        write!(f, "Journal({} bytes)", self.0.len())
    }
}

/// The kind of a journal's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JournalKind {
    /// Nothing: there is no journal.
    None,
    /// Ended attempts and a label, nothing that belongs to one request.
    Attempts,
    /// Steps, and attempts that have ended.
    Steps,
}

impl JournalKind {
    /// Whether there is no journal.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::None
    }

    /// The layout byte of a record with such a journal.
    pub(crate) fn layout(self) -> u8 {
        match self {
            Self::None => LAYOUT,
            Self::Attempts => LAYOUT_ATTEMPTS,
            Self::Steps => LAYOUT_STEPS,
        }
    }

    pub(crate) fn of_layout(layout: u8) -> Option<Self> {
        match layout {
            LAYOUT => Some(Self::None),
            LAYOUT_ATTEMPTS => Some(Self::Attempts),
            LAYOUT_STEPS => Some(Self::Steps),
            _ => None,
        }
    }
}

pub(crate) type StepDigest = [u8; 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// The step begins; its end is another entry.
    Begun,
    /// It returned a value.
    Value,
    /// It returned a business error.
    Error,
    /// It is finished, and its value was not kept.
    Tombstone,
    /// It has ended with an unknown effect.
    Unknown,
    /// It has begun, and had no effect after all.
    Void,
    /// No step: the origin of the names under which transactions keep steps of this record.
    Origin,
    /// No step: an attempt that has ended.
    Attempt,
    /// No step: an attempt whose lease lapsed, and whose key another one has claimed.
    Lapsed,
    /// No step: an act of an operator.
    Act,
    /// No step: the label of the key.
    Label,
}

impl EntryKind {
    const ALL: [(u8, Self); 11] = [
        (b'B', Self::Begun),
        (b'D', Self::Value),
        (b'E', Self::Error),
        (b'T', Self::Tombstone),
        (b'U', Self::Unknown),
        (b'V', Self::Void),
        (b'X', Self::Origin),
        (b'a', Self::Attempt),
        (b'k', Self::Label),
        (b'l', Self::Lapsed),
        (b'o', Self::Act),
    ];

    fn byte(self) -> u8 {
        let of = Self::ALL.iter().find(|(_, kind)| *kind == self);
        of.map_or(0, |(byte, _)| *byte)
    }

    fn of(byte: u8) -> Option<Self> {
        let of = Self::ALL.iter().find(|(known, _)| *known == byte);
        of.map(|(_, kind)| *kind)
    }

    /// The end of a step with this outcome.
    pub(crate) fn of_outcome(outcome: OutcomeKind) -> Self {
        match outcome {
            OutcomeKind::Value => Self::Value,
            OutcomeKind::Error => Self::Error,
            OutcomeKind::Tombstone => Self::Tombstone,
            OutcomeKind::Unknown => Self::Unknown,
        }
    }

    /// The outcome of a step that has ended.
    pub(crate) fn outcome(self) -> Option<OutcomeKind> {
        match self {
            Self::Value => Some(OutcomeKind::Value),
            Self::Error => Some(OutcomeKind::Error),
            Self::Tombstone => Some(OutcomeKind::Tombstone),
            Self::Unknown => Some(OutcomeKind::Unknown),
            _ => None,
        }
    }

    /// Whether the step has ended, with a value or without.
    pub(crate) fn is_end(self) -> bool {
        self.outcome().is_some()
    }

    /// Whether it is about steps, and so about one request.
    pub(crate) fn is_step(self) -> bool {
        !self.is_history() && self != Self::Label
    }

    pub(crate) fn is_attempt(self) -> bool {
        matches!(self, Self::Attempt | Self::Lapsed)
    }

    /// Whether it is an attempt, or an act of an operator.
    pub(crate) fn is_history(self) -> bool {
        self.is_attempt() || self == Self::Act
    }
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct JournalEntry {
    pub(crate) kind: EntryKind,
    pub(crate) step: StepDigest,
    /// By the local calendar of the process that wrote it.
    pub(crate) at: SystemTime,
    pub(crate) schema: u32,
    pub(crate) input: Fingerprint,
    /// The part of the name that operators may see.
    pub(crate) label: String,
    /// The value or error, as an answer is stored.
    pub(crate) body: Bytes,
}

/// The longest label, in bytes; a longer one is cut.
pub(crate) const MAX_LABEL: usize = 64;

impl JournalEntry {
    /// The bytes of an entry that holds a value of this length.
    pub(crate) fn len_with(label: &str, body: usize) -> usize {
        FIXED + shown(label).len() + body
    }

    /// Appends the entry.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let label = shown(&self.label);
        let len = Self::len_with(label, self.body.len());
        let since = self.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        out.reserve(len);
        // Bounded by the limit of a journal, far below the range of the field.
        let length = u32::try_from(len - LENGTH).unwrap_or(u32::MAX);
        out.extend(length.to_be_bytes());
        out.push(self.kind.byte());
        out.extend(self.step);
        out.extend(&millis.to_be_bytes()[2..]);
        out.extend(self.schema.to_be_bytes());
        out.extend(self.input.as_bytes());
        out.push(u8::try_from(label.len()).unwrap_or(u8::MAX));
        out.extend(label.as_bytes());
        out.extend(&self.body);
    }

    /// Takes the first entry off. `None`: this version may ignore it.
    fn split_off(rest: &mut Bytes) -> Result<Option<Self>, BrokenJournal> {
        let cut = BrokenJournal { bytes: rest.len() };
        let length: [u8; LENGTH] = *rest.first_chunk().ok_or(cut)?;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if rest.len() - LENGTH < length {
            return Err(cut);
        }
        let entry = rest.split_to(LENGTH + length);
        let kind = *entry.get(LENGTH).ok_or(cut)?;
        let Some(kind) = EntryKind::of(kind) else {
            return if kind.is_ascii_lowercase() {
                Ok(None)
            } else {
                Err(cut)
            };
        };
        let label_end = FIXED + usize::from(*entry.get(FIXED - 1).ok_or(cut)?);
        let label = entry.get(FIXED..label_end).ok_or(cut)?;
        let label = std::str::from_utf8(label).map_err(|_| cut)?.to_owned();
        let part = |from: usize, to: usize| &entry[from..to];
        let number = |bytes: &[u8]| bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b));
        let (mut step, mut input) = ([0; 16], [0; 16]);
        step.copy_from_slice(part(5, 21));
        input.copy_from_slice(part(31, 47));
        Ok(Some(Self {
            kind,
            step,
            at: UNIX_EPOCH + Duration::from_millis(number(part(21, 27))),
            schema: u32::try_from(number(part(27, 31))).unwrap_or_default(),
            input: Fingerprint::from_bytes(input),
            label,
            body: entry.slice(label_end..),
        }))
    }
}

/// The part of a label that fits.
fn shown(label: &str) -> &str {
    first_bytes(label, MAX_LABEL)
}

/// The beginning of a text, cut at a character.
pub(crate) fn first_bytes(text: &str, most: usize) -> &str {
    let mut ends = (0..=text.len().min(most)).rev();
    let end = ends.find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

debug_fields!(JournalEntry {
    kind,
    label,
    body_bytes: |it| it.body.len()
});

/// A journal that this version cannot read: it is damaged, or of a later version. Its record is never replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BrokenJournal {
    /// The number of bytes from the entry on that cannot be read.
    pub(crate) bytes: usize,
}

impl fmt::Display for BrokenJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the last {} bytes of its journal of steps are damaged, or written by a later version of idem",
            self.bytes
        )
    }
}

impl std::error::Error for BrokenJournal {}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: EntryKind, label: &str, body: &'static [u8]) -> JournalEntry {
        JournalEntry {
            kind,
            step: [7; 16],
            at: UNIX_EPOCH + Duration::from_millis(1_790_000_000_123),
            schema: 0x0102_0304,
            input: Fingerprint::from_bytes([9; 16]),
            label: label.to_owned(),
            body: Bytes::from_static(body),
        }
    }

    fn journal(entries: &[JournalEntry]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for entry in entries {
            entry.write(&mut bytes);
        }
        bytes
    }

    fn read(bytes: Vec<u8>) -> Vec<Result<JournalEntry, BrokenJournal>> {
        Journal::new(bytes.into()).entries().collect()
    }

    #[test]
    fn entries_come_back_in_order() {
        let all = [
            entry(EntryKind::Begun, "mail", b""),
            entry(EntryKind::Value, "charge", b"\"ch-1\""),
            entry(EntryKind::Error, "", b"{}"),
            entry(EntryKind::Tombstone, "größe", b""),
            entry(EntryKind::Unknown, "mail", b""),
        ];
        let bytes = journal(&all);
        let lens = all
            .each_ref()
            .map(|entry| JournalEntry::len_with(&entry.label, entry.body.len()));
        assert_eq!(bytes.len(), lens.iter().sum::<usize>());
        assert_eq!(read(bytes), all.map(Ok));
    }

    #[test]
    fn a_long_label_is_cut_between_characters() {
        let long = "ä".repeat(40);
        let bytes = journal(&[entry(EntryKind::Value, &long, b"1")]);
        let back = read(bytes).remove(0).expect("it is whole");
        assert_eq!((back.label, &back.body[..]), ("ä".repeat(32), &b"1"[..]));
    }

    #[test]
    fn what_counts_of_a_journal_remains() {
        let of = |step: u8, kind, body| JournalEntry {
            step: [step; 16],
            ..entry(kind, "step", body)
        };
        let origin = of(9, EntryKind::Origin, b"");
        let (charge, mail) = (
            of(1, EntryKind::Value, b"1"),
            of(2, EntryKind::Unknown, b""),
        );
        let all = [
            of(1, EntryKind::Begun, b""),
            origin.clone(),
            of(2, EntryKind::Begun, b""),
            of(3, EntryKind::Begun, b""),
            charge.clone(),
            of(3, EntryKind::Void, b""),
            mail.clone(),
        ];
        let mut bytes = journal(&all);
        let compacted = Journal::new(bytes.clone().into()).compacted();
        assert_eq!(compacted.as_bytes(), &journal(&[origin, charge, mail]));
        assert_eq!(compacted.compacted(), compacted);
        // An entry that this version may ignore stays, and an unreadable one keeps all.
        bytes[4] = b'z';
        let ignored = Journal::new(bytes.clone().into()).compacted();
        assert_eq!(
            ignored.as_bytes().len(),
            compacted.as_bytes().len() + journal(&all[..1]).len()
        );
        bytes[4] = b'Z';
        let broken = Journal::new(bytes.into());
        assert_eq!(broken.compacted(), broken);
    }

    #[test]
    fn a_cut_journal_is_broken_at_every_byte() {
        let two = [
            entry(EntryKind::Value, "charge", b"1"),
            entry(EntryKind::Value, "mail", b"2"),
        ];
        let (first, bytes) = (journal(&two[..1]).len(), journal(&two));
        for len in 0..bytes.len() {
            let all = read(bytes[..len].to_vec());
            let whole = len == 0 || len == first;
            assert_eq!(all.iter().all(Result::is_ok), whole, "{len}");
        }
    }

    #[test]
    fn an_unknown_kind_is_refused_unless_it_may_be_ignored() {
        let two = [
            entry(EntryKind::Value, "charge", b"1"),
            entry(EntryKind::Value, "mail", b"2"),
        ];
        let mut bytes = journal(&two);
        bytes[4] = b'z';
        assert_eq!(read(bytes.clone()), [Ok(two[1].clone())]);
        bytes[4] = b'Z';
        assert_eq!(
            read(bytes.clone()),
            [Err(BrokenJournal { bytes: bytes.len() })]
        );
    }

    #[test]
    fn a_label_stays_with_the_attempts() {
        let label = entry(EntryKind::Label, "order …4711", b"");
        let attempt = |step: u8| JournalEntry {
            step: [step; 16],
            ..entry(EntryKind::Attempt, "i", b"")
        };
        let step = entry(EntryKind::Value, "charge", b"1");
        let all = [
            vec![label.clone(), attempt(0), step.clone()],
            (1..40).map(attempt).collect(),
        ];
        let whole = Journal::new(journal(&all.concat()).into());
        let kept: Vec<_> = std::iter::once(0).chain(25..40).map(attempt).collect();
        let attempts = [vec![label.clone()], kept.clone()].concat();
        assert_eq!(whole.attempts().as_bytes(), &journal(&attempts));
        assert_eq!(whole.attempts().kind(), JournalKind::Attempts);
        let mut compacted = vec![label.clone(), attempt(0), step.clone()];
        compacted.extend(kept[1..].to_vec());
        assert_eq!(whole.compacted().as_bytes(), &journal(&compacted));
        assert_eq!(whole.compacted().kind(), JournalKind::Steps);
        // Without it, the rest is as before.
        compacted.remove(0);
        let without = whole.compacted().without_label();
        assert_eq!(without.as_bytes(), &journal(&compacted));
        assert_eq!(without.without_label(), without);
    }

    #[test]
    fn a_journal_that_cannot_be_read_keeps_its_label() {
        let mut bytes = journal(&[entry(EntryKind::Label, "order …4711", b"")]);
        bytes.extend(b"\0\0\0\x09Z12345678");
        let broken = Journal::new(bytes.into());
        assert_eq!(broken.without_label(), broken);
    }

    /// A version without labels sees an entry of a later version: a small letter that it does not know.
    #[test]
    fn a_version_that_does_not_know_labels_passes_them_on() {
        let attempt = entry(EntryKind::Attempt, "i", b"");
        let mut bytes = journal(&[entry(EntryKind::Label, "order …4711", b""), attempt.clone()]);
        bytes[4] = b'z';
        let later = Journal::new(bytes.clone().into());
        assert_eq!(later.kind(), JournalKind::Attempts);
        assert_eq!(read(bytes), [Ok(attempt.clone())]);
        assert_eq!(later.attempts(), later);
        assert_eq!(later.compacted(), later);
        let next = (0..40).fold(later.clone(), |journal, _| journal.with(&attempt));
        let (first, of_next) = (later.as_bytes(), next.as_bytes());
        assert_eq!(of_next[..first.len()], first[..]);
        let entries: Vec<_> = next.entries().collect();
        assert_eq!(entries.len(), Journal::MAX_ATTEMPTS);
    }
}
