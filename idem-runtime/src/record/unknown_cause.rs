//! Reason of an unknown outcome, stored in the header's schema field.

use std::fmt;

use super::{Header, OutcomeKind, State};

/// The cause of an outcome that is still unknown after its reconciliation.
pub const UNDECIDED: u32 = 4;

/// Reason of an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Cause {
    /// The body ended with an error of class unknown.
    Error = 1,
    /// The body was dropped half-way.
    Cancelled,
    /// The body panicked.
    Panicked,
    /// The reconciliation ended without a verdict.
    Undecided = UNDECIDED,
    /// The classification of the error panicked.
    Unclassified,
    /// Its transaction was committed before it ended.
    #[cfg_attr(
        not(feature = "_sql"),
        allow(dead_code, reason = "written by stores that are left out")
    )]
    HalfWay,
    /// A step of an earlier attempt has an unknown effect.
    Step,
    /// It streams its answer: the record says so from before the first byte, until the answer is complete.
    Streaming,
}

impl Cause {
    const ALL: [Self; 8] = [
        Self::Error,
        Self::Cancelled,
        Self::Panicked,
        Self::Undecided,
        Self::Unclassified,
        Self::HalfWay,
        Self::Step,
        Self::Streaming,
    ];

    pub(crate) const fn code(self) -> u32 {
        self as u32
    }

    /// `None` for a code of a newer version.
    pub(crate) fn of(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.code() == code)
    }

    /// That of an encoded record; `None` for one with another outcome.
    pub(crate) fn in_record(record: &[u8]) -> Option<Self> {
        match Header::decode(record).ok()?.state {
            State::Done {
                outcome: OutcomeKind::Unknown,
                schema,
            } => Self::of(schema),
            _ => None,
        }
    }

    /// The predicate of "the body …".
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "ended with an error of class unknown",
            Self::Cancelled => "was cancelled half-way",
            Self::Panicked => "panicked",
            Self::Undecided => "was reconciled without a verdict",
            Self::Unclassified => "ended with an error whose classification panicked",
            Self::HalfWay => "was dropped half-way, and its transaction was committed all the same",
            Self::Step => "came to a step that an earlier attempt had begun, and may have finished",
            // Both while it does and after a crash.
            Self::Streaming => "streams its answer, or was cut off while it did",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_frozen_and_come_back() {
        let all = Cause::ALL;
        assert_eq!(all.map(Cause::code), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(
            all.iter()
                .all(|cause| Cause::of(cause.code()) == Some(*cause))
        );
        assert_eq!(Cause::of(0), None);
    }
}
