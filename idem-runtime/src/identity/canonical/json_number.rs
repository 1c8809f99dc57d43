//! Numbers of `serde_json` under its feature `arbitrary_precision`.
//!
//! With it, a `Number` has the text of its source, and serializes as a private struct. The digest of a value must not
//! depend on a feature that another crate enables, because otherwise the body runs again after such a build. So the
//! text is read as `serde_json` reads it without the feature: as an integer of 64 bits, else as the nearest double.
//!
//! Not independent of the feature: a `Value` made of an `f32`, whose text is the shortest one with the feature, and the
//! double of the same value without it. A number beyond the range of a double exists with the feature only, and its
//! text is encoded.

/// The name of the private struct, and of its field.
pub(super) const NAME: &str = "$serde_json::private::Number";

/// A number as `serde_json` holds it without the feature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum JsonNumber {
    Unsigned(u64),
    Negative(i64),
    Float(f64),
}

impl JsonNumber {
    /// Reads a number of a JSON document; `None`: it is none, or too large.
    pub(super) fn read(text: &str) -> Option<Self> {
        let is_integer = !text.contains(['.', 'e', 'E']);
        if is_integer && let Ok(number) = text.parse() {
            return Some(Self::Unsigned(number));
        }
        if is_integer && let Ok(number @ ..0) = text.parse() {
            return Some(Self::Negative(number));
        }
        // Not `inf` and `nan`, which are floats in Rust.
        let is_number = text.ends_with(|last: char| last.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_number);
        number
            .filter(|number: &f64| number.is_finite())
            .map(Self::Float)
    }
}
