//! Names and fingerprints by a secret: what a reader of the store or of a log learns.

mod fixture;
pub(crate) mod guesses;
mod limits;
pub(crate) mod rotation;
mod schedules;
