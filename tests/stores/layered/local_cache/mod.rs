//! The local cache of finished answers: calls that it answers without the store, calls that it must not answer, and
//! its invalidation by resets.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod answers;
mod cluster;
mod fixture;
mod max_age;
mod races;
mod redis;
mod resets;
mod rights;
mod stress;
