//! The error of a handler, or idem's refusal to run it.

use crate::error::Error;
use crate::outcome::class::{Class, Classify};
use crate::outcome::codec::{Body, Replay, Sink, Undecodable, Unencodable};

/// The error of a consumer's call: the refusal is kept apart from the handler's error, whose type has no room for it.
///
/// Stored as `E` itself.
#[derive(Debug)]
pub(super) enum Handled<E> {
    Handler(E),
    Refused(Error),
}

impl<E> From<Error> for Handled<E> {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl<E: Classify> Classify for Handled<E> {
    fn class(&self) -> Class {
        match self {
            Self::Handler(error) => error.class(),
            // Of a call inside the body: nothing of it is stored.
            Self::Refused(_) => Class::System,
        }
    }
}

impl<E: Replay> Replay for Handled<E> {
    fn write(&self, out: &mut Sink) -> Result<(), Unencodable> {
        match self {
            Self::Handler(error) => error.write(out),
            Self::Refused(_) => unreachable!("a refusal is not stored"),
        }
    }

    fn read(body: &Body<'_>) -> Result<Self, Undecodable> {
        E::read(body).map(Self::Handler)
    }

    fn read_back(&mut self, body: &Body<'_>) -> Result<(), Unencodable> {
        match self {
            Self::Handler(error) => error.read_back(body),
            Self::Refused(_) => Ok(()),
        }
    }

    fn schema() -> u32 {
        E::schema()
    }
}
