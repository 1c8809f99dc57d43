//! A record: its header and its answer.

use std::fmt;

use bytes::Bytes;

use super::header::{HEADER, Header};
use super::journal::Journal;
use super::unreadable::Unreadable;

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
        Ok(Self { header, bytes })
    }

    /// `header` must be that of `bytes`.
    pub(crate) fn new(header: Header, bytes: Bytes) -> Self {
        Self { header, bytes }
    }

    /// A record without an answer: a header, and the journal of its steps.
    #[must_use]
    pub fn with_journal(mut header: Header, journal: &Journal) -> Self {
        header.has_journal = !journal.is_empty();
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
        if self.header.has_journal {
            &[]
        } else {
            &self.bytes[HEADER..]
        }
    }

    /// The journal; empty if the record has none.
    #[must_use]
    pub fn journal(&self) -> Journal {
        if self.header.has_journal {
            Journal::new(self.bytes.slice(HEADER..))
        } else {
            Journal::default()
        }
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

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("header", &self.header)
            .field("body_bytes", &self.body().len())
            .finish_non_exhaustive()
    }
}
