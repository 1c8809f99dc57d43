//! The arguments of a statement.

#![allow(unnameable_types, reason = "part of a sealed trait")]

use super::primary_key::PrimaryKey;

/// A value in a statement.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum Argument<'a> {
    Bytes(&'a [u8]),
    Body(Option<&'a [u8]>),
    Int(i64),
    Text(&'a str),
    /// At least one, and the only argument.
    Keys(&'a [PrimaryKey]),
}
