//! The key that a format string makes.

use std::fmt;

use serde::ser::SerializeTupleVariant;
use serde::{Serialize, Serializer};

/// The key or scope that a format string makes: the text of each placeholder, by itself.
///
/// `#[idempotent(key = "{merchant}/{order_no}")]` makes its keys of it. By hand it finds their records, with
/// [`CallBuilder::key`](crate::CallBuilder::key).
///
/// The texts are encoded as a tuple, not joined: `("a/b", "c")` and `("a", "b/c")` are two keys under `"{}/{}"`. The
/// text between the placeholders sets keys of different formats apart. It does not count as content: a key whose
/// placeholders are all empty is refused as [`KeyError::Empty`](crate::KeyError::Empty), whatever stands around them.
/// A placeholder without any text around it, `"{}"`, is its text: the key `"{order_no}"` is that of
/// `order_no.to_string()`.
///
/// # Examples
///
/// ```
/// use idem_runtime::{DEFAULT_MAX_KEY_BYTES, FormatKey, KeyBuilder};
///
/// let key = |merchant: &str, order_no: &str| {
///     KeyBuilder::new("payments.pay", DEFAULT_MAX_KEY_BYTES)
///         .key(&FormatKey::new("{}/{}", &[format_args!("{merchant}"), format_args!("{order_no}")]))
/// };
/// assert_ne!(key("a/b", "c")?, key("a", "b/c")?);
/// assert!(key("", "").is_err());
/// # Ok::<(), idem_runtime::KeyError>(())
/// ```
#[derive(Clone, Copy)]
pub struct FormatKey<'a> {
    template: &'static str,
    values: &'a [fmt::Arguments<'a>],
}

impl<'a> FormatKey<'a> {
    /// The format string with `{}` for each placeholder, a brace of the text doubled, and what each placeholder shows.
    ///
    /// Names and format specifications are no part of the template: `"{order:>8}"` is `"{}"`, and the value
    /// `format_args!("{order:>8}")`.
    #[must_use]
    pub const fn new(template: &'static str, values: &'a [fmt::Arguments<'a>]) -> Self {
        Self { template, values }
    }
}

/// A variant that is named like the template: names are no content. Nothing is formatted in a buffer of its own.
impl Serialize for FormatKey<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let ("{}", [text]) = (self.template, self.values) {
            return serializer.collect_str(text);
        }
        let mut texts =
            serializer.serialize_tuple_variant("FormatKey", 0, self.template, self.values.len())?;
        for text in self.values {
            texts.serialize_field(text)?;
        }
        texts.end()
    }
}

/// The template, and not the values.
impl fmt::Debug for FormatKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FormatKey({:?})", self.template)
    }
}

#[cfg(test)]
mod tests;
