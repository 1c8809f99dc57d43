//! The arguments of a statement.

use std::fmt;

/// An argument of a statement.
#[derive(Clone, Copy)]
pub enum SqlArgument<'a> {
    /// NULL, for a column of bytes.
    Null,
    /// Bytes: `bytea`, or a blob.
    Bytes(&'a [u8]),
    /// A 64-bit number.
    Int(i64),
    /// A text.
    Text(&'a str),
    /// An array with an element for each of several calls. Of the store's own connections to PostgreSQL only.
    Array(SqlArray<'a>),
}

// The values may be confidential.
impl fmt::Debug for SqlArgument<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "Null",
            Self::Bytes(_) => "Bytes(..)",
            Self::Int(_) => "Int(..)",
            Self::Text(_) => "Text(..)",
            Self::Array(_) => "Array(..)",
        })
    }
}

impl SqlArgument<'_> {
    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Text(text) => text.len(),
            _ => size_of::<i64>(),
        }
    }
}

/// One argument of each of several calls. All have the same type, or are NULL.
#[derive(Clone, Copy)]
pub struct SqlArray<'a> {
    calls: &'a [Vec<SqlArgument<'a>>],
    at: usize,
}

debug_fields!(SqlArray<'_> { at });

impl<'a> SqlArray<'a> {
    /// The elements, none of which is an array.
    #[must_use]
    pub fn elements(&self) -> impl ExactSizeIterator<Item = SqlArgument<'a>> + use<'a> {
        let at = self.at;
        self.calls.iter().map(move |call| call[at])
    }

    /// The elements by their type; an array of NULL has that of bytes.
    #[allow(dead_code, reason = "for some clients of PostgreSQL")]
    pub(super) fn typed(&self) -> TypedElements<'a> {
        fn all<'a, T>(
            array: &SqlArray<'a>,
            value: impl Fn(SqlArgument<'a>) -> Option<T>,
        ) -> Vec<Option<T>> {
            array.elements().map(value).collect()
        }
        match self.elements().next() {
            Some(SqlArgument::Int(_)) => TypedElements::Ints(all(self, |element| match element {
                SqlArgument::Int(number) => Some(number),
                _ => None,
            })),
            Some(SqlArgument::Text(_)) => {
                TypedElements::Texts(all(self, |element| match element {
                    SqlArgument::Text(text) => Some(text),
                    _ => None,
                }))
            }
            _ => TypedElements::Bytes(all(self, |element| match element {
                SqlArgument::Bytes(bytes) => Some(bytes),
                _ => None,
            })),
        }
    }
}

/// The elements of an array, by their type.
#[allow(dead_code, reason = "for some clients of PostgreSQL")]
pub(super) enum TypedElements<'a> {
    Bytes(Vec<Option<&'a [u8]>>),
    Ints(Vec<Option<i64>>),
    Texts(Vec<Option<&'a str>>),
}

/// The arguments of a statement for one call, or for several.
#[derive(Clone, Copy)]
pub(crate) enum Arguments<'a> {
    One(&'a [SqlArgument<'a>]),
    Several(&'a [Vec<SqlArgument<'a>>]),
}

impl<'a> Arguments<'a> {
    /// The arguments of several calls as arrays.
    pub(super) fn arrays(calls: &'a [Vec<SqlArgument<'a>>]) -> Vec<SqlArgument<'a>> {
        let arguments = calls.first().map_or(0, Vec::len);
        (0..arguments)
            .map(|at| SqlArgument::Array(SqlArray { calls, at }))
            .collect()
    }
}

/// A [`SqlArgument`] that outlives its caller.
#[derive(Debug)]
pub(crate) enum OwnedArgument {
    Bytes(Vec<u8>),
    Int(i64),
    Text(Box<str>),
    Null,
}

impl From<&SqlArgument<'_>> for OwnedArgument {
    fn from(argument: &SqlArgument<'_>) -> Self {
        match *argument {
            SqlArgument::Bytes(bytes) => Self::Bytes(bytes.to_vec()),
            SqlArgument::Int(number) => Self::Int(number),
            SqlArgument::Text(text) => Self::Text(text.into()),
            // A statement for several calls is never queued.
            SqlArgument::Null | SqlArgument::Array(_) => Self::Null,
        }
    }
}

impl OwnedArgument {
    pub(crate) fn borrow(&self) -> SqlArgument<'_> {
        match self {
            Self::Bytes(bytes) => SqlArgument::Bytes(bytes),
            Self::Int(number) => SqlArgument::Int(*number),
            Self::Text(text) => SqlArgument::Text(text),
            Self::Null => SqlArgument::Null,
        }
    }
}
