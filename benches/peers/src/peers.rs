//! One file a crate.

pub(crate) mod cached;
pub(crate) mod idempotent;
