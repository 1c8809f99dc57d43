//! Bytes of PostgreSQL as a text.

use crate::store::sql::primary_key::from_digits;

/// The bytes of a text in either format of `bytea_output`; `None` if it is none.
///
/// In the simple protocol of PostgreSQL each value is a text.
#[must_use]
pub fn bytea(text: &str) -> Option<Vec<u8>> {
    match text.strip_prefix("\\x") {
        Some(digits) => from_digits(digits.as_bytes()),
        None => from_escapes(text.as_bytes()),
    }
}

/// `\\` is a backslash, `\ooo` an octal byte, all else itself.
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
