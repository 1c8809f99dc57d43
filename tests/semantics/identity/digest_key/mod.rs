//! Names and fingerprints by a secret: the knowledge of a reader of the store or of a log.

mod fixture;
pub(crate) mod guesses;
mod limits;
pub(crate) mod rotation;
mod schedules;
