//! One-time tokens, on every kind of store.

pub(crate) mod expiry;
mod fixture;
pub(crate) mod taking;
mod traffic;
mod uses;
