//! Redaction of a value to its last characters.

use std::fmt::{self, Write};

struct Redacted<'a, T: ?Sized> {
    value: &'a T,
    last: usize,
}

/// Shows the last characters of a value, and `…` for the rest: `…4711`.
///
/// For the attribute's [`label`](macro@crate::idempotent#label) and [`CallBuilder::label`](crate::CallBuilder::label). It
/// shows at most `last` characters, and at most half of the value: of a short value the end would be nearly all. The
/// length of the value is not shown.
///
/// ```
/// use idem_runtime::key::redacted;
///
/// assert_eq!(redacted("ord-20261124-4711", 4).to_string(), "…4711");
/// assert_eq!(redacted(&4711, 4).to_string(), "…11");
/// assert_eq!(redacted("", 4).to_string(), "…");
/// ```
#[must_use]
pub fn redacted<T: fmt::Display + ?Sized>(
    value: &T,
    last: usize,
) -> impl fmt::Display + fmt::Debug {
    Redacted { value, last }
}

impl<T: fmt::Display + ?Sized> fmt::Display for Redacted<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut length = CharacterCount(0);
        write!(length, "{}", self.value)?;
        f.write_char('…')?;
        let hidden = length.0 - self.last.min(length.0 / 2);
        write!(Tail { f, hidden }, "{}", self.value)
    }
}

debug_fields!([T: ?Sized] Redacted<'_, T> { last });

struct CharacterCount(usize);

impl Write for CharacterCount {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.chars().count();
        Ok(())
    }
}

/// Leaves the first characters out.
struct Tail<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    hidden: usize,
}

impl Write for Tail<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut characters = text.chars();
        while self.hidden > 0 && characters.next().is_some() {
            self.hidden -= 1;
        }
        self.f.write_str(characters.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_characters_are_shown() {
        assert_eq!(redacted("order-4711", 4).to_string(), "…4711");
        assert_eq!(redacted("äöüäöü", 3).to_string(), "…äöü");
        assert_eq!(redacted("order-4711", 0).to_string(), "…");
        // In pieces.
        let value = format_args!("{}-{}", "order", 4711).to_string();
        let pieces = format!("{}", redacted(&format_args!("{}-{}", "order", 4711), 6));
        assert_eq!(pieces, redacted(&value, 6).to_string());
        assert_eq!(pieces, "…-4711");
    }

    #[test]
    fn no_more_than_half_is_shown() {
        for (value, shown) in [("4711", "…11"), ("123", "…3"), ("7", "…"), ("", "…")] {
            assert_eq!(redacted(value, usize::MAX).to_string(), shown);
        }
    }

    #[test]
    fn its_value_is_not_part_of_a_debug_output() {
        let debug = format!("{:?}", redacted("order-4711", 4));
        assert!(!debug.contains("47"), "{debug}");
    }
}
