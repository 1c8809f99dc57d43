//! A value as the bytes of a record, and back.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::classify::Class;
use crate::record::{HEADER, OutcomeKind};

/// A value that can be stored as an answer and read back. Implemented for every type that
/// serializes and deserializes without borrowing.
///
/// Answers are stored as JSON. What JSON cannot hold does not come back: `f64::NAN` is written as
/// `null`, so a replay of it is [`ErrorKind::Undecodable`](crate::ErrorKind::Undecodable), never a
/// second run.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be stored as an answer",
    label = "duplicates get a stored copy of what is returned",
    note = "derive `serde::Serialize` and `serde::Deserialize` for `{Self}`, without borrowed fields",
    note = "if it is the error: `on_error = release` or `on_error = unknown` keeps none"
)]
pub trait Replay: Sized {
    #[doc(hidden)]
    fn write(&self, out: &mut Sink) -> Result<(), Unencodable>;
    #[doc(hidden)]
    fn read(bytes: &[u8]) -> Result<Self, Undecodable>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> Replay for T {
    fn write(&self, out: &mut Sink) -> Result<(), Unencodable> {
        match serde_json::to_writer(&mut *out, self) {
            Ok(()) => Ok(()),
            Err(_) if out.full => Err(Unencodable::TooLarge { max_bytes: out.max }),
            // The message of a `Serialize` impl may quote the value, so it goes no further.
            Err(_) => Err(Unencodable::NotSerializable),
        }
    }

    fn read(bytes: &[u8]) -> Result<Self, Undecodable> {
        serde_json::from_slice(bytes).map_err(|error| Undecodable {
            // Where, but not what: serde's message may quote the stored value.
            at: error.column(),
        })
    }
}

/// What is to be done with a result.
pub enum Encoded {
    /// Store this: room for a header, then the answer.
    Store {
        /// What it is.
        outcome: OutcomeKind,
        /// Which type it is.
        schema: u32,
        /// [`HEADER`] zeros and the body.
        record: Vec<u8>,
        /// Why it is a tombstone, if it is one.
        lost: Option<Unencodable>,
    },
    /// Give the key back.
    Release,
}

impl Encoded {
    pub(crate) fn empty(outcome: OutcomeKind, lost: Option<Unencodable>) -> Self {
        Self::Store {
            outcome,
            schema: 0,
            record: vec![0; HEADER],
            lost,
        }
    }

    fn store<T: Replay>(outcome: OutcomeKind, value: &T, max_bytes: usize) -> Self {
        let mut sink = Sink::new(max_bytes);
        // The effect has happened. A panic that went on from here would give the claim up, and the
        // next call would run the body again.
        let written = catch_unwind(AssertUnwindSafe(|| value.write(&mut sink)));
        match written.unwrap_or(Err(Unencodable::Panicked)) {
            Ok(()) => Self::Store {
                outcome,
                schema: schema_of(std::any::type_name::<T>()),
                record: sink.record,
                lost: None,
            },
            Err(error) => Self::empty(OutcomeKind::Tombstone, Some(error)),
        }
    }

    /// The record of a success.
    pub(crate) fn value<T: Replay>(value: &T, max_bytes: usize) -> Self {
        Self::store(OutcomeKind::Value, value, max_bytes)
    }

    pub(crate) fn classed<E: Replay>(class: Class, error: &E, max_bytes: usize) -> Self {
        match class {
            Class::Business => Self::store(OutcomeKind::Error, error, max_bytes),
            Class::System => Self::Release,
            Class::Unknown => Self::empty(OutcomeKind::Unknown, None),
        }
    }
}

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The record holds the answer, which is nobody's business.
            Self::Store { outcome, lost, .. } => f
                .debug_struct("Store")
                .field("outcome", outcome)
                .field("lost", lost)
                .finish_non_exhaustive(),
            Self::Release => f.write_str("Release"),
        }
    }
}

