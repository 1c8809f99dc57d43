//! Keys made from a format string.

use std::fmt;

use serde::ser::SerializeTupleVariant;
use serde::{Serialize, Serializer};

/// A key or scope from a format string, one text per placeholder.
///
/// `#[idempotent(key = "{merchant}/{order_no}")]` builds its keys with it. In a program it finds their records, with
/// [`CallBuilder::key`](crate::CallBuilder::key).
///
/// The texts are encoded as a tuple, not joined: `("a/b", "c")` and `("a", "b/c")` are two keys under `"{}/{}"`. The
/// text between the placeholders distinguishes keys of different formats. It does not count as content: a key whose
/// placeholders are all empty is refused as [`ErrorKind::InvalidKey`](crate::ErrorKind::InvalidKey), whatever text surrounds them.
/// A placeholder without any text around it, `"{}"`, is its text: the key `"{order_no}"` is that of
/// `order_no.to_string()`.
///
/// # Examples
///
/// ```
/// use idem_runtime::{Engine, key::FormatKey, store::memory::MemoryStore};
///
/// let engine = Engine::new(MemoryStore::new());
/// let key = |merchant: &str, order_no: &str| {
///     let key = [format_args!("{merchant}"), format_args!("{order_no}")];
///     engine.operation("payments.pay").key(&FormatKey::new("{}/{}", &key)).key_digest()
/// };
/// assert_ne!(key("a/b", "c")?, key("a", "b/c")?);
/// assert!(key("", "").is_err());
/// # Ok::<(), idem_runtime::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct FormatKey<'a> {
    template: &'static str,
    values: &'a [fmt::Arguments<'a>],
}

impl<'a> FormatKey<'a> {
    /// A key of this format string and the values of its placeholders.
    ///
    /// The format string has `{}` for each placeholder and doubles each brace of the text.
    ///
    /// Names and format specifications are no part of the template: `"{order:>8}"` is `"{}"`, and the value
    /// `format_args!("{order:>8}")`.
    #[must_use]
    pub const fn new(template: &'static str, values: &'a [fmt::Arguments<'a>]) -> Self {
        Self { template, values }
    }
}

/// Serializes as a variant named like the template: names are no content. Nothing is formatted in a buffer of its own.
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

/// Writes the template, and not the values.
impl fmt::Debug for FormatKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FormatKey({:?})", self.template)
    }
}

#[cfg(test)]
mod tests;
