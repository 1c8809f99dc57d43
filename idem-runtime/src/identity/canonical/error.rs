use std::fmt;

/// Why a value has no canonical encoding.
///
/// The text never contains the value, nor what its `Serialize` implementation said about it:
/// implementations like to quote what they refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CanonicalError {
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A map has two entries of the same key.
    DuplicateKey,
    /// Deeper than [`MAX_DEPTH`](super::MAX_DEPTH).
    TooDeep,
    /// The calls that the `Serialize` implementation made do not describe a value.
    Inconsistent,
    /// The `Serialize` implementation failed by itself.
    Refused,
    /// Longer than the caller allows; encoding stopped after so many bytes.
    TooLong { bytes: usize },
}

impl CanonicalError {
    pub(crate) const fn new(kind: Kind) -> Self {
        Self { kind }
    }

    /// How many bytes there were when the limit stopped the encoding, if that is what happened.
    pub(crate) const fn too_long(self) -> Option<usize> {
        match self.kind {
            Kind::TooLong { bytes } => Some(bytes),
            _ => None,
        }
    }
}

impl fmt::Display for CanonicalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::DuplicateKey => f.write_str(
                "two entries of one map, or two fields of one struct, have the same key",
            ),
            Kind::TooDeep => write!(f, "it is nested more than {} levels deep", super::MAX_DEPTH),
            Kind::Inconsistent => f.write_str(
                "its `Serialize` implementation announced another number of elements than it \
                 wrote, or a map value without its key",
            ),
            Kind::Refused => f.write_str("its `Serialize` implementation returned an error"),
            Kind::TooLong { bytes } => write!(f, "it takes {bytes} bytes or more"),
        }
    }
}

impl std::error::Error for CanonicalError {}

impl serde::ser::Error for CanonicalError {
    fn custom<T: fmt::Display>(_may_quote_the_value: T) -> Self {
        Self::new(Kind::Refused)
    }
}
