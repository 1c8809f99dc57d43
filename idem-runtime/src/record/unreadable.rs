//! Stored values that are not readable as records.

/// The first byte of a record without a journal.
pub(crate) const LAYOUT: u8 = b'2';
/// The layout byte of a record with steps in its [`Journal`](super::Journal).
///
/// A layout of its own, so that a version without steps refuses the record instead of dropping finished steps.
pub(crate) const LAYOUT_STEPS: u8 = b'3';
/// The first byte of a record with a [`Journal`](super::Journal) of attempts alone: it follows the header, or the
/// answer.
pub(crate) const LAYOUT_ATTEMPTS: u8 = b'4';

/// Why a value is not readable as a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreadable {
    /// Fewer bytes than a header.
    Short {
        /// The number of bytes.
        bytes: usize,
    },
    /// A layout of another version, or no record at all.
    Layout {
        /// Its first byte.
        byte: u8,
    },
    /// A state that this version does not know.
    State {
        /// Its second byte.
        byte: u8,
    },
    /// Not a value of the store's kind, such as a Redis list.
    Type,
    /// A record that does not expire. Every record is written with a life, so it was changed from outside.
    Immortal,
}

display_text!(Unreadable {
    Self::Short { bytes } => "{bytes} bytes are too few for a record";
    Self::Layout { byte } =>
        "layout byte 0x{byte:02x} is none of 0x{LAYOUT:02x} to 0x{LAYOUT_ATTEMPTS:02x}: another version of idem, or not a \
         record";
    Self::State { byte } => "state byte 0x{byte:02x} is not known to this version";
    Self::Type => "the value is of another type than records have";
    Self::Immortal => "the record has no expiry, which idem always sets";
});

impl std::error::Error for Unreadable {}
