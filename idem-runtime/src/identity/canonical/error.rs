//! The error of a value that has no canonical encoding.

use std::fmt;

/// The greatest nesting depth: sequences, maps, structs, variants, newtypes and `Some` count one each. It is here for
/// the text of [`CanonicalErrorKind::TooDeep`]; the encoder checks it.
pub(crate) const MAX_DEPTH: u32 = 128;

/// The reason why a value has no canonical encoding.
///
/// The text contains neither the value nor the message of its `Serialize` implementation, because such messages often
/// quote the value that they refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CanonicalError {
    kind: CanonicalErrorKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CanonicalErrorKind {
    /// A map has two entries of the same key.
    DuplicateKey,
    /// Deeper than [`MAX_DEPTH`].
    TooDeep,
    /// The calls that the `Serialize` implementation made do not describe a value.
    Inconsistent,
    /// The `Serialize` implementation returned an error of its own.
    SerializeFailed,
    /// Longer than the caller allows; encoding stopped after this many bytes.
    TooLong { bytes: usize },
}

impl CanonicalError {
    pub(crate) const fn new(kind: CanonicalErrorKind) -> Self {
        Self { kind }
    }

    /// The number of bytes at which the limit stopped the encoding.
    pub(crate) const fn bytes_at_limit(self) -> Option<usize> {
        match self.kind {
            CanonicalErrorKind::TooLong { bytes } => Some(bytes),
            _ => None,
        }
    }
}

impl fmt::Display for CanonicalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.kind, f)
    }
}

display_text!(CanonicalErrorKind {
    Self::DuplicateKey => "two entries of one map, or two fields of one struct, have the same key";
    Self::TooDeep => "it is nested more than {MAX_DEPTH} levels deep";
    Self::Inconsistent =>
        "its `Serialize` implementation wrote a different number of elements than it announced, or a map value without \
         its key";
    Self::SerializeFailed => "its `Serialize` implementation returned an error";
    Self::TooLong { bytes } => "its encoding has {bytes} bytes or more";
});

impl std::error::Error for CanonicalError {}

impl serde::ser::Error for CanonicalError {
    // The message is dropped, because it may quote the value.
    fn custom<T: fmt::Display>(_message: T) -> Self {
        Self::new(CanonicalErrorKind::SerializeFailed)
    }
}
