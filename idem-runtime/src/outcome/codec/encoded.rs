//! An encoded result: a record to store, or a release.

use std::any::type_name;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::failure::Unencodable;
use super::format::Format;
#[cfg(feature = "http")]
use super::layout::OWN;
use super::replay::Replay;
use super::sink::Sink;
use crate::outcome::chosen_life::ChosenLife;
use crate::outcome::class::Class;
use crate::record::transition::Remains;
use crate::record::unknown_cause::Cause;
use crate::record::{HEADER, OutcomeKind};

/// An encoded result: a record to store, or a release.
#[derive(Debug)]
pub enum Encoded {
    /// Store this.
    Store(EncodedAnswer),
    /// Release the key; at least this remains of the attempt.
    Release(Remains),
}

/// The outcome of a body, as it is stored.
pub struct EncodedAnswer {
    pub(crate) outcome: OutcomeKind,
    /// The schema of its type; of a tombstone 0, or that of the business error that is not stored; of an unknown outcome
    /// its cause.
    pub(crate) schema: u32,
    /// [`HEADER`] zeros and the body.
    pub(crate) record: Vec<u8>,
    /// The reason of a tombstone; `None` for any other outcome.
    pub(crate) lost: Option<Unencodable>,
    pub(crate) life: ChosenLife,
    /// The answer of an outcome that is unknown until it is complete.
    pub(super) later: Option<Box<LaterAnswer>>,
}

/// An answer completed after its caller got the beginning.
#[cfg_attr(
    not(feature = "http"),
    allow(dead_code, reason = "only a response is streamed")
)]
pub(crate) struct LaterAnswer {
    pub(crate) answer: Pin<Box<dyn Future<Output = Encoded> + Send>>,
    /// Whether the outcome is unknown meanwhile: no body after a crash. Otherwise the claim is held, and lapses in a
    /// crash as that of any body.
    pub(crate) is_unknown_meanwhile: bool,
    /// Why it is not stored if incomplete after `max_run`.
    pub(crate) overdue: Unencodable,
    /// Set before the answer is dropped because the lease is lost: the part of it that the caller has ends as well.
    pub(crate) is_cancelled: Arc<AtomicBool>,
}

debug_fields!(LaterAnswer {
    is_unknown_meanwhile
});

impl EncodedAnswer {
    /// Whether the answer is complete later.
    pub(crate) fn is_later(&self) -> bool {
        self.later.is_some()
    }
}

// Without the record, which holds the answer and may be confidential.
debug_fields!(EncodedAnswer { outcome, lost });

impl Encoded {
    /// The record of an outcome without an answer.
    pub(crate) fn empty(outcome: OutcomeKind, lost: Option<Unencodable>) -> Self {
        let schema = match (outcome, lost) {
            (OutcomeKind::Unknown, Some(Unencodable::Unclassified)) => Cause::Unclassified.code(),
            (OutcomeKind::Unknown, _) => Cause::Error.code(),
            _ => 0,
        };
        Self::with((outcome, schema), vec![0; HEADER], lost)
    }

    fn with(
        (outcome, schema): (OutcomeKind, u32),
        record: Vec<u8>,
        lost: Option<Unencodable>,
    ) -> Self {
        Self::Store(EncodedAnswer {
            outcome,
            schema,
            record,
            lost,
            life: ChosenLife::Open,
            later: None,
        })
    }

    /// The record of an answer that is complete later; that of an unknown outcome until then.
    #[cfg(feature = "http")]
    pub(crate) fn later(later: LaterAnswer) -> Self {
        Self::Store(EncodedAnswer {
            outcome: OutcomeKind::Unknown,
            schema: Cause::Streaming.code(),
            record: vec![0; HEADER],
            lost: None,
            life: ChosenLife::Open,
            later: Some(Box::new(later)),
        })
    }

    /// Takes the answer that is complete later, if it is one.
    pub(crate) fn take_later(&mut self) -> Option<Box<LaterAnswer>> {
        match self {
            Self::Store(answer) => answer.later.take(),
            Self::Release(_) => None,
        }
    }

    /// Sets the life of the stored answer.
    #[inline]
    pub(crate) fn choose_life(&mut self, life: ChosenLife) {
        if life != ChosenLife::Open
            && let Self::Store(answer) = self
        {
            answer.life = life;
        }
    }

    /// The record of an answer as JSON. `None`: this is no JSON, as some JSON is no text or number of Rust.
    ///
    /// The text stays as it is: numbers that a `Value` would round are kept.
    pub(crate) fn json(outcome: OutcomeKind, schema: u32, json: &str) -> Option<Self> {
        let json = json.trim();
        serde_json::from_str::<serde_json::Value>(json).ok()?;
        let record = [&[0; HEADER], json.as_bytes()].concat();
        Some(Self::with((outcome, schema), record, None))
    }

    /// Not generic, because otherwise every idempotent function compiles it.
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
            Ok(()) => Self::with((outcome, schema), sink.into_record(), None),
            Err(error) => Self::not_stored((outcome, schema), error),
        }
    }

    /// The tombstone of an answer that is not stored.
    pub(crate) fn not_stored((outcome, schema): (OutcomeKind, u32), lost: Unencodable) -> Self {
        let schema = if outcome == OutcomeKind::Error {
            schema
        } else {
            0
        };
        Self::with(
            (OutcomeKind::Tombstone, schema),
            vec![0; HEADER],
            Some(lost),
        )
    }

    /// The record of a success. The value takes the form of every replay; an unreadable one stays as it is, and a
    /// tombstone is stored.
    pub(crate) fn value<T: Replay>(value: &mut T, format: &Format) -> Self {
        Self::store(OutcomeKind::Value, T::schema(), value, format)
    }

    /// The record of an answer that its holder does not return.
    pub(crate) fn by_hand<T: Replay>(outcome: OutcomeKind, value: &T, format: &Format) -> Self {
        Self::encode((outcome, T::schema()), format, |sink| {
            value.write(sink)?;
            match T::read(&sink.body()) {
                Ok(_) => Ok(()),
                Err(error) => Err(error.in_own_form(type_name::<T>())),
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
        Self::with((outcome, schema), record, None)
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
        let too_large = Unencodable::TooLarge { max_bytes: 99 };
        for (limit, outcome, len, lost) in [
            (100, OutcomeKind::Value, 100, None),
            (99, OutcomeKind::Tombstone, 0, Some(too_large)),
        ] {
            let Encoded::Store(answer) = Encoded::value(&mut at_limit, &format(limit)) else {
                panic!("a value is stored");
            };
            let stored = (answer.outcome, answer.record.len() - HEADER, answer.lost);
            assert_eq!(stored, (outcome, len, lost));
        }
    }
}
