//! A stored answer with its key and age.

use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::identity::key::KeyDigest;
use crate::identity::operation::Operation;
use crate::outcome::codec::{Body, Format, Replay, Undecodable, is_encrypted};
use crate::outcome::provenance::AnswerSource;
use crate::record::{OutcomeKind, Record, State};

/// A stored answer.
#[derive(Clone, Debug)]
pub struct StoredAnswer {
    pub(crate) operation: Operation,
    digest: KeyDigest,
    /// A copy per answer instead of a shared, counted one: threads that update one reference count contend for it.
    format: Format,
    pub(crate) record: Record,
    left: Duration,
    waited: bool,
    pub(crate) is_local: bool,
}

impl StoredAnswer {
    pub(crate) fn new(
        format: &Format,
        operation: &Operation,
        digest: &KeyDigest,
        record: Record,
        left: Duration,
        waited: bool,
    ) -> Self {
        Self {
            operation: operation.clone(),
            digest: *digest,
            format: format.clone(),
            record,
            left,
            waited,
            is_local: false,
        }
    }

    pub(crate) fn digest(&self) -> &KeyDigest {
        &self.digest
    }

    /// The kind of answer: a value, or a business error.
    #[must_use]
    pub fn outcome(&self) -> OutcomeKind {
        match self.record.header.state {
            State::Done { outcome, .. } => outcome,
            // Only done records become stored answers.
            _ => OutcomeKind::Unknown,
        }
    }

    /// Time since the answer was stored.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.record.header.age(self.left)
    }

    /// Whether it is encrypted in the store.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        is_encrypted(self.record.body())
    }

    /// Reads the answer.
    ///
    /// The answer of a function that returns a `Reply<T>` is read as a reply. A `T` of optional members, or a JSON value,
    /// is the stored form of the reply itself.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Undecodable`] if it is not a `T`.
    pub fn decode<T: Replay>(&self) -> Result<T, Error> {
        let value = self.open().and_then(|body| T::read(&body.by_hand()));
        let mut value = value.map_err(|undecodable| {
            self.operation
                .error(ErrorKind::Undecodable)
                .detail(undecodable.to_string())
        })?;
        value.set_provenance(self.how(), self.record.header.attempts, self.age());
        Ok(value)
    }

    pub(crate) fn open(&self) -> Result<Body<'_>, Undecodable> {
        self.format.open(&self.digest, &self.record)
    }

    pub(crate) fn how(&self) -> AnswerSource {
        if self.waited {
            AnswerSource::Waited
        } else {
            AnswerSource::Replayed
        }
    }
}
