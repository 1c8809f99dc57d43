//! Numbers of `serde_json` under its feature `arbitrary_precision`.
//!
//! With it, a `Number` has the text of its source, and serializes as a private struct. The digest of a value must not
//! depend on a feature that another crate enables, because otherwise the body runs again after such a build. So the
//! text is read as `serde_json` reads it without the feature: as an integer of 64 bits, else as the nearest double.
//!
//! Not independent of the feature: a `Value` made of an `f32`, whose text is the shortest one with the feature, and the
//! double of the same value without it; and a number of more digits than a double, or beyond its range. Its text is
//! encoded, because two amounts that round to one double are two requests.

/// Significant digits with which every double survives a round trip.
const DIGITS: usize = 17;

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
    /// Reads a number of a JSON document; `None`: it is none, or none that a double stands for.
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
        let number =
            (text.parse().ok()).filter(|_| is_number && significant_digits(text) <= DIGITS);
        number
            .filter(|number: &f64| number.is_finite())
            .map(Self::Float)
    }
}

/// The digits between the first and the last nonzero one.
fn significant_digits(number: &str) -> usize {
    let mantissa = number.split(['e', 'E']).next().unwrap_or_default();
    let digits = mantissa.trim_start_matches(['-', '0', '.']);
    let digits = digits.trim_end_matches(['0', '.']);
    digits.bytes().filter(u8::is_ascii_digit).count()
}
