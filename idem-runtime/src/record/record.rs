//! A record: its header and its answer.

use bytes::Bytes;

use super::header::{HEADER, Header};
use super::journal::{Journal, JournalKind};
use super::unreadable::Unreadable;

/// Bytes of the length of a journal behind an answer.
const LENGTH: usize = 4;

/// A record as a store returns it: header and answer share one allocation.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// The decoded header.
    pub header: Header,
    bytes: Bytes,
}

impl Record {
    /// Takes over the bytes of a record.
    ///
    /// # Errors
    ///
    /// [`Unreadable`], as [`Header::decode`].
    pub fn decode(bytes: Bytes) -> Result<Self, Unreadable> {
        let header = Header::decode(&bytes)?;
        let record = Self { header, bytes };
        match record.split() {
            Some(_) => Ok(record),
            None => Err(Unreadable::Short {
                bytes: record.bytes.len(),
            }),
        }
    }

    /// The ends of answer and journal; `None`: the record is cut.
    fn split(&self) -> Option<(usize, usize)> {
        let whole = self.bytes.len();
        match self.header.journal {
            JournalKind::None => Some((whole, whole)),
            // A listing has the header alone.
            JournalKind::Attempts if self.header.is_answered() && whole == HEADER => {
                Some((whole, whole))
            }
            JournalKind::Attempts if self.header.is_answered() => {
                let end = whole.checked_sub(LENGTH)?;
                let length: [u8; LENGTH] = *self.bytes[end..].first_chunk()?;
                let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
                let start = end.checked_sub(length)?;
                (start >= HEADER).then_some((start, end))
            }
            _ => Some((HEADER, whole)),
        }
    }

    /// `header` must be that of `bytes`.
    pub(crate) fn new(header: Header, bytes: Bytes) -> Self {
        Self { header, bytes }
    }

    /// A record without an answer: a header, and its journal.
    #[must_use]
    pub fn with_journal(mut header: Header, journal: &Journal) -> Self {
        header.journal = journal.kind();
        let bytes = [&header.encode()[..], journal.as_bytes()].concat().into();
        Self { header, bytes }
    }

    /// This record behind another header.
    pub(crate) fn with_header(self, header: Header) -> Self {
        if header == self.header {
            return self;
        }
        let mut bytes = self.bytes.to_vec();
        bytes[..HEADER].copy_from_slice(&header.encode());
        Self::new(header, bytes.into())
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The stored answer; empty unless the record is done with a value or an error.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        let (end, _) = self.split().unwrap_or((HEADER, HEADER));
        &self.bytes[HEADER..end]
    }

    /// The journal; empty if the record has none.
    #[must_use]
    pub fn journal(&self) -> Journal {
        let (start, end) = self.split().unwrap_or((HEADER, HEADER));
        Journal::new(self.bytes.slice(start..end))
    }

    /// Appends the attempts behind an answer, if `max_bytes` allow.
    ///
    /// then it appends them without the label, or nothing.
    pub(crate) fn append_attempts(
        answered: &mut Vec<u8>,
        mut header: Header,
        attempts: &Journal,
        max_bytes: Option<usize>,
    ) {
        let len = answered.len() + LENGTH;
        let fits =
            |journal: &Journal| max_bytes.is_none_or(|max| len + journal.as_bytes().len() <= max);
        let kept = if fits(attempts) {
            attempts.clone()
        } else {
            attempts.without_label()
        };
        if !kept.is_empty() && fits(&kept) {
            header.journal = JournalKind::Attempts;
            let bytes = kept.as_bytes();
            answered.extend(bytes);
            // Bounded by the number of attempts that are kept.
            answered.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
        }
        answered[..HEADER].copy_from_slice(&header.encode());
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The record as it is stored.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

debug_fields!(Record {
    header,
    body_bytes: |it| it.body().len()
});
