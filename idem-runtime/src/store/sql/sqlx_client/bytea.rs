//! Bytes of PostgreSQL, in each of its formats.

use std::borrow::Cow;

use sqlx::error::BoxDynError;
use sqlx::postgres::{PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::{Decode, Type};

use crate::store::sql::primary_key::from_digits;

/// Bytes. In the simple protocol they are a text in the session's `bytea_output`, of which sqlx decodes one only.
pub(super) struct Bytea<'r>(pub(super) Cow<'r, [u8]>);

impl Type<sqlx::Postgres> for Bytea<'_> {
    fn type_info() -> PgTypeInfo {
        <Vec<u8> as Type<sqlx::Postgres>>::type_info()
    }
}

impl<'r> Decode<'r, sqlx::Postgres> for Bytea<'r> {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        let value_bytes = value.as_bytes()?;
        if value.format() == PgValueFormat::Binary {
            return Ok(Self(Cow::Borrowed(value_bytes)));
        }
        let bytes = match value_bytes.strip_prefix(b"\\x") {
            Some(digits) => from_digits(digits),
            None => from_escapes(value_bytes),
        };
        match bytes {
            Some(bytes) => Ok(Self(Cow::Owned(bytes))),
            None => Err("the text of bytes cannot be read".into()),
        }
    }
}

/// `\\` is a backslash, `\ooo` a byte in three octal digits, and all else itself.
fn from_escapes(mut text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    while let Some((&first, rest)) = text.split_first() {
        let (byte, rest) = match (first, rest) {
            (b'\\', [b'\\', rest @ ..]) => (b'\\', rest),
            (b'\\', [a, b, c, rest @ ..]) => {
                let digit = |byte: u8| char::from(byte).to_digit(8);
                let number = digit(*a)? << 6 | digit(*b)? << 3 | digit(*c)?;
                (u8::try_from(number).ok()?, rest)
            }
            (b'\\', _) => return None,
            (byte, rest) => (byte, rest),
        };
        bytes.push(byte);
        text = rest;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{from_digits, from_escapes};

    #[test]
    fn bytes_are_read_in_both_formats() {
        assert_eq!(from_digits(b"00fF5c"), Some(vec![0, 255, b'\\']));
        assert_eq!(
            from_escapes(b"a\\\\\\000\\377"),
            Some(b"a\\\0\xff".to_vec())
        );
        for broken in [&b"0"[..], b"0g"] {
            assert_eq!(from_digits(broken), None);
        }
        for broken in [&b"\\"[..], b"\\12", b"\\400", b"\\08x"] {
            assert_eq!(from_escapes(broken), None);
        }
    }
}
