//! An encoded result: a record to store, or a release.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::failure::Unencodable;
use super::format::Format;
#[cfg(feature = "http")]
use super::layout::OWN;
use super::replay::Replay;
use super::sink::Sink;
use crate::outcome::class::Class;
use crate::record::transition::Remains;
use crate::record::unknown_cause::Cause;
use crate::record::{HEADER, OutcomeKind};

/// An encoded result: a record to store, or a release.
pub enum Encoded {
    /// Store this: space for a header, then the answer.
    Store {
        /// The kind of the outcome.
        outcome: OutcomeKind,
        /// The schema of its type; of a tombstone 0, or that of the business error that is not stored; of an unknown
        /// outcome its cause.
        schema: u32,
        /// [`HEADER`] zeros and the body.
        record: Vec<u8>,
        /// The reason of a tombstone; `None` for any other outcome.
        lost: Option<Unencodable>,
    },
    /// Release the key; at least this remains of the attempt.
    Release(Remains),
}

impl Encoded {
    /// The record of an outcome without an answer.
    pub(crate) fn empty(outcome: OutcomeKind, lost: Option<Unencodable>) -> Self {
        let schema = match (outcome, lost) {
            (OutcomeKind::Unknown, Some(Unencodable::Unclassified)) => Cause::Unclassified.code(),
            (OutcomeKind::Unknown, _) => Cause::Error.code(),
            _ => 0,
        };
        Self::Store {
            outcome,
            schema,
            record: vec![0; HEADER],
            lost,
        }
    }

    /// Not generic, because a generic function is compiled with each function that keeps an answer.
    fn store(outcome: OutcomeKind, schema: u32, value: &mut dyn Replay, format: &Format) -> Self {
        Self::encode((outcome, schema), format, |sink| {
            value.write(sink)?;
            value.read_back(&sink.body())
        })
    }

    fn encode(
        (outcome, schema): (OutcomeKind, u32),
        format: &Format,
        write: impl FnOnce(&mut Sink) -> Result<(), Unencodable>,
    ) -> Self {
        let mut sink = Sink::new(format);
        // The effect has happened. An uncaught panic would release the claim, and the next call would run the body
        // again.
        let written = catch_unwind(AssertUnwindSafe(|| write(&mut sink)));
        match written.unwrap_or(Err(Unencodable::Panicked)) {
            Ok(()) => Self::Store {
                outcome,
                schema,
                record: sink.into_record(),
                lost: None,
            },
            Err(error) => Self::not_stored((outcome, schema), error),
        }
    }

    /// The tombstone of an answer that is not stored.
    pub(crate) fn not_stored((outcome, schema): (OutcomeKind, u32), lost: Unencodable) -> Self {
        Self::Store {
            outcome: OutcomeKind::Tombstone,
            schema: if outcome == OutcomeKind::Error {
                schema
            } else {
                0
            },
            record: vec![0; HEADER],
            lost: Some(lost),
        }
    }

    /// The record of a success. The value becomes the one that every replay gets; one that cannot be read back stays as
    /// it is, and a tombstone is stored.
    pub(crate) fn value<T: Replay>(value: &mut T, format: &Format) -> Self {
        Self::store(OutcomeKind::Value, T::schema(), value, format)
    }

    /// The record of a value or a business error that its holder does not return.
    pub(crate) fn by_hand<T: Replay>(outcome: OutcomeKind, value: &T, format: &Format) -> Self {
        Self::encode((outcome, T::schema()), format, |sink| {
            value.write(sink)?;
            match T::read(&sink.body()) {
                Ok(_) => Ok(()),
                Err(error) => Err(error.in_own_form::<T>()),
            }
        })
    }

    /// The record of an answer that its type encodes itself: `write` appends at most `max_bytes` bytes, and more than
    /// `limit` are not stored.
    #[cfg(feature = "http")]
    pub(crate) fn own(
        outcome: OutcomeKind,
        schema: u32,
        (max_bytes, limit): (usize, usize),
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Self {
        let too_large = || {
            let lost = Unencodable::TooLarge { max_bytes: limit };
            Self::empty(OutcomeKind::Tombstone, Some(lost))
        };
        // The tag takes one byte of the limit.
        if max_bytes >= limit {
            return too_large();
        }
        let mut record = Vec::with_capacity(HEADER + 1 + max_bytes);
        record.resize(HEADER, 0);
        record.push(OWN);
        write(&mut record);
        Self::Store {
            outcome,
            schema,
            record,
            lost: None,
        }
    }

    /// Maps the class of an error to what becomes of the key: `Business` is stored as [`value`](Self::value) does,
    /// `System` releases the key, `Unknown` stores an unknown outcome.
    pub(crate) fn by_class<E: Replay>(class: Class, error: &mut E, format: &Format) -> Self {
        match class {
            Class::Business => Self::store(OutcomeKind::Error, E::schema(), error, format),
            Class::System => Self::Release(Remains::Nothing),
            Class::Unknown => Self::empty(OutcomeKind::Unknown, None),
        }
    }
}

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The record is left out, because it holds the answer, which may be confidential.
            Self::Store { outcome, lost, .. } => f
                .debug_struct("Store")
                .field("outcome", outcome)
                .field("lost", lost)
                .finish_non_exhaustive(),
            Self::Release(remains) => f.debug_tuple("Release").field(remains).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_over_the_limit_becomes_a_tombstone() {
        let mut at_limit = "x".repeat(98);
        let format = |max_value_bytes| Format {
            max_value_bytes,
            ..Format::default()
        };
        assert!(matches!(
            Encoded::value(&mut at_limit, &format(100)),
            Encoded::Store { outcome: OutcomeKind::Value, record, .. } if record.len() == HEADER + 100
        ));
        assert!(matches!(
            Encoded::value(&mut at_limit, &format(99)),
            Encoded::Store {
                outcome: OutcomeKind::Tombstone,
                lost: Some(Unencodable::TooLarge { max_bytes: 99 }),
                record,
                ..
            } if record.len() == HEADER
        ));
    }
}
