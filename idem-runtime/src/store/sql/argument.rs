//! The arguments of a statement.

#![allow(unnameable_types, reason = "part of a sealed trait")]

use std::sync::Arc;

/// A value in a statement.
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a> {
    Bytes(&'a [u8]),
    /// No answer and no journal.
    Null,
    Int(i64),
    Text(&'a str),
    /// Those of at least one call, and the only argument.
    Calls(&'a [Vec<Self>]),
}

/// An [`Argument`] that outlives its caller.
#[derive(Debug)]
pub(crate) enum OwnedArgument {
    Bytes(Vec<u8>),
    Int(i64),
    // SQLite's driver shares it, without a copy.
    Text(Arc<str>),
    Null,
}

impl From<&Argument<'_>> for OwnedArgument {
    fn from(argument: &Argument<'_>) -> Self {
        match *argument {
            Argument::Bytes(bytes) => Self::Bytes(bytes.to_vec()),
            // A statement for several calls is never queued.
            Argument::Null | Argument::Calls(_) => Self::Null,
            Argument::Int(number) => Self::Int(number),
            Argument::Text(text) => Self::Text(text.into()),
        }
    }
}

impl OwnedArgument {
    pub(crate) fn borrow(&self) -> Argument<'_> {
        match self {
            Self::Bytes(bytes) => Argument::Bytes(bytes),
            Self::Int(number) => Argument::Int(*number),
            Self::Text(text) => Argument::Text(text),
            Self::Null => Argument::Null,
        }
    }
}

impl<'a> Argument<'a> {
    #[cfg(feature = "postgres")]
    pub(crate) fn int(self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(number),
            _ => None,
        }
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn text(self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Text(text) => text.len(),
            _ => size_of::<i64>(),
        }
    }
}
