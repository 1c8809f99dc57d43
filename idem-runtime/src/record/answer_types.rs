//! Type tags of the answers under a key.

use std::fmt;

use super::outcome_kind::OutcomeKind;

/// Type tags of a function's value and of its kept error.
///
/// A claim carries them, and its record keeps them through every state, so that an answer of another type is refused
/// before it is stored, and a stored one before it is read. A tag is a digest of 16 bits of the name of the type
/// without its modules: of 65,534 pairs of types one is not distinguished.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AnswerTypes {
    value: u16,
    error: u16,
}

/// The type is not known.
const UNKNOWN: u16 = 0;
/// In the place of an error: the function keeps none.
const NONE: u16 = 1;

impl AnswerTypes {
    /// Neither type is known: matches every other.
    pub const UNKNOWN: Self = Self {
        value: UNKNOWN,
        error: UNKNOWN,
    };

    /// The types of a function with these schemas of value and error; 0: it keeps no errors.
    pub(crate) const fn of([value, error]: [u32; 2]) -> Self {
        Self {
            value: tag(value),
            error: match error {
                0 => NONE,
                error => tag(error),
            },
        }
    }

    /// The tags as a store reads them back.
    #[must_use]
    pub const fn from_bytes([v, w, e, f]: [u8; 4]) -> Self {
        Self {
            value: u16::from_be_bytes([v, w]),
            error: u16::from_be_bytes([e, f]),
        }
    }

    /// The four bytes in which a header ends: the tag of the value, then that of the error, big-endian.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 4] {
        let ([v, w], [e, f]) = (self.value.to_be_bytes(), self.error.to_be_bytes());
        [v, w, e, f]
    }

    /// Whether neither is known.
    #[must_use]
    pub const fn is_unknown(self) -> bool {
        self.value == UNKNOWN && self.error == UNKNOWN
    }

    /// Whether both functions may have values of one type: the tags are alike, or one is not known.
    ///
    /// A body runs only under a record of which this is true. Their errors may differ.
    #[must_use]
    pub const fn matches(self, other: Self) -> bool {
        alike(self.value, other.value)
    }

    /// Whether one function may read the other's answer.
    #[must_use]
    pub(crate) fn reads(self, other: Self, outcome: OutcomeKind) -> bool {
        match outcome {
            // A function that no longer keeps errors is detected when it reads one.
            OutcomeKind::Error => {
                alike(self.error, other.error) || self.error == NONE || other.error == NONE
            }
            _ => alike(self.value, other.value),
        }
    }

    /// Whether the function has answers of this outcome and schema.
    #[must_use]
    pub(crate) fn holds(self, outcome: OutcomeKind, schema: u32) -> bool {
        match outcome {
            OutcomeKind::Error => alike(self.error, tag(schema)),
            _ => alike(self.value, tag(schema)),
        }
    }

    /// A schema that an answer of this outcome may have: its tag is that of the type.
    #[must_use]
    pub(crate) const fn schema(self, outcome: OutcomeKind) -> u32 {
        let tag = match outcome {
            OutcomeKind::Error => self.error,
            _ => self.value,
        };
        tag as u32
    }

    /// Whether it is known that the function keeps no errors.
    #[must_use]
    pub(crate) const fn keeps_no_errors(self) -> bool {
        self.error == NONE
    }

    /// These types if they are known, otherwise `other`.
    #[must_use]
    pub(crate) const fn or(self, other: Self) -> Self {
        if self.is_unknown() { other } else { self }
    }
}

const fn alike(one: u16, other: u16) -> bool {
    one == other || one == UNKNOWN || other == UNKNOWN
}

/// The tag of a schema, never a special one.
#[allow(
    clippy::cast_possible_truncation,
    reason = "what is cut off has been folded in"
)]
const fn tag(schema: u32) -> u16 {
    match (schema ^ (schema >> 16)) as u16 {
        low @ (UNKNOWN | NONE) => low + 2,
        tag => tag,
    }
}

impl fmt::Debug for AnswerTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnswerTypes({:04x}, {:04x})", self.value, self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: OutcomeKind = OutcomeKind::Value;
    const ERROR: OutcomeKind = OutcomeKind::Error;

    #[test]
    fn the_tags_are_frozen() {
        let types = AnswerTypes::of([0x1b91_20e3, 0x0000_8001]);
        assert_eq!(types.to_bytes(), [0x3b, 0x72, 0x80, 0x01]);
        assert_eq!(AnswerTypes::from_bytes(types.to_bytes()), types);
    }

    #[test]
    fn the_tag_of_a_known_type_has_no_other_meaning() {
        for schema in [0, 1, 0x0001_0001, 0x0001_0000, 0xffff_ffff, 0xabcd_abcc] {
            let types = AnswerTypes::of([schema, schema]);
            assert!(!types.is_unknown(), "{schema:08x}");
            assert!(types.value > NONE, "{schema:08x}");
            assert_eq!(types.keeps_no_errors(), schema == 0, "{schema:08x}");
            assert!(types.holds(VALUE, schema), "{schema:08x}");
        }
    }

    #[test]
    fn an_unknown_type_matches_every_type() {
        let (pay, refund) = (AnswerTypes::of([2, 3]), AnswerTypes::of([4, 5]));
        assert!(!pay.matches(refund) && !pay.reads(refund, VALUE) && !pay.reads(refund, ERROR));
        assert!(!pay.holds(VALUE, 4) && !pay.holds(ERROR, 5) && pay.holds(ERROR, 3));
        for outcome in [VALUE, ERROR] {
            assert!(pay.reads(AnswerTypes::UNKNOWN, outcome));
            assert!(AnswerTypes::UNKNOWN.reads(pay, outcome));
            assert!(AnswerTypes::UNKNOWN.holds(outcome, 7));
        }
        assert!(pay.matches(AnswerTypes::UNKNOWN) && AnswerTypes::UNKNOWN.matches(pay));
    }

    #[test]
    fn errors_count_only_where_one_is_read() {
        let (pay, other) = (AnswerTypes::of([2, 3]), AnswerTypes::of([2, 5]));
        assert!(pay.matches(other) && pay.reads(other, VALUE) && !pay.reads(other, ERROR));
        let keeps_none = AnswerTypes::of([2, 0]);
        assert!(pay.reads(keeps_none, ERROR) && keeps_none.reads(pay, ERROR));
        assert!(!keeps_none.holds(ERROR, 3) && keeps_none.holds(VALUE, 2));
    }
}