/// The bytes of a record while they are written: stops at its limit.
pub struct Sink {
    record: Vec<u8>,
    max: usize,
    full: bool,
}

impl Sink {
    fn new(max: usize) -> Self {
        let mut record = Vec::with_capacity(HEADER + 256);
        record.resize(HEADER, 0);
        Self {
            record,
            max,
            full: false,
        }
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink")
            .field("bytes", &self.record.len())
            .finish_non_exhaustive()
    }
}

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.record.len() + bytes.len() > HEADER + self.max {
            self.full = true;
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.record.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why an answer became a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unencodable {
    /// More bytes than the engine keeps.
    TooLarge {
        /// The limit.
        max_bytes: usize,
    },
    /// Its `Serialize` refused.
    NotSerializable,
    /// Its `Serialize` panicked.
    Panicked,
    /// It is an error, and what should say of which class panicked.
    Unclassified,
}

impl fmt::Display for Unencodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { max_bytes } => write!(
                f,
                "it is larger than {max_bytes} bytes (`max_value_bytes`); duplicates get `NotStored`"
            ),
            Self::NotSerializable => {
                f.write_str("its `Serialize` refused; duplicates get `NotStored`")
            }
            Self::Panicked => f.write_str("its `Serialize` panicked; duplicates get `NotStored`"),
            Self::Unclassified => {
                f.write_str("what classifies the error panicked; duplicates get `Unknown`")
            }
        }
    }
}

/// Why a stored answer does not come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecodable {
    /// The byte of the answer at which it failed; 0 when it is not this function's kind of answer.
    pub at: usize,
}
/// A number for a type: FNV-1a over its name without the module paths, so that moving a type keeps
/// it. It tells a person who looks at an undecodable record whether another type was written there.
#[must_use]
pub(crate) fn schema_of(type_name: &str) -> u32 {
    let mut hash = 0x811c_9dc5_u32;
    let mut feed = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    };
    let mut rest = type_name;
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        if let Some(tail) = tail.strip_prefix("::") {
            // `word` was a module.
            rest = tail;
            continue;
        }
        feed(word.as_bytes());
        let mut chars = tail.chars();
        if let Some(mark) = chars.next() {
            feed(mark.encode_utf8(&mut [0; 4]).as_bytes());
        }
        rest = chars.as_str();
    }
    hash
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_tag_ignores_modules_and_sees_types() {
        assert_eq!(
            schema_of("alloc::vec::Vec<shop::Receipt>"),
            schema_of("std::vec::Vec<billing::model::Receipt>")
        );
        assert_ne!(schema_of("Vec<Receipt>"), schema_of("Vec<Refund>"));
        assert_ne!(schema_of("(u8, u16)"), schema_of("(u16, u8)"));
        // Frozen: a record of an older release must keep its tag.
        assert_eq!(schema_of("shop::Receipt"), 0x1b91_20e3);
    }

    #[test]
    fn an_answer_over_the_limit_becomes_a_tombstone() {
        let at_limit = "x".repeat(98);
        assert!(matches!(
            Encoded::value(&at_limit, 100),
            Encoded::Store { outcome: OutcomeKind::Value, record, .. } if record.len() == HEADER + 100
        ));
        assert!(matches!(
            Encoded::value(&at_limit, 99),
            Encoded::Store {
                outcome: OutcomeKind::Tombstone,
                lost: Some(Unencodable::TooLarge { max_bytes: 99 }),
                record,
                ..
            } if record.len() == HEADER
        ));
    }

    #[test]
    fn an_error_of_a_serialize_impl_is_not_repeated() {
        let map = std::collections::BTreeMap::from([((1, "secret"), 1)]);
        let mut sink = Sink::new(100);
        let error = serde_json::to_writer(&mut sink, &map).unwrap_err();
        assert!(error.to_string().contains("key must be a string"));
        assert_eq!(
            Unencodable::NotSerializable.to_string(),
            "its `Serialize` refused; duplicates get `NotStored`"
        );
    }
}
